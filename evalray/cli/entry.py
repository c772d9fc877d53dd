"""The command line's outermost layer: from arguments to an exit code, whatever happens between.

Promises one line per problem on stderr, a traceback only with ``-v``, and with ``--json`` exactly
one JSON object on stdout: after bad usage, an interrupt or a defect of ours too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from evalray.cli.app import app
from evalray.cli.report import Report, json_channel
from evalray.cli.text import safe_text
from evalray.errors import ConfigError, EvalRayError

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    _end_like_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    report = Report(args=args, wanted="--json" in args, verbose="-v" in args or "--verbose" in args)
    if args[:1] in (["run"], ["run-all"], ["plan"], ["rescore"]):
        report.fields = {"sweep_id": None, "dir": None, "runs": []}
    with json_channel(report):
        report.exit_code = _exit_code_of(args, report)
    sys.exit(report.exit_code)


def _end_like_ctrl_c(*numbers: signal.Signals) -> None:
    """Let what would kill us on the spot unwind instead, so that what we started ends with us."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in numbers:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and is meant to
            signal.signal(number, interrupt)


def _exit_code_of(args: list[str], report: Report) -> int:
    try:
        result = app(args=args, prog_name="evalray", standalone_mode=False, obj=report)
        return result if isinstance(result, int) else 0
    except ConfigError as error:
        for problem in error.problems:
            report.error(safe_text(str(problem)))
        return _EXIT_USAGE
    except EvalRayError as error:
        report.error(safe_text(str(error)))
        _traceback(report)
        return _EXIT_FAILED
    except KeyboardInterrupt:
        report.error("interrupted")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout left (`evalray list | head`): nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence
        return _unexpected(error, report)


def _unexpected(error: Exception, report: Report) -> int:
    usage: Any = error  # Typer brings its own copy of Click's exceptions: known by what they offer
    if type(error).__name__ == "Abort":
        report.error("interrupted")
        return _EXIT_INTERRUPTED
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        if type(error).__name__ == "NoArgsIsHelpError":
            return _EXIT_USAGE
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "evalray"
        message = " ".join(usage.format_message().split())
        report.error(f"{safe_text(message)} (try: {command} --help)")
        return _EXIT_USAGE
    hint = "" if report.verbose else " (-v shows where)"
    report.error(safe_text(f"unexpected {type(error).__name__}: {error}{hint}", 2_000))
    _traceback(report)
    return _EXIT_FAILED


def _traceback(report: Report) -> None:
    if report.verbose:
        sys.stderr.write(safe_text(traceback.format_exc()) + "\n")
