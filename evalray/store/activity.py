"""When a run was worked on: its active stretches, so that the time it lay interrupted is not counted.

A stretch opens with a line in ``activity.jsonl`` and closes with another.  One that never closed,
because its process was killed, lasted until the last line it journaled.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evalray.store.journal import VERSION, Journal, parse, read_lines, seal


class ActivityLog:
    """The writing end: one stretch open at a time."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._began: float | None = None

    def begin(self) -> None:
        """Open a stretch; nothing where one is open."""
        if self._began is None:
            self._began = time.monotonic()
            self._write({"event": "start", "at": time.time()})

    def end(self) -> None:
        """Close the open stretch, if any."""
        if self._began is not None:
            seconds, self._began = time.monotonic() - self._began, None
            self._write({"event": "end", "at": time.time(), "seconds": seconds})

    def record(self, started_at: float, ended_at: float) -> None:
        """Write a stretch that happened elsewhere, in Unix seconds.  Raises :class:`ValueError` within one."""
        if self._began is not None:
            raise ValueError("a stretch is open")
        self._write({"event": "start", "at": started_at})
        self._write({"event": "end", "at": ended_at, "seconds": ended_at - started_at})

    def _write(self, event: dict[str, Any]) -> None:
        self._journal.append(seal({"v": VERSION, **event}))
        self._journal.flush()

    def close(self) -> None:
        self._journal.close()


@dataclass(slots=True)
class _Stretch:
    start: float
    last_seen: float
    seconds: float | None = None
    planned: bool = False
    """Worked on samples that are in the plan."""
    others: bool = False
    """Worked on samples that are not: a smaller selection leaves out what an earlier one did."""
    first_seen: float | None = None
    """When its first line was journaled."""

    @property
    def length(self) -> float:
        """Seconds."""
        return self.last_seen - self.start if self.seconds is None else self.seconds


@dataclass(slots=True)
class Activity:
    """The stretches of a run.  Show it every journaled time, then read the totals."""

    _stretches: list[_Stretch] = field(default_factory=list)
    _starts: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Activity:
        activity = cls()
        for _, line in read_lines(path):
            event = parse(line) or {}
            at, kind = event.get("at"), event.get("event")
            if not isinstance(at, float | int):
                continue
            if kind == "start":
                # A clock set back between two processes must not undo the order of their stretches.
                activity._starts.append(max([at, *activity._starts[-1:]]))
                activity._stretches.append(_Stretch(at, at))
            elif kind == "end" and activity._stretches:
                seconds = event.get("seconds")
                activity._stretches[-1].seconds = float(seconds) if seconds is not None else None
                activity._stretches[-1].last_seen = at
        return activity

    def saw(self, at: float, planned: bool) -> None:
        """A line was journaled at this Unix time, of a sample that is or is not in the plan."""
        number = bisect_right(self._starts, at) - 1
        if number >= 0:
            stretch = self._stretches[number]
            stretch.planned |= planned
            stretch.others |= not planned
            stretch.first_seen = at if stretch.first_seen is None else min(at, stretch.first_seen)
            if stretch.seconds is None and at > stretch.last_seen:
                stretch.last_seen = at

    @property
    def started_at(self) -> float | None:
        return self._stretches[0].start if self._stretches else None

    @property
    def ended_at(self) -> float | None:
        return self._stretches[-1].last_seen if self._stretches else None

    @property
    def is_shared(self) -> bool:
        """Whether samples of the plan were worked on together with others, so that their time is not known."""
        return any(s.planned and s.others for s in self._stretches)

    def generation_seconds(self, sent: np.ndarray, completed: np.ndarray) -> float | None:
        """Sum over the stretches of the time from the first request sent to the last reply, in seconds.

        ``sent`` and ``completed`` are Unix seconds by request, NaN where not known.  What a judge or scorer
        took afterwards is not in it, nor a stretch that ended before its first reply.  ``None`` as
        :attr:`seconds`, or where no request has its times.
        """
        known = np.isfinite(sent) & np.isfinite(completed)
        if self.seconds is None or not known.any():
            return None
        sent, completed = sent[known], completed[known]
        stretch = np.searchsorted(np.asarray(self._starts), sent, side="right")
        spans = [
            float(completed[stretch == number].max() - sent[stretch == number].min())
            for number in np.unique(stretch)
        ]
        return max(0.0, sum(spans))

    @property
    def seconds(self) -> float | None:
        """Sum over the stretches, without those that worked on nothing of the plan.

        ``None`` where no other was recorded, or one is shared.
        """
        own = [s for s in self._stretches if s.planned or not s.others]
        if not own or self.is_shared:
            return None
        return sum(s.length for s in own)

    def wall_seconds(self, sent: np.ndarray) -> float | None:
        """:attr:`seconds`, each stretch from its first request sent on: before, it waited behind other runs.

        ``sent`` is in Unix seconds by request, NaN where not known.  A stretch of which no request is known to
        have been sent counts from its beginning; what was judged before the first request counts too.
        """
        if self.seconds is None:
            return None
        sent = np.sort(sent[np.isfinite(sent)])
        firsts = np.searchsorted(sent, np.asarray(self._starts))
        waited = 0.0
        for number, stretch in enumerate(self._stretches):
            end = firsts[number + 1] if number + 1 < len(firsts) else sent.size
            if (stretch.planned or not stretch.others) and firsts[number] < end:
                first = float(sent[firsts[number]])
                if stretch.first_seen is not None:
                    first = min(first, stretch.first_seen)
                waited += min(max(0.0, first - stretch.start), stretch.length)
        return self.seconds - waited
