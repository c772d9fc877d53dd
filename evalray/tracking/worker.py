"""The process that talks to MLflow, so that the driver never does: ``python -m evalray.tracking.worker``.

Reads requests as JSON lines on its standard input and answers on its standard output.  It runs at
low priority, ignores Ctrl-C (that is the driver's), keeps only the newest progress of each run while a
store is slow, and dies with the driver.  A store that is down is tried again with every new report
of progress, at most every half minute, and once more at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from evalray.errors import EvalRayError, TrackingError
from evalray.reports import collect
from evalray.store import list_runs
from evalray.tracking import protocol
from evalray.tracking.client import Store
from evalray.tracking.redact import redact_text
from evalray.tracking.sync import SweepHandle, SyncReport, child_run, open_sweep, resume, sync_open, sync_run

RETRY_SECONDS = 30.0
#: Below Ray's workers, which run at 15: engines come first.
NICENESS = 19


@dataclass(slots=True)
class Inbox:
    """What the driver said and the main thread has not done yet; bounded by the number of runs."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    sweep: dict[str, Any] | None = None
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    finish: bool = False

    def add(self, message: dict[str, Any]) -> None:
        with self.changed:
            kind, run_dir = message.get("kind"), str(message.get("run_dir", ""))
            if kind == protocol.OPEN:
                self.sweep = message
            elif kind == protocol.PROGRESS:
                self.progress[run_dir] = message
            elif kind == protocol.RUN_FINISHED:
                self.progress.pop(run_dir, None)
                if run_dir not in self.finished:
                    self.finished.append(run_dir)
            elif kind == protocol.FINISH:
                self.finish = True
            self.changed.notify()

    def take(self) -> tuple[dict[str, dict[str, Any]], list[str], bool]:
        """Wait for something to do: newest progress by run, finished runs, whether to finish."""
        with self.changed:
            self.changed.wait_for(lambda: self.sweep and (self.progress or self.finished or self.finish))
            taken = self.progress, self.finished, self.finish
            self.progress, self.finished = {}, []
            return taken


class Worker:
    """Keeps one sweep up to date in MLflow."""

    def __init__(self, inbox: Inbox, answers: IO[bytes]) -> None:
        self._inbox = inbox
        self._answers = answers
        self._handle: SweepHandle | None = None
        self._retry_at = 0.0
        self._complaint = ""

    def run(self) -> None:
        """Serve until ``finish`` is answered."""
        while True:
            progress, finished, finish = self._inbox.take()
            if finish:
                self._finish()
                return
            if time.monotonic() < self._retry_at:
                continue
            try:
                self._update(progress, finished)
            except EvalRayError as error:
                self._retry_at = time.monotonic() + RETRY_SECONDS
                self._complain(error)

    def _update(self, progress: dict[str, dict[str, Any]], finished: list[str]) -> None:
        handle = self._open()
        entries = {entry.name: entry for entry in list_runs(handle.directory)}
        for run_dir, message in progress.items():
            if Path(run_dir).name not in entries:
                continue
            child = child_run(handle, entries[Path(run_dir).name])
            resume(handle, child)
            metrics = message.get("metrics") or {}
            handle.store.log(
                child.info.run_id,
                metrics={f"progress/{key}": value for key, value in metrics.items()},
                at=message.get("at"),
                step=int(message.get("step") or 0),
            )
        if finished:
            runs = {run.name: run for run in collect(handle.directory, with_excerpts=False).runs}
            for name in (Path(run_dir).name for run_dir in finished):
                if name in runs:
                    sync_run(handle, entries[name], runs[name])

    def _finish(self) -> None:
        try:
            report = self._sync()
        except EvalRayError as error:
            self._answer(protocol.FAILED, final=True, message=redact_text(str(error)))
            return
        self._answer(
            protocol.SYNCED,
            final=True,
            experiment=report.experiment,
            parent_run_id=report.parent_run_id,
            url=report.url,
        )

    def _sync(self) -> SyncReport:
        handle = self._open()
        return sync_open(handle, collect(handle.directory, with_excerpts=False))

    def _open(self) -> SweepHandle:
        if self._handle is None:
            asked = self._inbox.sweep
            if asked is None:
                raise TrackingError("no sweep was named")
            directory = Path(asked["directory"])
            report = collect(directory, with_excerpts=False)
            self._handle = open_sweep(Store(asked["uri"]), directory, report.sweep, asked.get("experiment"))
            resume(self._handle, self._handle.parent)
        return self._handle

    def _complain(self, error: EvalRayError) -> None:
        message = redact_text(str(error))
        if message != self._complaint:
            self._complaint = message
            self._answer(protocol.FAILED, final=False, message=message)

    def _answer(self, kind: str, **content: Any) -> None:
        with contextlib.suppress(OSError):
            self._answers.write(protocol.encode(kind, **content))
            self._answers.flush()


def _read(source: IO[bytes], inbox: Inbox) -> None:
    """Take in the driver's lines; its end without ``finish`` is the end of this process."""
    for line in source:
        inbox.add(protocol.decode(line))
    if not inbox.finish:
        os._exit(1)


def _die_with(parent: int) -> None:
    """A process forked off the driver may hold its end of the pipe open: watch the driver itself."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _private_stdout() -> IO[bytes]:
    """The answers' own descriptor; whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Serve one sweep."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICENESS)
    inbox = Inbox()
    worker = Worker(inbox, _private_stdout())
    threading.Thread(target=_read, args=(sys.stdin.buffer, inbox), daemon=True).start()
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    worker.run()
    # Skips the teardown of MLflow's own threads: all is stored and answered.
    os._exit(0)


if __name__ == "__main__":
    main()
