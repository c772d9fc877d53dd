"""How often an energy counter moves, found by watching it closely for a moment.

Documented nowhere: 10 to 100 ms have been seen on NVIDIA cards, 1 ms on RAPL.  A window shorter than the
period can hold no energy at all, so the sampler has to know it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Longest watch, and how often to look.
BUDGET_SECONDS = 0.8
POLL_SECONDS = 0.002
#: Changes of every counter after which the watch ends early.
ENOUGH_CHANGES = 8


@dataclass(slots=True, frozen=True)
class Observed:
    """What watching the counters showed."""

    periods: list[float | None]
    """The median time between two changes of each counter, in seconds, to within ``POLL_SECONDS``.
    ``None``: it moved less than three times, or cannot be read."""
    read_seconds: float
    """CPU time of one read, the driver's own included."""


def observe_counters(
    counters: Sequence[Callable[[], float | None]],
    *,
    budget_seconds: float = BUDGET_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Observed:
    """Watch all ``counters`` together until each has moved often enough, for at most ``budget_seconds``."""
    values = [read() for read in counters]
    watched = [index for index, value in enumerate(values) if value is not None]
    changes: list[list[float]] = [[] for _ in counters]
    end, reads, spent = clock() + budget_seconds, 0, 0.0
    while watched and (now := clock()) < end:
        if all(len(changes[index]) >= ENOUGH_CHANGES for index in watched):
            break
        begun = time.thread_time()
        for index in watched:
            value = counters[index]()
            if value is not None and value != values[index]:
                values[index] = value
                changes[index].append(now)
        reads, spent = reads + len(watched), spent + time.thread_time() - begun
        sleep(POLL_SECONDS)
    return Observed([_median_gap(times) for times in changes], spent / reads if reads else 0.0)


def _median_gap(times: Sequence[float]) -> float | None:
    if len(times) < 3:
        return None
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))
