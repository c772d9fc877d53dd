"""One sampler per node: reads every device of it at a steady pace, whoever uses them.

It is the only reader of the counters, so that engines which share a device share one truth.  Ticks go to
a bounded ring and are fetched in batches; where nobody fetches, the oldest are dropped and counted, which
loses resolution but no joules, since counters go on.  It imports neither Ray nor pyarrow nor pandas.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from evalray.telemetry.meters.base import DeviceKind, Meter, Reading
from evalray.telemetry.series import Batch, ClockPair, NodeInfo, Tick
from evalray.telemetry.update_period import BUDGET_SECONDS, infer_update_periods

DEFAULT_TICK_SECONDS = 0.1
#: Faster than this costs more than it shows.
SHORTEST_TICK_SECONDS = 0.05
#: Memory, clocks, temperature and throttle reasons are asked about once in this time.
SLOW_SECONDS = 1.0
#: Ticks kept for a reader that is late: 6 minutes of 8 devices at 10 Hz, some 10 MB.
RING_TICKS = 30_000


def read_clocks() -> ClockPair:
    """This machine's monotonic and wall clock at one instant."""
    before = time.monotonic()
    wall = time.time()
    return ClockPair((before + time.monotonic()) / 2, wall)


class NodeSampler:
    """Samples ``meters`` in a thread of its own, from :meth:`start` to :meth:`stop`.

    ``tick_seconds`` is how often; left ``None`` it is the GPUs' own update period, found by watching their
    counters for under a second, within 50 to 100 ms, else 100 ms.  One thread may fetch at a time.
    """

    def __init__(
        self,
        meters: Sequence[Meter],
        *,
        node_id: str,
        tick_seconds: float | None = None,
        ring_ticks: int = RING_TICKS,
        watch_seconds: float = BUDGET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        clocks: Callable[[], ClockPair] = read_clocks,
    ) -> None:
        self._meters = list(meters)
        self._clock, self._clocks = clock, clocks
        self._ring: deque[Tick] = deque(maxlen=ring_ticks)
        self._taken = 0
        self._handed_over = 0
        self._slow_at = [0.0] * len(self._meters)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._latest: list[Reading | None] = [None] * len(self._meters)
        if watch_seconds > 0:
            self._find_periods(watch_seconds)
        tick = tick_seconds if tick_seconds is not None else self._natural_tick()
        # Slow readings are spread over the devices, so that no tick has to ask for all of them.
        for index in range(len(self._meters)):
            self._slow_at[index] = clock() + SLOW_SECONDS * index / max(1, len(self._meters))
        self.node = NodeInfo(node_id, tuple(meter.info for meter in self._meters), tick, clocks())

    def start(self) -> None:
        """Begin to sample.  Without meters there is nothing to do, and no thread."""
        if self._meters and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="evalray-sampler", daemon=True)
            self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Take one last tick, end the thread and close the meters.  What is in the ring can still be fetched."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
            if self._thread.is_alive():
                return  # It hangs in a driver's call: closing under it could crash the process.
            self._thread = None
        for meter in self._meters:
            with contextlib.suppress(Exception):
                meter.close()

    def drain(self, limit: int = RING_TICKS) -> Batch:
        """Up to ``limit`` ticks, oldest first, which are then no longer here."""
        ticks: list[Tick] = []
        with contextlib.suppress(IndexError):
            while len(ticks) < limit:
                ticks.append(self._ring.popleft())
        self._handed_over += len(ticks)
        # In this order a tick that comes meanwhile is never taken for a dropped one.
        taken = self._taken
        dropped = max(0, taken - self._handed_over - len(self._ring))
        self._handed_over += dropped
        return Batch(ticks, self._clocks(), dropped)

    def latest(self) -> list[Reading | None]:
        """The last reading of each device, for a display; ``None`` before the first."""
        return list(self._latest)

    def tick(self) -> None:
        """Read every device once."""
        for index, meter in enumerate(self._meters):
            now = self._clock()
            slow = now >= self._slow_at[index]
            if slow:
                self._slow_at[index] = now + SLOW_SECONDS
            try:
                reading = meter.read(slow=slow)
            except Exception as error:  # noqa: BLE001 - one broken meter must not end the others
                reading = Reading(error=f"{type(error).__name__}: {error}"[:200])
            self._latest[index] = reading
            self._ring.append(Tick(index, now, *reading))
            self._taken += 1

    def _run(self) -> None:
        step = self.node.tick_seconds
        due = self._clock()
        while not self._stopping.is_set():
            self.tick()
            due = max(due + step, self._clock() - step)
            self._stopping.wait(max(0.0, due - self._clock()))
        self.tick()

    def _find_periods(self, budget_seconds: float) -> None:
        counting = [meter for meter in self._meters if meter.info.has_energy]
        periods = infer_update_periods(
            [meter.read_counter for meter in counting], budget_seconds=budget_seconds, clock=self._clock
        )
        for meter, period in zip(counting, periods, strict=True):
            meter.info = dataclasses.replace(meter.info, update_period_seconds=period)

    def _natural_tick(self) -> float:
        periods = [
            meter.info.update_period_seconds
            for meter in self._meters
            if meter.info.kind is DeviceKind.GPU and meter.info.update_period_seconds
        ]
        shortest = min(periods, default=DEFAULT_TICK_SECONDS)
        in_range = SHORTEST_TICK_SECONDS <= shortest <= DEFAULT_TICK_SECONDS
        return shortest if in_range else DEFAULT_TICK_SECONDS
