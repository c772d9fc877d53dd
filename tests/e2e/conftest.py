from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_SERVER = Path(__file__).with_name("adding_server.py")


@dataclass(frozen=True)
class Adder:
    """A running ``adding_server.py``."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def seen(self) -> dict[str, int]:
        """How often each question was asked."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/seen", timeout=10) as reply:
            counts: dict[str, int] = json.load(reply)
        return counts

    def wait_for(self, requests: int, command: subprocess.Popen[str], seconds: float = 120.0) -> None:
        """Return once so many requests came in; fails if the command ends first."""
        deadline = time.monotonic() + seconds
        while sum(self.seen().values()) < requests:
            assert command.poll() is None, f"ended early with {command.returncode}"
            assert time.monotonic() < deadline, f"{self.seen()} after {seconds} s"
            time.sleep(0.05)


@contextmanager
def _serving(delay_seconds: float) -> Iterator[Adder]:
    process = subprocess.Popen(
        [sys.executable, str(_SERVER), str(delay_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Adder(int(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.fixture
def adder() -> Iterator[Adder]:
    with _serving(0.02) as server:
        yield server


@pytest.fixture
def slow_adder() -> Iterator[Adder]:
    """Slow enough to be interrupted."""
    with _serving(0.2) as server:
        yield server


@dataclass
class Ended:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; fails where there is anything else."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value


class Cli:
    """Starts ``evalray`` in a folder, and ends what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *args: str) -> subprocess.Popen[str]:
        clean = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")}
        process = subprocess.Popen(
            [sys.executable, "-m", "evalray", *args],
            cwd=self.folder,
            env={**clean, "PYTHONPATH": str(_ROOT), "CI": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[str], seconds: float = 150.0) -> Ended:
        stdout, stderr = process.communicate(timeout=seconds)
        return Ended(process.returncode, stdout, stderr)

    def __call__(self, *args: str) -> Ended:
        return self.end(self.start(*args))

    def kill_leftovers(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    command = Cli(tmp_path)
    yield command
    command.kill_leftovers()


@pytest.fixture
def sums(tmp_path: Path) -> Callable[[int], Path]:
    """A GSM8K-like file of so many additions; every second one is answered wrongly."""

    def write(number: int) -> Path:
        path = tmp_path / "sums.jsonl"
        rows = (
            {"question": f"What is {i} plus {2 * i}?", "answer": f"Adding them.\n#### {3 * i}"}
            for i in range(number)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write
