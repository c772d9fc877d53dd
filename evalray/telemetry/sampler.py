"""One sampler per node: reads every device of it at a steady pace, whoever uses them.

It is the only reader of the counters, so that engines which share a device share one truth.  Energy that is
counted 50 ms late goes to the wrong request, so a counter is looked at a few times around its next update,
as often as a hundredth of a core allows, and a tick is stamped with the moment of the update.

Ticks go to a bounded ring and are fetched in batches; where nobody fetches, the oldest are dropped and
counted, which loses resolution but no joules, since counters go on.  No Ray, pyarrow or pandas in here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from evalray.telemetry.meters.base import DeviceKind, Meter, Reading
from evalray.telemetry.series import Batch, ClockPair, NodeInfo, Tick
from evalray.telemetry.update_period import BUDGET_SECONDS, observe_counters

DEFAULT_TICK_SECONDS = 0.1
#: Faster than this costs more than it shows.
SHORTEST_TICK_SECONDS = 0.05
#: Counters faster than this are read as they are: what they lag does not matter.
WATCHED_FROM_SECONDS = 0.008
#: Looks per update of a counter that moves about once a tick, and of a faster one.
LOOKS_PER_UPDATE = 10
LOOKS_PER_FAST_UPDATE = 4
FAST_SECONDS = 0.04
#: CPU share that looking may cost, the time of one look besides its reads, and the part of the time it takes.
WATCH_CPU_SHARE = 0.01
WAKE_SECONDS = 60e-6
LOOKING_SHARE = 0.6
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
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._look_seconds = 0.0
        self._states = [_State() for _ in self._meters]
        if watch_seconds > 0:
            self._observe(watch_seconds)
        tick = tick_seconds if tick_seconds is not None else self._natural_tick()
        # Slow readings are spread over the devices, so that no tick has to ask for all of them.
        for index, state in enumerate(self._states):
            state.wake = clock()
            state.slow_due = clock() + SLOW_SECONDS * index / max(1, len(self._states))
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
        return [state.latest for state in self._states]

    def step(self) -> float:
        """Attend to what is due; returns the seconds until there is something to do again."""
        for index, state in enumerate(self._states):
            now = self._clock()
            if now >= state.wake - 1e-6:
                state.wake = self._attend(index, state, now)
        wake = min((state.wake for state in self._states), default=0.0)
        return max(0.0, wake - self._clock())

    def _attend(self, index: int, state: _State, now: float) -> float:
        """Record the device, or look whether its counter has moved; returns when to do so again."""
        tick = self.node.tick_seconds
        if not state.watched:
            self._record(index, now, now, None)
            return state.wake + tick if state.wake > now - tick else now + tick
        look = self._look_seconds
        moved = self._has_moved(self._meters[index], state, now)
        if moved and now - state.looked_before < 2.5 * look:
            stamp = (now + state.looked_before) / 2
            self._record(index, now, stamp, state.counter)
            state.deadline = now + 1.5 * tick
            # Half a period before the next update that a tick should have, the looking begins.
            rest = max(tick, state.period) - state.period / 2
            return self._slot(max(stamp + rest, now + look))
        if now >= state.deadline:
            # No update came that could be timed: recorded all the same, so that a standing counter shows.
            self._record(index, now, now, None)
            state.deadline = now + tick
        return self._slot(now + look)

    def _slot(self, seconds: float) -> float:
        """The next common moment for looks, so that all devices share one waking."""
        return math.ceil(seconds / self._look_seconds - 1e-6) * self._look_seconds

    def tick(self) -> None:
        """Record every device now, whatever is due."""
        for index in range(len(self._meters)):
            now = self._clock()
            self._record(index, now, now, None)

    def _has_moved(self, meter: Meter, state: _State, now: float) -> bool:
        try:
            value = meter.read_counter()
        except Exception:  # noqa: BLE001 - the next full reading says what is wrong
            return False
        state.looked_before, state.looked = state.looked, now
        if value is None or value == state.counter:
            return False
        first, state.counter = state.counter is None, value
        return not first

    def _record(self, index: int, now: float, stamp: float, counter: float | None) -> None:
        state = self._states[index]
        slow = now >= state.slow_due
        if slow:
            state.slow_due = now + SLOW_SECONDS
        try:
            reading = self._meters[index].read(slow=slow)
        except Exception as error:  # noqa: BLE001 - one broken meter must not end the others
            reading = Reading(error=f"{type(error).__name__}: {error}"[:200])
        if counter is not None and reading.error is None:
            reading = reading._replace(energy_joules=counter)
        state.latest = reading
        self._ring.append(Tick(index, stamp, *reading))
        self._taken += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self.step())
        self.tick()

    def _observe(self, budget_seconds: float) -> None:
        """Find each counter's period, and how closely its updates can be watched."""
        counting = [index for index, meter in enumerate(self._meters) if meter.info.has_energy]
        observed = observe_counters(
            [self._meters[index].read_counter for index in counting],
            budget_seconds=budget_seconds,
            clock=self._clock,
        )
        watchable = [period for period in observed.periods if period and period >= WATCHED_FROM_SECONDS]
        if watchable:
            shortest = min(watchable)
            looks = LOOKS_PER_FAST_UPDATE if shortest < FAST_SECONDS else LOOKS_PER_UPDATE
            reads = len(watchable) * observed.read_seconds
            dearest = LOOKING_SHARE * (reads + WAKE_SECONDS) / WATCH_CPU_SHARE
            self._look_seconds = max(shortest / looks, dearest)
        for index, period in zip(counting, observed.periods, strict=True):
            state, meter = self._states[index], self._meters[index]
            state.period = period or 0.0
            state.watched = period is not None and period >= max(WATCHED_FROM_SECONDS, 2 * self._look_seconds)
            lag = 0.0 if state.watched or period is None else period / 2
            meter.info = dataclasses.replace(
                meter.info, update_period_seconds=period, counter_lag_seconds=lag
            )

    def _natural_tick(self) -> float:
        periods = [
            meter.info.update_period_seconds
            for meter in self._meters
            if meter.info.kind is DeviceKind.GPU and meter.info.update_period_seconds
        ]
        shortest = min(periods, default=DEFAULT_TICK_SECONDS)
        in_range = SHORTEST_TICK_SECONDS <= shortest <= DEFAULT_TICK_SECONDS
        return shortest if in_range else DEFAULT_TICK_SECONDS


@dataclasses.dataclass(slots=True)
class _State:
    """What the sampler remembers of one device."""

    watched: bool = False
    period: float = 0.0
    counter: float | None = None
    looked: float = 0.0
    looked_before: float = 0.0
    deadline: float = 0.0
    wake: float = 0.0
    slow_due: float = 0.0
    latest: Reading | None = None
