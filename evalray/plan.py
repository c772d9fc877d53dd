"""What would run where: a suite's matrix grouped into deployments.

Pure: reads no network, starts nothing, imports neither Ray nor an SDK.  ``evalray plan`` shows it,
``evalray run`` executes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from evalray.benchmarks import Benchmark
from evalray.engines.base import EngineConfig
from evalray.types import RunConfig

CellStatus = Literal["ready", "unsupported"]


@dataclass(slots=True)
class PlannedRun:
    """One cell of the matrix.  ``unsupported`` cells are skipped and reported; ``reason`` says why.

    ``notes`` are gaps that are shown by ``plan`` and may stop the cell at run time: a missing
    file, key, token or GPU.
    """

    config: RunConfig
    benchmark: Benchmark | None
    status: CellStatus = "ready"
    reason: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Deployment:
    """One model with its engine settings, on ``replicas`` engine actors; serves all its runs."""

    model: str
    engine_config: EngineConfig
    replicas: int = 1
    gpus_per_replica: int = 0
    cpus_per_replica: float = 1.0
    in_flight: int | None = None
    """Requests per replica; ``None`` takes what the started engine reports."""
    exclusive: bool = False
    """Computes on this machine's CPU cores: not run beside another such deployment."""
    runs: list[PlannedRun] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """A resolved sweep.  ``suite`` is the merged configuration as it is stored in ``sweep.json``."""

    name: str
    description: str
    sweep_id: str
    directory: Path
    suite: dict[str, Any]
    deployments: list[Deployment] = field(default_factory=list)
    skipped: list[PlannedRun] = field(default_factory=list)
    """Cells that cannot run, in the order of the suite."""
    warnings: list[str] = field(default_factory=list)
    address: str | None = None
    """Ray address; ``None`` starts a local Ray."""
    placement_timeout_seconds: float = 120.0
    tracking_uri: str | None = None
    """``None`` is the default store beside the results."""
    tracking_enabled: bool = True
    experiment: str = ""
    copy_results_to: Path | None = None
    """``-o``: where a single run's rows are also written."""

    @property
    def runs(self) -> list[PlannedRun]:
        return [run for deployment in self.deployments for run in deployment.runs]
