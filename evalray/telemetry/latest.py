"""The newest readings of the devices that are sampled, for whoever looks while a sweep runs.

Kept from the batches that monitors hand over, so nothing is measured for it.  The joules here are a running
sum of what can be told at once; those of record are worked out later, from all ticks and by the rules of
:mod:`evalray.telemetry.windows`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from evalray.telemetry.meters.base import DeviceInfo, EnergyMethod
from evalray.telemetry.series import Batch, NodeInfo, Tick
from evalray.telemetry.windows import LONGEST_POWER_GAP_SECONDS, PLAUSIBLE_OVER_LIMIT, UNKNOWN_PERIOD_SECONDS

#: A quantity that has not been read for so long is not told any more, nor is anything of a silent monitor.
KEPT_SECONDS = 15.0
#: What is kept of a reading.
QUANTITIES = ("power_watts", "utilization_pct", "memory_used_bytes", "temperature_celsius")
_COUNTED = frozenset({EnergyMethod.HW_COUNTER, EnergyMethod.RAPL})


@dataclass(slots=True)
class LatestReading:
    """One device.  One thread writes; others may look at any time."""

    node_id: str
    info: DeviceInfo
    energy_joules: float | None = None
    """Used since it is sampled; ``None`` where it has no meter."""
    arrived_at: float = 0.0
    """When the last batch came, by the clock of who keeps it."""
    _seen_at: float = field(default=0.0, init=False)
    """Time of the last tick, on the node's monotonic clock."""
    _values: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    """Value and time by quantity."""
    _energy: tuple[float, float] | None = field(default=None, init=False)
    """Time of the last reading that energy is told from, and the counter or power then."""

    def value(self, quantity: str, now: float) -> float | None:
        """One of :data:`QUANTITIES` at ``now``; ``None`` where it is not given, or not any more."""
        value, at = self._values.get(quantity, (None, 0.0))
        is_old = now - self.arrived_at > KEPT_SECONDS or self._seen_at - at > KEPT_SECONDS
        return None if is_old else value

    def add(self, tick: Tick, arrived_at: float) -> None:
        """Take a tick in; one older than those before says nothing new."""
        if tick.monotonic_seconds <= self._seen_at:
            return
        self._seen_at, self.arrived_at = tick.monotonic_seconds, arrived_at
        if tick.error is not None:
            self._values = {}
        for quantity in QUANTITIES:
            value = getattr(tick, quantity)
            if value is not None and value >= 0 and value <= self._most(quantity):
                self._values[quantity] = (float(value), tick.monotonic_seconds)
        self._add_energy(tick)

    def _most(self, quantity: str) -> float:
        """Beyond this a reading is none."""
        most = {"power_watts": PLAUSIBLE_OVER_LIMIT * self.info.most_watts, "utilization_pct": 100.0}
        return most.get(quantity, math.inf)

    def _add_energy(self, tick: Tick) -> None:
        if not self.info.has_energy:
            return
        counts = self.info.energy_method in _COUNTED
        level = tick.energy_joules if counts else tick.power_watts
        if level is None:
            return
        before, self._energy = self._energy, (tick.monotonic_seconds, level)
        used = 0.0
        if before is not None:
            seconds = tick.monotonic_seconds - before[0]
            joules = level - before[1] if counts else (level + before[1]) / 2 * seconds
            used = joules if self._is_plausible(joules, seconds, counts=counts) else 0.0
        self.energy_joules = (self.energy_joules or 0.0) + used

    def _is_plausible(self, joules: float, seconds: float, *, counts: bool) -> bool:
        if joules < 0 or (not counts and seconds > LONGEST_POWER_GAP_SECONDS):
            return False
        slack = self.info.update_period_seconds or UNKNOWN_PERIOD_SECONDS
        return joules <= PLAUSIBLE_OVER_LIMIT * self.info.most_watts * (seconds + slack)


class LatestReadings:
    """The devices of all nodes; ``devices`` is the list they are kept in.  Thread-safe."""

    def __init__(
        self, devices: list[LatestReading] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.devices: list[LatestReading] = [] if devices is None else devices
        self._found: dict[tuple[str, str], LatestReading] = {}
        self._clock = clock
        self._lock = threading.Lock()

    def add(self, node: NodeInfo, batch: Batch) -> None:
        """Take a batch of a node in, whichever of its monitors it is from."""
        now = self._clock()
        with self._lock:
            own = [self._device(node.node_id, info) for info in node.devices]
            for tick in batch.ticks:
                own[tick.device].add(tick, now)

    def _device(self, node_id: str, info: DeviceInfo) -> LatestReading:
        key = (node_id, info.device_id)
        if key not in self._found:
            self._found[key] = LatestReading(node_id, info)
            self.devices.append(self._found[key])
        return self._found[key]
