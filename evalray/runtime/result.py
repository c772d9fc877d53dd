"""What a sweep leaves behind, for the command line and for callers of the Python API."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evalray.types import RunSummary

RunStatus = Literal["complete", "partial", "failed", "skipped", "unsupported"]

EXIT_DONE = 0
EXIT_FAILED = 1
"""A run is over its error threshold, or nothing succeeded."""
EXIT_USAGE = 2
EXIT_STOPPED = 3
"""Stopped before its end: by a circuit breaker, or because Ray or the room on the disk was gone; resumable."""
EXIT_SKIPPED = 4
"""Done, but cells or samples were skipped (gated, unsupported, the sweep's budget); resumable."""
EXIT_INTERRUPTED = 130


@dataclass(slots=True)
class RunOutcome:
    """One cell of the matrix after the sweep.  ``reason`` explains every status but ``complete``."""

    benchmark: str
    model: str
    status: RunStatus
    results: Path | None = None
    summary_path: Path | None = None
    summary: RunSummary | None = None
    reason: str = ""


@dataclass(slots=True)
class SweepResult:
    sweep_id: str
    directory: Path
    exit_code: int
    runs: list[RunOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    untracked: str = ""
    """Why MLflow lacks what is in ``directory``; empty where it has it, or was not asked to."""
    larger_budget: dict[str, float] = field(default_factory=dict)
    """Where the sweep's budget was used up before its end: a limit to continue with, by its flag."""
    nothing_ran: bool = False
    """No cell could run: no engine was started, and there is no sample of an earlier process either."""
    disk_full: bool = False
    """The disk was full, as ``errors`` says: nothing more is to be written."""
