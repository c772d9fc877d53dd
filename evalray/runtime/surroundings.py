"""What all deployments of a sweep share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from evalray.runtime.admission import Claim
from evalray.runtime.budget import Budget
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import SweepProgress
from evalray.runtime.response_cache import ResponseCache
from evalray.runtime.telemetry import SweepTelemetry
from evalray.runtime.tracker import Tracker
from evalray.store import SweepStore


@dataclass(slots=True)
class Surroundings:
    """See the module; the driver makes one for each sweep."""

    store: SweepStore
    progress: SweepProgress
    policy: RuntimePolicy
    tracker: Tracker | None
    say: Callable[[str], None]
    place: Callable[[Claim], Awaitable[Claim]]
    """Waits for Ray; a claim as the cluster can meet it.  Raises :class:`PlacementError`."""
    admit: Callable[[Claim], AbstractAsyncContextManager[None]]
    placement_seconds: float
    budget: Budget = field(default_factory=Budget)
    cache: ResponseCache | None = None
    copy_results_to: Path | None = None
    telemetry: SweepTelemetry | None = None
    expect: Callable[[], object] = lambda: None
    """Told once that engines will be needed, so that Ray starts while data loads."""
    engines_start_here: bool = False
    """On this machine only: what is missing here keeps an engine from starting."""
