"""What a sweep is doing right now: plain counters the driver updates and a display reads.

One writer (the driver loop); readers may look from another thread at any time and see values that
are at most slightly apart.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from evalray.telemetry import LatestReading

RunState = Literal["waiting", "loading", "running", "finalizing", "complete", "partial", "failed", "skipped"]
ReplicaState = Literal["starting", "ready", "restarting", "stopped", "failed"]


@dataclass(slots=True)
class RunProgress:
    """Counters of one run.  ``resumed`` samples were finished before this process started."""

    benchmark: str
    model: str
    state: RunState = "waiting"
    planned: int | None = None
    wanted: int | None = None
    """What was asked for, where the data has fewer samples that can be used."""
    resumed: int = 0
    generated: int = 0
    """Generations finished in this process, errors included."""
    cached: int = 0
    """Replies that the response cache had; not among the generated."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of all samples that ended, the resumed ones included."""
    output_tokens: int = 0
    cost_usd: float | None = None
    """Of this process's generations, failed ones too; ``None`` while no reply had a cost."""
    judge_cost_usd: float | None = None
    judging: int = 0
    """Samples that are generated and wait for their judge."""
    first_request_at: float | None = None
    """``time.monotonic()`` at which this process's first request was sent to an engine, as its reply tells."""
    last_result_at: float | None = None
    first_prompt: str | None = None
    first_answer: str | None = None
    """Of the same record as ``first_prompt``, which changes where that record failed."""
    message: str = ""

    @property
    def done(self) -> int:
        """Samples that were tried to their end; what was skipped was not."""
        return sum(self.outcomes.values()) - self.skipped

    @property
    def skipped(self) -> int:
        return self.outcomes["skipped"]

    @property
    def correct(self) -> int:
        return self.outcomes["correct"]

    @property
    def scored(self) -> int:
        return sum(self.outcomes[name] for name in ("correct", "incorrect", "unparsed", "truncated"))

    @property
    def errors(self) -> int:
        return sum(self.outcomes[name] for name in ("engine_error", "judge_error", "scorer_error"))

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.scored if self.scored else None

    @property
    def samples_per_second(self) -> float | None:
        seconds = self._active_seconds()
        return self.generated / seconds if seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        seconds = self._active_seconds()
        return self.output_tokens / seconds if seconds else None

    def _active_seconds(self) -> float | None:
        if self.first_request_at is None:
            return None
        end = time.monotonic() if self.state == "running" else self.last_result_at
        return max(end - self.first_request_at, 1e-9) if end else None

    @property
    def eta_seconds(self) -> float | None:
        rate = self.samples_per_second
        if not rate or self.planned is None:
            return None
        return max(self.planned - self.done, 0) / rate


@dataclass(slots=True)
class ReplicaProgress:
    """One engine actor."""

    engine_id: str
    model: str
    state: ReplicaState = "starting"
    in_flight: int = 0
    limit: int = 0


@dataclass(slots=True)
class SweepProgress:
    """Everything a display needs.  ``phase`` is one line on what the sweep waits for."""

    sweep_id: str = ""
    phase: str = "starting"
    runs: list[RunProgress] = field(default_factory=list)
    replicas: list[ReplicaProgress] = field(default_factory=list)
    devices: list[LatestReading] = field(default_factory=list)
    """Of the nodes that are watched."""
    prometheus_url: str | None = None
    """Where this is served to Prometheus, if it is."""
    stopping: bool = False
