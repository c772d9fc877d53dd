"""Ray, and nothing but Ray: placement, engine actors, the driver loop.  Importing it imports no Ray."""

from evalray.runtime.driver import run_sweep
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.progress import ReplicaProgress, RunProgress, SweepProgress
from evalray.runtime.result import RunOutcome, SweepResult
from evalray.runtime.tracker import Tracker

__all__ = [
    "ReplicaProgress",
    "RunOutcome",
    "RunProgress",
    "RuntimePolicy",
    "SweepProgress",
    "SweepResult",
    "Tracker",
    "run_sweep",
]
