"""The driver's end of tracking: tells a process of its own what happened, and never waits for it.

Every method but :meth:`MlflowTracker.close` returns at once, whatever MLflow does; what the process has not
taken in is replaced by newer figures, and nothing is lost, because at the end all is read from the run
directory.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from evalray.tracking import protocol
from evalray.tracking.redact import redact_text
from evalray.tracking.uri import mask_uri, resolve_tracking_uri
from evalray.types import RunSummary

#: Between two reports of one run's progress.
INTERVAL_SECONDS = 10.0
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


@dataclass(slots=True, frozen=True)
class TrackingStatus:
    """How tracking ended.  ``message`` is one line for the user; ``uri`` has no credentials."""

    synced: bool
    message: str
    uri: str
    experiment: str = ""
    parent_run_id: str = ""
    url: str | None = None


class MlflowTracker:
    """Mirrors one sweep into MLflow through ``evalray.tracking.worker``.

    The process starts with the first report of progress, when requests already run, or at the end.
    Thread-safe.
    """

    def __init__(
        self, uri: str, *, experiment: str | None = None, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._uri = uri
        self._experiment = experiment
        self._interval = interval_seconds
        self._directory: Path | None = None
        self._due: dict[Path, float] = {}
        self._progress: dict[Path, dict[str, Any]] = {}
        self._finished: list[Path] = []
        self._finish = False
        self._closed = False
        self._changed = threading.Condition()
        self._starting = threading.Lock()
        self._ended = threading.Event()
        self._writer: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: dict[str, Any] = {}
        self._trouble = ""

    def sweep_started(self, directory: Path) -> None:
        """Name the sweep directory.  Starts nothing."""
        self._directory = directory.absolute()

    def run_updated(self, run_dir: Path, metrics: Mapping[str, float | int | None]) -> None:
        """Progress of one run, such as samples done, accuracy so far, tokens a second.

        The first figure is what the curves are drawn over.  More often than every ten seconds is ignored.
        """
        now = time.monotonic()
        if now < self._due.get(run_dir, 0.0):
            return
        self._due[run_dir] = now + self._interval
        figures = {k: v for k, v in metrics.items() if isinstance(v, int | float) and math.isfinite(v)}
        step = next((int(value) for value in figures.values()), 0)
        with self._changed:
            self._progress[run_dir] = {"metrics": figures, "step": step, "at": time.time()}
            self._notify()

    def run_finished(self, run_dir: Path, summary: RunSummary | None = None) -> None:
        """The run's summary is written: it can be sent."""
        with self._changed:
            self._progress.pop(run_dir, None)
            if run_dir not in self._finished:
                self._finished.append(run_dir)
            # Alone it is no reason to start the process: the sweep may be in its busiest moment.
            if self._writer is not None:
                self._notify()

    def sweep_finished(self, result: object = None) -> None:
        """All is in the directory, reports included: send what is missing."""
        with self._changed:
            self._finish = True
            if self._directory is not None:
                self._notify()

    def close(self, deadline_seconds: float = 60.0) -> TrackingStatus:
        """Wait until MLflow has everything, but no longer than ``deadline_seconds``; then stop.

        A deadline of 0 stops at once and starts nothing.  Safe to call twice.
        """
        if self._directory is None:
            return self._status(False, "nothing to track: no sweep was started")
        if not self._finish and deadline_seconds > 0:
            self.sweep_finished()
        in_time = self._ended.wait(deadline_seconds)
        self._stop()
        if self._answer.get("kind") == protocol.SYNCED:
            return self._status(True, f"MLflow at {mask_uri(self._uri)} is up to date")
        refill = f"`evalray mlflow sync {self._directory}{self._sync_flag()}` refills it"
        if not in_time:
            why = (
                self._trouble or f"MLflow at {mask_uri(self._uri)} was not done after {deadline_seconds:g} s"
            )
        else:
            why = str(self._answer.get("message") or self._trouble or "the tracking process ended early")
        return self._status(False, f"{why}; {refill}")

    def _sync_flag(self) -> str:
        """What ``evalray mlflow sync`` has to be told to find this store again."""
        if self._directory is None or self._uri == resolve_tracking_uri(self._directory.parent):
            return ""
        return f" --tracking-uri {mask_uri(self._uri)}"

    def _status(self, synced: bool, message: str) -> TrackingStatus:
        answer = self._answer
        return TrackingStatus(
            synced,
            message,
            mask_uri(self._uri),
            experiment=str(answer.get("experiment") or ""),
            parent_run_id=str(answer.get("parent_run_id") or ""),
            url=answer.get("url"),
        )

    def _notify(self) -> None:
        """Wake the writing thread, made on first use.  Call with the lock held."""
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="evalray-tracking", daemon=True)
            self._writer.start()
        self._changed.notify()

    def _write(self) -> None:
        """Start the process and hand it what there is; a full pipe holds up this thread only."""
        with self._starting:
            if self._closed:
                return
            try:
                self._process = process = _start()
            except OSError as error:
                self._trouble = f"the tracking process cannot start ({error.strerror})"
                self._ended.set()
                return
        assert process.stdin is not None
        assert process.stdout is not None
        threading.Thread(target=self._listen, args=(process.stdout,), daemon=True).start()
        opening = protocol.encode(
            protocol.OPEN, directory=str(self._directory), uri=self._uri, experiment=self._experiment
        )
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(opening)
            finish = False
            while not finish:
                lines, finish = self._take()
                process.stdin.write(b"".join(lines))
                process.stdin.flush()

    def _take(self) -> tuple[list[bytes], bool]:
        with self._changed:
            self._changed.wait_for(lambda: self._progress or self._finished or self._finish or self._closed)
            lines = [
                protocol.encode(protocol.PROGRESS, run_dir=str(d), **p) for d, p in self._progress.items()
            ]
            lines += [protocol.encode(protocol.RUN_FINISHED, run_dir=str(d)) for d in self._finished]
            self._progress, self._finished = {}, []
            if self._finish and not self._closed:
                lines.append(protocol.encode(protocol.FINISH))
            return lines, self._finish or self._closed

    def _listen(self, answers: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in answers:
                answer = protocol.decode(line)
                if answer.get("final"):
                    self._answer = answer
                    break
                if answer.get("kind") == protocol.FAILED:
                    self._trouble = redact_text(str(answer.get("message")))
        self._ended.set()

    def _stop(self) -> None:
        with self._starting:
            self._closed = True
            process = self._process
        with self._changed:
            self._changed.notify_all()
        if process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._answer:
                process.wait(2.0)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        if self._writer is not None:
            self._writer.join(2.0)
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()


def _start() -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if _PACKAGE_PARENT.name not in ("site-packages", "dist-packages"):
        paths = [str(_PACKAGE_PARENT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.Popen(
        # -P: a file of the user's called like a module of ours must not be imported in its place.
        [sys.executable, "-P", "-m", "evalray.tracking.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        # Ctrl-C in the terminal goes to its foreground group: the driver's, not this one's.
        start_new_session=True,
    )
