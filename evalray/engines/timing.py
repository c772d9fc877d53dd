"""Statistics of the gaps between a reply's tokens, in bounded memory.

Mean and maximum are exact.  Percentiles are exact up to ``LIMIT`` gaps; beyond that every second
kept gap is dropped and only every 2nd, 4th, 8th … new one is kept, which samples the whole reply
evenly and gives the same figures each time.
"""

from __future__ import annotations

LIMIT = 4096


class GapRecorder:
    """Takes gaps in seconds, one call each; see the module."""

    __slots__ = ("_kept", "_stride", "count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0
        self._kept: list[float] = []
        self._stride = 1

    def add(self, gap_seconds: float) -> None:
        if self.count % self._stride == 0:
            self._kept.append(gap_seconds)
            if len(self._kept) >= LIMIT:
                del self._kept[1::2]
                self._stride *= 2
        self.count += 1
        self.total += gap_seconds
        if gap_seconds > self.maximum:
            self.maximum = gap_seconds

    def percentiles(self, *fractions: float) -> list[float]:
        """Interpolated at ``(n - 1) * p`` over the kept gaps; needs at least one."""
        ordered = sorted(self._kept)
        last = len(ordered) - 1
        values = []
        for fraction in fractions:
            position = last * fraction
            low = int(position)
            high = min(low + 1, last)
            values.append(ordered[low] + (ordered[high] - ordered[low]) * (position - low))
        return values
