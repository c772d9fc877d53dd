"""Where a run's time axis is broken: a sweep that was continued hours later is not drawn over those hours.

The axis is of the time in which the run was asked something.  A pause between two of its parts that would be a
good share of it is cut out and kept beside the axis, with its place and its length; shorter ones are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

#: A pause is cut out from this share of the time in which the run was asked something, and these seconds.
_CUT_SHARE, _CUT_SECONDS = 0.1, 5.0


@dataclass(slots=True, frozen=True)
class Pause:
    """Time that was cut out."""

    at: float
    """Where, in seconds on the axis."""
    seconds: float
    """From the last request before it to the first after it."""
    cut_seconds: float
    """How much of that is not on the axis."""


@dataclass(slots=True, frozen=True)
class Place:
    """Where on the axis a part of the run is: what is left of its time, moved by ``shift`` there."""

    shift: float
    low: float
    high: float
    """What is outside of ``low`` to ``high``, on the axis, is of a pause."""


def broken_axis(
    spans: Sequence[tuple[float, float]], shifts: Sequence[float], margin: tuple[float, float, float]
) -> tuple[list[Place], tuple[Pause, ...]]:
    """A place for each part, of which ``spans`` has the time in true seconds and ``shifts`` the way from its
    own clock there, and the pauses that were cut out.

    ``margin`` is how much is shown beside a span: as a share of all, at least and at most in seconds.
    """
    order = sorted(range(len(spans)), key=lambda number: spans[number])
    busy = _union(sorted(spans))
    beside = min(max(busy * margin[0], margin[1]), margin[2])
    least = max(_CUT_SECONDS, _CUT_SHARE * busy)
    places: list[Place] = [Place(shift, -float("inf"), float("inf")) for shift in shifts]
    pauses: list[Pause] = []
    removed, until, low = 0.0, spans[order[0]][1], -float("inf")
    members: list[list[int]] = [[]]
    for number in order:
        start, end = spans[number]
        if start - until > least:
            low = until - removed + beside
            for member in members[-1]:
                places[member] = replace(places[member], high=low)
            cut = start - until - 2 * beside
            pauses.append(Pause(low, start - until, cut))
            removed += cut
            members.append([])
        members[-1].append(number)
        places[number] = Place(shifts[number] - removed, low, float("inf"))
        until = max(until, end)
    return places, tuple(pauses)


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that at least one of the sorted ``spans`` covers."""
    total, until = 0.0, -float("inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
