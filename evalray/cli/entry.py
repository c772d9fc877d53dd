"""The command line's outermost layer: from arguments to an exit code, whatever happens between.

Promises one line per problem on stderr, a traceback only with ``-v``, and with ``--json`` exactly
one JSON object on stdout: after bad usage, an interrupt or a defect of ours too.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from evalray.cli.report import Report, json_channel
from evalray.cli.streams import discard_stdout, flush_stdout, prepare_streams
from evalray.cli.text import safe_text
from evalray.errors import ConfigError, DiskFullError, EvalRayError

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_STOPPED = 3
_EXIT_INTERRUPTED = 130
_TOGETHER_SECONDS = 1.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    _unwind_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    args = list(sys.argv[1:] if argv is None else argv)
    report = Report(args=args, wanted="--json" in args, verbose="-v" in args or "--verbose" in args)
    report.has_stdout = prepare_streams()
    if args[:1] in (["run"], ["run-all"], ["plan"], ["rescore"]):
        report.fields = {"sweep_id": None, "dir": None, "runs": []}
    try:
        with json_channel(report):
            report.exit_code = _exit_code_of(args, report) or report.exit_code
            if report.exit_code == _EXIT_INTERRUPTED and not any("interrupt" in e for e in report.errors):
                # A sweep that stopped in order has said so on stderr, and more.
                (report.errors.append if report.fields.get("runs") else report.error)("interrupted")
        report.lost_output(flush_stdout())
    except KeyboardInterrupt:  # once more, while the last words were written
        report.exit_code = _EXIT_INTERRUPTED
    # With -m, Python remembers an interrupt inside the `exec` of a string (a dataclass, a named tuple) as
    # unhandled, though it was caught, and ends by SIGINT; the next `exec` makes it forget.
    exec("")
    sys.exit(report.exit_code)


def _unwind_on(*numbers: signal.Signals) -> None:
    """Let what would kill us on the spot unwind instead, so that what we started ends with us.

    What arrives together (``timeout`` signals its child and its child's group) is one interrupt.
    """
    last: float | None = None

    def interrupt(number: int, frame: object) -> None:
        nonlocal last
        now = time.monotonic()
        if last is None or now - last >= _TOGETHER_SECONDS:
            last = now
            raise KeyboardInterrupt

    for number in numbers:
        # nohup ignores SIGHUP, and is meant to
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)


def _exit_code_of(args: list[str], report: Report) -> int:
    try:
        from evalray.cli.app import app  # here, as it takes a while, in which Ctrl-C has to be handled

        result = app(args=args, prog_name="evalray", standalone_mode=False, obj=report)
        return result if isinstance(result, int) else 0
    except ConfigError as error:
        for problem in error.problems:
            report.error(safe_text(str(problem)))
        return _EXIT_USAGE
    except EvalRayError as error:
        report.error(safe_text(str(error)))
        _traceback(report)
        return _EXIT_STOPPED if isinstance(error, DiskFullError) else _EXIT_FAILED
    except KeyboardInterrupt:
        report.error("interrupted")
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout left (`evalray list | head`): nothing to say, and nowhere to say it.
        discard_stdout()
        return 0
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
        import traceback

        sys.stderr.write(safe_text(traceback.format_exc()) + "\n")
