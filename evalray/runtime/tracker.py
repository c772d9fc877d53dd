"""What the driver tells whoever tracks experiments.  Nothing here may block or raise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from evalray.types import RunSummary


class Tracker(Protocol):
    """Told of a sweep's progress; must return at once, whatever state its server is in.

    The end of the sweep is told by whoever also writes its reports, once they are there.
    """

    def sweep_started(self, directory: Path) -> None: ...

    def run_updated(self, run_dir: Path, metrics: Mapping[str, float | int | None]) -> None:
        """Figures of a run under way; the first is the one the others are drawn over."""
        ...

    def run_finished(self, run_dir: Path, summary: RunSummary | None = None) -> None:
        """The run's rows and summary are written."""
        ...
