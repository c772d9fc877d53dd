"""Walks stretches of work over windows of time, block by block, in bounded memory.

Windows are taken in blocks.  A stretch that covers a whole block needs no entry per window: its rate is
linear, so two sums over the block serve all of them.  The others are laid out as (stretch, window) pairs.
Every sum is over amounts of one block and never the difference of two large totals, so joules add up to the
last digits however long the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

#: Windows in a block.  More means longer lists of pairs, fewer more steps.
BLOCK_WINDOWS = 256


@dataclass(slots=True)
class Block:
    """Windows ``first`` to ``last`` (exclusive) and the stretches that touch them.

    ``whole`` covers all of them.  Pair p is stretch ``stretch[p] == partial[owner[p]]`` in window
    ``first + window[p]``, for ``width[p]`` seconds around ``middle[p]``.
    """

    first: int
    last: int
    whole: Index
    partial: Index
    owner: Index
    window: Index
    stretch: Index
    width: Floats
    middle: Floats


def walk(
    starts: Floats,
    ends: Floats,
    stretch_start: Floats,
    stretch_end: Floats,
    block_windows: int = BLOCK_WINDOWS,
) -> Iterator[Block]:
    """Blocks of the windows ``starts`` to ``ends`` (ascending, not overlapping), in order of time.

    ``stretch_start`` must be ascending.
    """
    active: Index = np.zeros(0, np.intp)
    position = 0
    for first in range(0, len(starts), block_windows):
        last = min(first + block_windows, len(starts))
        begin, finish = starts[first], ends[last - 1]
        arrived = int(np.searchsorted(stretch_start, finish, "left"))
        active = np.concatenate((active, np.arange(position, arrived)))
        position = arrived
        active = active[stretch_end[active] > begin]
        covers = (stretch_start[active] <= begin) & (stretch_end[active] >= finish)
        whole, partial = active[covers], active[~covers]
        yield Block(
            first,
            last,
            whole,
            partial,
            *_pairs(starts, ends, first, last, stretch_start, stretch_end, partial),
        )


def _pairs(
    starts: Floats,
    ends: Floats,
    first: int,
    last: int,
    stretch_start: Floats,
    stretch_end: Floats,
    partial: Index,
) -> tuple[Index, Index, Index, Floats, Floats]:
    own_starts, own_ends = starts[first:last], ends[first:last]
    begin, finish = stretch_start[partial], stretch_end[partial]
    low_window = np.searchsorted(own_ends, begin, "right")
    high_window = np.searchsorted(own_starts, finish, "left")
    counts = np.maximum(high_window - low_window, 0)
    owner = np.repeat(np.arange(len(partial)), counts)
    before = np.cumsum(counts) - counts
    window = np.arange(len(owner)) - np.repeat(before - low_window, counts)
    low = np.maximum(own_starts[window], begin[owner])
    high = np.minimum(own_ends[window], finish[owner])
    return owner, window, partial[owner], high - low, (low + high) / 2


@dataclass(slots=True)
class Rates:
    """Amounts per second of all stretches: ``rate`` at ``start``, growing by ``slope`` per second, if it does."""

    start: Floats
    rate: Floats
    slope: Floats | None = None

    def in_pairs(self, block: Block) -> Floats:
        """The amount of each pair."""
        rate = self.rate[block.stretch]
        if self.slope is not None:
            rate = rate + self.slope[block.stretch] * (block.middle - self.start[block.stretch])
        return block.width * rate

    def at(self, stretch: Index, seconds: float) -> tuple[Floats, Floats]:
        """Rates of ``stretch`` at an instant, and their growth."""
        rate = self.rate[stretch]
        if self.slope is None:
            return rate, np.zeros(len(stretch))
        return rate + self.slope[stretch] * (seconds - self.start[stretch]), self.slope[stretch]

    def per_window(self, block: Block, starts: Floats, ends: Floats, pairs: Floats | None = None) -> Floats:
        """The amount of all stretches together in each of the block's windows."""
        begin = starts[block.first : block.last]
        span = ends[block.first : block.last] - begin
        pairs = self.in_pairs(block) if pairs is None else pairs
        amounts = np.bincount(block.window, pairs, block.last - block.first)
        if len(block.whole):
            middle = begin + span / 2 - begin[0]
            level, growth = self.at(block.whole, float(begin[0]))
            amounts = amounts + span * (level.sum() + growth.sum() * middle)
        return np.asarray(amounts, np.float64)


def window_sums(starts: Floats, ends: Floats, stretch_end: Floats, quantities: list[Rates]) -> list[Floats]:
    """Each quantity's amount per window.  All have the same stretches, in ascending order of start."""
    totals = [np.zeros(len(starts)) for _ in quantities]
    for block in walk(starts, ends, quantities[0].start, stretch_end):
        for total, quantity in zip(totals, quantities, strict=True):
            total[block.first : block.last] = quantity.per_window(block, starts, ends)
    return totals
