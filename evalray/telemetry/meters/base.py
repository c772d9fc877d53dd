"""What a meter is: one physical device, and what can be read of it.

Each vendor has a file of its own and all are read alike, so nothing above asks which vendor it is.
Every quantity a device does not give is ``None``, never 0; a device without energy stays in the series
with the reason, so that a missing joule is explained and not guessed.
"""

from __future__ import annotations

import abc
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

#: Version of how energy is measured and attributed; on every figure.  Raised whenever one of them changes
#: its meaning, so that figures of two versions are never compared unawares.
TELEMETRY_VERSION = 1


#: More watts than any one device draws: a limit above is none, and a reading above no measurement.
MOST_WATTS = 5000.0


class EnergyMethod(StrEnum):
    """How joules come about."""

    HW_COUNTER = "hw_counter"
    """Differences of the device's own energy counter."""
    INTEGRATED_POWER = "integrated_power"
    """Trapezoid over polled power: the device has no counter."""
    RAPL = "rapl"
    """Differences of the processor's RAPL counter (Linux powercap)."""
    ESTIMATE = "estimate"
    """TDP x utilisation.  Only when asked for."""
    NONE = "none"
    """Not measured."""


class EnergyScope(StrEnum):
    """What the joules are of."""

    GPU = "gpu"
    """One accelerator board as its driver counts devices."""
    MODULE = "module"
    """A whole module, CPU included (Grace-Hopper, Apple and Jetson systems-on-chip)."""
    PACKAGE = "package"
    """A processor package, or its memory."""


class DeviceKind(StrEnum):
    GPU = "gpu"
    CPU = "cpu"
    DRAM = "dram"
    SOC = "soc"


@dataclass(slots=True, frozen=True)
class DeviceInfo:
    """What does not change about a device.

    ``device_id`` is unique on its node and survives a restart: the UUID of a GPU, ``rapl:package-0``.
    """

    device_id: str
    kind: DeviceKind
    name: str
    index: int
    """Position among the node's devices of its vendor, in the driver's order."""
    energy_method: EnergyMethod
    energy_scope: EnergyScope | None
    """``None`` where nothing is measured."""
    reason: str = ""
    """Why there is no energy, or what limits it, in one line with what to do."""
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    power_scope: EnergyScope | None = None
    power_is_average: bool = False
    """Whether the driver's power is a running mean (1 s on NVIDIA) and lags short phases."""
    update_period_seconds: float | None = None
    """How often the counter moves, as observed at start; ``None`` where it was not seen to move."""
    counter_lag_seconds: float = 0.0
    """How old the counter is on average when it is read: half its period, unless its updates are watched."""
    counter_range_joules: float | None = None
    """Where the counter begins at 0 again; ``None`` where it does not in practice."""
    sliced: bool = False
    """Whether it is cut up (MIG), so that an engine sees only a part of it."""
    telemetry_version: int = TELEMETRY_VERSION

    @property
    def most_watts(self) -> float:
        """What it can draw at most: its power limit where it has one that can be."""
        limit = self.power_limit_watts
        return limit if limit is not None and 0 < limit <= MOST_WATTS else MOST_WATTS

    @property
    def has_energy(self) -> bool:
        return self.energy_method is not EnergyMethod.NONE

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and Parquet metadata."""
        return {
            key: str(value) if isinstance(value, StrEnum) else value for key, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DeviceInfo:
        """The inverse of :meth:`to_dict`; keys it does not know are ignored."""
        known = {key: value for key, value in values.items() if key in cls.__slots__}
        for key, kind in (("energy_scope", EnergyScope), ("power_scope", EnergyScope)):
            known[key] = kind(known[key]) if known.get(key) else None
        known["kind"] = DeviceKind(known["kind"])
        known["energy_method"] = EnergyMethod(known["energy_method"])
        return cls(**known)


class Reading(NamedTuple):
    """One look at a device.  ``None``: not given, or not read this time."""

    energy_joules: float | None = None
    """The counter, from an arbitrary start.  Only differences mean something."""
    power_watts: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: int | None = None
    """Bits as NVML defines them (``nvmlClocksEventReason*``)."""
    error: str | None = None
    """The driver's error code where the device could not be read at all, e.g. ``GPU_IS_LOST``."""


class Meter(abc.ABC):
    """Reads one device.  Not thread-safe: one sampler owns it."""

    info: DeviceInfo

    @abc.abstractmethod
    def read(self, *, slow: bool) -> Reading:
        """Energy, power and utilisation; with ``slow`` also what changes slowly or is dear to ask.

        Never raises: what fails is ``None``, and a device that is gone says so in ``error``.
        """

    def read_counter(self) -> float | None:
        """The energy counter alone, in joules, for finding its update period.  ``None``: there is none."""
        return None

    def close(self) -> None:  # noqa: B027 - most meters hold nothing
        """Give the device back.  The meter is not read after this."""
