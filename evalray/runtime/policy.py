"""The runtime's deadlines and limits, in one place.  Every wait of the runtime is bounded by one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class RuntimePolicy:
    """How long to wait, how often to try again.  All times in seconds."""

    connect_seconds: float = 180.0
    """For starting or joining Ray."""
    poll_seconds: float = 5.0
    """How long an actor holds a call open while nothing is finished."""
    linger_seconds: float = 0.015
    """How long finished results wait for company."""
    hang_seconds: float = 60.0
    """An actor that is this late with an answer is killed and replaced."""
    unavailable_seconds: float = 60.0
    """How long an unreachable actor may take to be alive or dead."""
    ping_seconds: float = 5.0
    restarts_without_result: int = 4
    """A replica that dies this often without finishing anything in between is given up."""
    restart_backoff_seconds: float = 0.5
    restart_backoff_cap_seconds: float = 15.0
    drain_seconds: float = 30.0
    """For requests in flight once the sweep is asked to stop."""
    stop_seconds: float = 10.0
    """For an engine to close itself before its actor is killed."""
    scoring_seconds: float = 60.0
    """For verdicts under way once a deployment has been stopped."""
    scoring_workers: int = 2
    """Isolated scorers at once."""
    scoring_backlog: int = 256
    """Answers that wait for an isolated scorer before generation is held back, or for a judge before
    they are left in the journal."""
    judge_start_seconds: float = 300.0
    """From the first failed start of a judge on, for it to be tried again; no more often than a replica is."""
    judge_threads: int = 64
    """Scorers at once that call their judge themselves."""
    judge_thread_seconds: float = 3600.0
    """For one of them to come to its verdict."""
    judge_idle_seconds: float = 2.0
    """How long a judge without work keeps resources that a deployment waits for."""
    parallel_deployments: int = 4

    def restart_delay_seconds(self, failures: int) -> float:
        """Before the next start after so many (1 or more) that came to nothing: doubled with each, up to the cap."""
        backoff = self.restart_backoff_seconds * 2.0 ** (failures - 1)
        return min(max(backoff, 0.1), self.restart_backoff_cap_seconds)
