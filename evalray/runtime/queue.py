"""Who works on what: the shared queue of one pool of replicas, as plain bookkeeping.

Knows nothing of Ray, engines or benchmarks.  A source is pulled only when a replica has room, so
that memory is bounded by the in-flight limits.  Every item that was handed out is *held* by exactly
one replica until it is completed, returned, or the replica is lost.

A loss that a record may have caused makes everything that replica held a suspect.  Suspects are
tried alone, one per replica at a time; one whose replica dies again while it is alone there is
convicted and never handed out again.  Everything else survives.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from evalray.types import GenerationRequest

#: Items handed out at once.  32 is where a Ray call's fixed cost stops mattering.
MICRO_BATCH = 32


@dataclass(slots=True, eq=False)
class WorkItem:
    """One request and whatever its owner needs to know it by (``tag``)."""

    request: GenerationRequest
    tag: Any = None
    dispatches: int = 0
    """How often it was handed to a replica, this time included."""
    kills: int = 0
    """Replicas that died while they held it and may have died of it."""


class WorkSource(Protocol):
    """Where new items come from; asked only when a replica has room."""

    def take(self, limit: int) -> list[WorkItem]:
        """Up to ``limit`` items; fewer, or none, when there are none right now."""
        ...

    def remaining(self) -> int | None:
        """How many are still to come; ``None`` when nobody knows yet."""
        ...

    def exhausted(self) -> bool:
        """Whether :meth:`take` will never again return anything."""
        ...


def prefetch_for(limit: int) -> int:
    """Items a replica holds above its in-flight limit, so that a freed slot never waits for the driver.

    Held items are what one kill may cost: never more than 2.5 times the limit.
    """
    return max(1, min(max(4, limit // 2), 256, limit * 3 // 2))


@dataclass(slots=True)
class _Lane:
    """One live replica, as the queue sees it."""

    limit: int
    held: dict[str, WorkItem] = field(default_factory=dict)
    on_trial: bool = False
    """Holds one suspect, alone."""

    @property
    def capacity(self) -> int:
        return self.limit + prefetch_for(self.limit)


class WorkQueue:
    """The items of one pool: waiting, suspected, held."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._returned: deque[WorkItem] = deque()
        self._suspects: deque[WorkItem] = deque()
        self._lanes: dict[str, _Lane] = {}
        self._expected: set[str] = set()
        self._ward: str | None = None
        """The replica set aside for suspects while others still have innocent work."""
        self.closed = False

    # -- replicas ---------------------------------------------------------------------------

    def expect(self, replica: str) -> None:
        """It is starting: of the last items some are left for it."""
        self._expected.add(replica)

    def expect_no_more(self, replica: str) -> None:
        """It has started, or will not."""
        self._expected.discard(replica)

    def add_replica(self, replica: str, limit: int) -> None:
        self._lanes[replica] = _Lane(limit)

    def resize(self, replica: str, limit: int) -> None:
        """What a replica takes at once has changed; what it holds already stays its."""
        lane = self._lanes.get(replica)
        if lane is not None:
            lane.limit = limit

    def lose_replica(self, replica: str, *, blame: bool) -> list[WorkItem]:
        """Take back what a lost replica held.

        ``blame`` says that one of its records may have killed it.  Returns the convicted items;
        the others wait for another replica.
        """
        lane = self._lanes.pop(replica, None)
        if self._ward == replica:
            self._ward = None
        if lane is None:
            return []
        convicted = []
        for item in lane.held.values():
            if blame:
                item.kills += 1
            if item.kills >= 2 and lane.on_trial and blame:
                convicted.append(item)
            elif item.kills:
                self._suspects.append(item)
            else:
                self._returned.append(item)
        return convicted

    # -- items ------------------------------------------------------------------------------

    def grant(self, replica: str) -> list[WorkItem]:
        """What this replica should be given now: up to one micro-batch, possibly nothing."""
        lane = self._lanes.get(replica)
        if lane is None or self.closed or lane.on_trial:
            return []
        if self._suspects and self._is_ward(replica):
            return self._put_on_trial(lane)
        items = self._innocent(lane)
        if not items and not lane.held and self._suspects:
            return self._put_on_trial(lane)
        return self._hand_out(lane, items)

    def complete(self, replica: str, request_id: str) -> WorkItem | None:
        """Mark one item as done; ``None`` if this replica does not hold it (an answer come twice)."""
        lane = self._lanes.get(replica)
        if lane is None:
            return None
        item = lane.held.pop(request_id, None)
        if item is not None:
            lane.on_trial = False
        return item

    def give_back(self, replica: str, request_ids: Iterable[str]) -> None:
        """Items a replica had not begun return to the queue."""
        lane = self._lanes.get(replica)
        if lane is None:
            return
        for request_id in request_ids:
            item = lane.held.pop(request_id, None)
            if item is None:
                continue
            lane.on_trial = False
            (self._suspects if item.kills else self._returned).append(item)

    def close(self) -> None:
        """Hand out nothing more; what is held may still complete."""
        self.closed = True

    def held(self, replica: str) -> int:
        lane = self._lanes.get(replica)
        return len(lane.held) if lane else 0

    def held_items(self, replica: str) -> list[WorkItem]:
        lane = self._lanes.get(replica)
        return list(lane.held.values()) if lane else []

    @property
    def total_held(self) -> int:
        return sum(len(lane.held) for lane in self._lanes.values())

    def has_waiting(self) -> bool:
        """Whether something could be granted now or later."""
        return bool(self._returned or self._suspects) or not self._source.exhausted()

    def idle(self) -> bool:
        """Nothing held, and nothing more to hand out."""
        return self.total_held == 0 and (self.closed or not self.has_waiting())

    # -- inside -----------------------------------------------------------------------------

    def _innocent(self, lane: _Lane) -> list[WorkItem]:
        room = min(MICRO_BATCH, lane.capacity - len(lane.held), self._fair_share(lane) - len(lane.held))
        if room <= 0:
            return []
        items = [self._returned.popleft() for _ in range(min(room, len(self._returned)))]
        if len(items) < room:
            items += self._source.take(room - len(items))
        return items

    def _fair_share(self, lane: _Lane) -> int:
        """What one replica may hold so that the last items are spread over all, by their limits.

        One that is starting counts as another of ``lane``'s kind, but keeps no slot of it empty.
        """
        remaining = self._source.remaining()
        if remaining is None:
            return lane.capacity
        sharing = [each for each in self._lanes.values() if not each.on_trial]
        total = remaining + len(self._returned) + sum(len(each.held) for each in sharing)
        limits = sum(each.limit for each in sharing)
        share = math.ceil(total * lane.limit / (limits + len(self._expected) * lane.limit))
        return max(share, min(lane.limit, math.ceil(total * lane.limit / limits)))

    def _is_ward(self, replica: str) -> bool:
        if len(self._lanes) < 2:
            return False
        if self._ward is None:
            self._ward = replica
        return self._ward == replica

    def _put_on_trial(self, lane: _Lane) -> list[WorkItem]:
        if lane.held:
            return []
        lane.on_trial = True
        items = self._hand_out(lane, [self._suspects.popleft()])
        if not self._suspects:
            self._ward = None
        return items

    @staticmethod
    def _hand_out(lane: _Lane, items: list[WorkItem]) -> list[WorkItem]:
        for item in items:
            item.dispatches += 1
            lane.held[item.request.request_id] = item
        return items
