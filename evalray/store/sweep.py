"""The sweep directory: one sweep's runs under one lock.

A run is found again by its fingerprint; one that shares only the name gets a suffix.
Nothing here deletes results: a fresh sweep moves the old one aside.
"""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from evalray.errors import StoreError
from evalray.store.fingerprint import answer_settings, run_name
from evalray.store.jsonlines import move_aside, read_json, redact, store_errors, write_json
from evalray.store.layout import RunFiles, RunManifest
from evalray.store.lock import LOCK_NAME, DirectoryLock
from evalray.store.run import RunStore
from evalray.types import RunConfig

SWEEP_NAME = "sweep.json"
_NAMED = 5  # sweeps that a message names


class SweepStore:
    """A locked sweep directory.  Use as a context manager, or :meth:`close` it."""

    def __init__(self, directory: Path, lock: DirectoryLock, resumed: bool) -> None:
        self.directory = directory
        self.resumed = resumed
        """Whether an earlier process worked here."""
        self.on_begun_beside: Callable[[str], None] = lambda message: None
        """Told of a run that begins from the start beside one of its name: of other settings, or damaged."""
        self._lock = lock
        self._open_runs: dict[str, RunStore] = {}

    @classmethod
    def open(cls, directory: Path, *, fresh: bool = False) -> SweepStore:
        """Create or continue the sweep in ``directory``; ``fresh`` moves an old one aside first.

        Raises :class:`StoreError` where it is not writable, or locked by another process.
        """
        directory = Path(directory).absolute()
        if fresh and _has_content(directory):
            _move_aside(directory)
        with store_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        resumed = _has_content(directory)
        return cls(directory, DirectoryLock(directory), resumed)

    def write_sweep(self, info: dict[str, Any]) -> None:
        """Write ``sweep.json``; the first ``started_at`` is kept.  Secrets are left out."""
        path = self.directory / SWEEP_NAME
        started_at = info.get("started_at") or time.time()
        if path.exists():
            started_at = read_json(path).get("started_at") or started_at
        write_json(path, {**redact(info), "started_at": started_at})

    def open_run(
        self,
        config: RunConfig,
        *,
        fingerprint: str,
        scorer_fingerprint: str,
        num_records: int,
        info: dict[str, Any],
    ) -> RunStore:
        """Continue the run with this fingerprint, or begin it.

        ``num_records`` is what is planned now, and may differ from before.  Raises
        :class:`StoreError` also where the same run is open already.
        """
        if fingerprint in self._open_runs:
            name = self._open_runs[fingerprint].name
            raise StoreError(f"{name}: the same run stands twice in this sweep; remove one of the two")
        manifest = RunManifest(
            config=config,
            fingerprint=fingerprint,
            scorer_fingerprint=scorer_fingerprint,
            num_records=num_records,
            epochs=config.epochs,
            info=info,
        )
        directory = self._run_directory(run_name(config.benchmark, config.model), fingerprint)
        self._tell_of_namesake(directory, config)
        run = RunStore(directory, manifest, on_close=lambda: self._forget(fingerprint))
        self._open_runs[fingerprint] = run
        return run

    def _tell_of_namesake(self, directory: Path, config: RunConfig) -> None:
        """Say where a changed setting begins a run from the start.  Two of one suite are meant to differ."""
        namesake = directory.parent / run_name(config.benchmark, config.model)
        opened = {run.name for run in self._open_runs.values()}
        if directory == namesake or namesake.name in opened or not _is_free(directory):
            return
        try:
            before = answer_settings(read_run(namesake).config)
        except StoreError:
            return  # said already, or a run of which only files are left
        now = answer_settings(config)
        changed = [
            f"{key} was {_told(before[key])}, now {_told(now[key])}" for key in now if before[key] != now[key]
        ]
        why = "; ".join(changed) or "data, prompt or engine settings differ"
        self.on_begun_beside(
            f"{namesake.name} has answers at other settings ({why}): they stay, {directory.name} begins from the start"
        )

    def _forget(self, fingerprint: str) -> None:
        self._open_runs.pop(fingerprint, None)

    def _run_directory(self, name: str, fingerprint: str) -> Path:
        """Where the run is, or the shortest name that no other run has."""
        names = [name, *(f"{name}-{fingerprint[:digits]}" for digits in (8, 16, len(fingerprint)))]
        candidates = [self.directory / candidate for candidate in names]
        damaged = []
        for candidate in candidates:
            try:
                if RunFiles(candidate).manifest.exists() and read_run(candidate).fingerprint == fingerprint:
                    return candidate
            except StoreError as error:
                damaged.append(str(error))
        for candidate in candidates:
            if _is_free(candidate):
                for problem in damaged:
                    self.on_begun_beside(
                        f"{problem}: its samples are not found again, {candidate.name} begins from the start"
                    )
                return candidate
        raise StoreError(f"{self.directory / name}: taken by another run; use another --sweep-id")

    def rescue(self) -> None:
        """Keep what the open runs have not written yet, from a signal handler, before the process ends."""
        for run in list(self._open_runs.values()):
            run.rescue()

    def close(self) -> None:
        """Close every open run and let go of the lock.  Safe to call twice."""
        errors: list[StoreError] = []
        for run in list(self._open_runs.values()):
            try:
                run.close()
            except StoreError as error:
                errors.append(error)
        self._lock.release()
        if errors:
            raise errors[0]

    def __enter__(self) -> SweepStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _told(value: Any) -> str:
    return reprlib.repr(value)


def _has_content(directory: Path) -> bool:
    with store_errors(directory):
        return directory.is_dir() and any(entry.name != LOCK_NAME for entry in directory.iterdir())


def _move_aside(directory: Path) -> None:
    """Rename it, unless another process works there."""
    lock = DirectoryLock(directory)
    try:
        move_aside(directory)
    finally:
        lock.release()


def _is_free(directory: Path) -> bool:
    files = RunFiles(directory)
    if any(path.exists() for path in (files.results, files.parquet, files.summary)):
        return False
    # A crash between making the directory and its manifest leaves it without journals.
    return not any(path.exists() for path in (files.manifest, files.generations, files.scores))


@dataclass(slots=True, frozen=True)
class RunEntry:
    """A run found in a sweep directory.  The files need not be there before it is finalized."""

    name: str
    directory: Path
    manifest: RunManifest

    @property
    def results_path(self) -> Path:
        return RunFiles(self.directory).results

    @property
    def parquet_path(self) -> Path:
        return RunFiles(self.directory).parquet

    @property
    def summary_path(self) -> Path:
        return RunFiles(self.directory).summary

    @property
    def config(self) -> RunConfig:
        return self.manifest.config

    @property
    def fingerprint(self) -> str:
        return self.manifest.fingerprint


def read_run(directory: Path) -> RunEntry:
    """The run in ``directory``.  Raises :class:`StoreError` where its ``run.json`` is missing or damaged."""
    return RunEntry(directory.name, directory, RunManifest.read(RunFiles(directory).manifest))


def list_runs(sweep_directory: Path) -> list[RunEntry]:
    """The runs of a sweep by name, without those that cannot be read: see :func:`scan_runs`.

    Raises :class:`StoreError` for a directory that is missing.
    """
    return scan_runs(sweep_directory)[0]


def scan_runs(sweep_directory: Path) -> tuple[list[RunEntry], dict[str, str]]:
    """The runs of a sweep by name, and what is wrong with those whose ``run.json`` cannot be read.

    Raises :class:`StoreError` for a directory that is missing.
    """
    sweep_directory = Path(sweep_directory)
    with store_errors(sweep_directory):
        found = sorted(p for p in sweep_directory.iterdir() if (p / "run.json").is_file())
    entries, damaged = [], {}
    for directory in found:
        try:
            entries.append(read_run(directory))
        except StoreError as error:
            damaged[directory.name] = str(error)
    return entries, damaged


def why_no_run(directory: Path) -> str:
    """What to say of a directory in which :func:`scan_runs` found nothing: the sweeps in it, if it holds some."""
    with store_errors(directory):
        sweeps = sorted(folder.name for folder in directory.glob("[!.]*") if (folder / SWEEP_NAME).is_file())
    if not sweeps:
        return "holds no run (a run is a folder with run.json)"
    named = ", ".join(sweeps[:_NAMED]) + (f" and {len(sweeps) - _NAMED} more" if len(sweeps) > _NAMED else "")
    return f"holds sweeps and no run of its own: name one of them ({named})"


def read_sweep(sweep_directory: Path) -> dict[str, Any]:
    """What ``sweep.json`` says.  Raises :class:`StoreError`."""
    return read_json(Path(sweep_directory) / SWEEP_NAME)
