"""How often an energy counter moves, found by watching it closely for a moment.

Documented nowhere: 10 to 100 ms have been seen on NVIDIA cards, 1 ms on RAPL.  A window shorter than the
period can hold no energy at all, so the sampler has to know it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence

#: Longest watch, and how often to look.
BUDGET_SECONDS = 0.8
POLL_SECONDS = 0.002
#: Changes of every counter after which the watch ends early.
ENOUGH_CHANGES = 8


def infer_update_periods(
    counters: Sequence[Callable[[], float | None]],
    *,
    budget_seconds: float = BUDGET_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float | None]:
    """The median time between two changes of each counter, in seconds, to within ``POLL_SECONDS``.

    ``None``: it moved less than three times within the budget, or cannot be read.
    """
    values = [read() for read in counters]
    watched = [index for index, value in enumerate(values) if value is not None]
    changes: list[list[float]] = [[] for _ in counters]
    end = clock() + budget_seconds
    while watched and (now := clock()) < end:
        if all(len(changes[index]) >= ENOUGH_CHANGES for index in watched):
            break
        for index in watched:
            value = counters[index]()
            if value is not None and value != values[index]:
                values[index] = value
                changes[index].append(now)
        sleep(POLL_SECONDS)
    return [_median_gap(times) for times in changes]


def _median_gap(times: Sequence[float]) -> float | None:
    if len(times) < 3:
        return None
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))
