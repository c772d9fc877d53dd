"""vLLM's own log: quiet on the terminal, kept in a file, and read when a start fails.

The exception that reaches us says "see the stack trace above", because the cause was raised in a
process of vLLM's.  That trace is in the log.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from evalray.engines.failures import one_line

#: Where a user set one of these, the log is theirs and stays as they want it.
_USERS_CHOICE = ("VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_LEVEL", "VLLM_CONFIGURE_LOGGING")
_TAIL_BYTES = 256 * 1024
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b: ?.*$", re.MULTILINE)
_POINTS_ELSEWHERE = re.compile(r"see (?:the )?(?:stack trace|root cause)", re.IGNORECASE)


class VllmLog:
    """The log of one engine, in a folder of its own that :meth:`close` removes."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="evalray-vllm-"))
        self.file = self._folder / "vllm.log"
        self.file.touch()
        (self._folder / "logging.json").write_text(json.dumps(_logging_config(self.file)), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Variables that send vLLM's messages to the file."""
        if any(os.environ.get(name) for name in _USERS_CHOICE):
            return {}
        return {"VLLM_LOGGING_CONFIG_PATH": str(self._folder / "logging.json")}

    def cause(self) -> str:
        """The exceptions that the log ends with, innermost first, as one line; empty if there are none."""
        try:
            with self.file.open("rb") as stream:
                stream.seek(max(0, self.file.stat().st_size - _TAIL_BYTES))
                text = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return cause_in(text)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def cause_in(text: str) -> str:
    """The first and the last distinct exception that ``text`` names, those that point elsewhere aside."""
    found = list(
        dict.fromkeys(line for line in _EXCEPTION.findall(text) if not _POINTS_ELSEWHERE.search(line))
    )
    return "; ".join(one_line(line) for line in (found if len(found) < 3 else [found[0], found[-1]]))


def _logging_config(file: Path) -> dict[str, object]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"}},
        "handlers": {
            "file": {
                "class": "logging.FileHandler",
                "filename": str(file),
                "formatter": "plain",
                "delay": True,
            }
        },
        "loggers": {"vllm": {"handlers": ["file"], "level": "WARNING", "propagate": False}},
    }
