"""Bring MLflow up to date with every sweep at a path: one sweep, or a folder that holds several.

A sweep that cannot be read or sent is said, and keeps no other from being sent; a store that failed is not tried again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evalray.errors import EvalRayError, StoreError, TrackingError
from evalray.store import list_runs
from evalray.tracking.sync import SyncReport, sweep_uri, sync_sweep
from evalray.tracking.uri import mask_uri
from evalray.wording import counted


@dataclass(slots=True)
class SyncedSweep:
    """One sweep: what was done, or ``error``."""

    directory: Path
    report: SyncReport | None = None
    error: EvalRayError | None = None

    def lines(self) -> list[str]:
        """What was done, for a person."""
        done = self.report
        if done is None:
            return []
        sent = f"{counted(len(done.logged), 'run')} sent, {len(done.unchanged)} already there"
        lines = [f"{done.uri}: experiment {done.experiment!r}, {sent}"]
        return [*lines, *([f"see {done.url}"] if done.url else []), *done.warnings]

    def fields(self) -> dict[str, Any]:
        """Plain data; without a report its keys are ``None``."""
        empty = dict.fromkeys(SyncReport.__dataclass_fields__)
        return {
            "dir": str(self.directory),
            **(asdict(self.report) if self.report else empty),
            "error": None if self.error is None else str(self.error),
        }


@dataclass(slots=True)
class _Stores:
    failed: dict[str, TrackingError] = field(default_factory=dict)

    def sync(self, directory: Path, uri: str | None) -> SyncedSweep:
        address = ""
        try:
            address = sweep_uri(directory, uri)
            if address in self.failed:
                raise TrackingError(f"MLflow at {mask_uri(address)} failed before, and was not tried again")
            return SyncedSweep(directory, sync_sweep(directory, uri=uri))
        except TrackingError as error:
            self.failed.setdefault(address, error)
            return SyncedSweep(directory, error=error)
        except StoreError as error:
            return SyncedSweep(directory, error=error)


def sync_sweeps(path: Path, *, uri: str | None = None) -> list[SyncedSweep]:
    """Sync the sweep in ``path``, or each of those that the folder holds, in the order of their names.

    Raises :class:`StoreError` where there is none.
    """
    stores = _Stores()
    return [stores.sync(directory, uri) for directory in find_sweeps(path.absolute())]


def find_sweeps(path: Path) -> list[Path]:
    """``path`` where it is a sweep directory, else the sweeps in it.  Raises :class:`StoreError` for none."""
    if _is_sweep(path):
        return [path]
    found = sorted(folder for folder in path.glob("[!.]*") if folder.is_dir() and _is_sweep(folder))
    if not found:
        raise StoreError(f"{path}: holds no sweep and no run (a run is a folder with run.json)")
    return found


def _is_sweep(folder: Path) -> bool:
    return (folder / "sweep.json").is_file() or bool(list_runs(folder))
