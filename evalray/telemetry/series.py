"""What a sampler records: ticks, the node they are of, and how its clocks relate.

A tick is a plain tuple with one device's reading; ticks travel in batches and are stored as columns under
the names in :data:`TICK_COLUMNS`.  Times are the node's monotonic clock, which no time server moves; pairs
of (monotonic, wall) say what they are in Unix time.  Nothing here is derived: windows and figures are
computed from this and can be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from evalray.telemetry.meters.base import TELEMETRY_VERSION, DeviceInfo, Reading
from evalray.telemetry.probe import ProbeResult


class Tick(NamedTuple):
    """One reading of one device.  The fields from ``energy_joules`` on are those of a reading."""

    device: int
    """Index in the node's ``devices``."""
    monotonic_seconds: float
    energy_joules: float | None
    power_watts: float | None
    utilization_pct: float | None
    memory_used_bytes: int | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_celsius: float | None
    throttle_reasons: int | None
    error: str | None


#: Columns of a stored time series, in a tick's order.
TICK_COLUMNS: tuple[str, ...] = Tick._fields

if Tick._fields[2:] != Reading._fields:
    raise AssertionError("a tick is a device, a time and a reading")


class ClockPair(NamedTuple):
    """The same instant on a node's two clocks, in seconds."""

    monotonic_seconds: float
    wall_seconds: float


@dataclass(slots=True, frozen=True)
class NodeInfo:
    """A node as its sampler describes it: constant while it runs."""

    node_id: str
    devices: tuple[DeviceInfo, ...]
    tick_seconds: float
    clock: ClockPair
    """At the start.  Each batch brings another pair, since wall clocks are moved."""
    notes: tuple[str, ...] = ()
    probes: Mapping[str, ProbeResult] = field(default_factory=dict)
    """What ``evalray hardware probe`` has measured there: by ``cpu``, ``cuda:0`` …"""
    telemetry_version: int = TELEMETRY_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and Parquet metadata."""
        return {
            "node_id": self.node_id,
            "devices": [device.to_dict() for device in self.devices],
            "tick_seconds": self.tick_seconds,
            "clock": list(self.clock),
            "notes": list(self.notes),
            "probes": {device: asdict(probe) for device, probe in self.probes.items()},
            "telemetry_version": self.telemetry_version,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NodeInfo:
        """The inverse of :meth:`to_dict`."""
        return cls(
            values["node_id"],
            tuple(DeviceInfo.from_dict(device) for device in values["devices"]),
            values["tick_seconds"],
            ClockPair(*values["clock"]),
            tuple(values.get("notes", ())),
            {device: ProbeResult(**probe) for device, probe in values.get("probes", {}).items()},
            values.get("telemetry_version", TELEMETRY_VERSION),
        )


@dataclass(slots=True)
class Batch:
    """What a sampler hands over at once."""

    ticks: list[Tick]
    clock: ClockPair
    """Taken when the batch was."""
    dropped: int = 0
    """Ticks lost since the last batch because nobody fetched them: the ring was full."""


def columns(ticks: Sequence[Tick]) -> dict[str, list[Any]]:
    """Ticks as columns, ready for ``pyarrow.table``."""
    if not ticks:
        return {name: [] for name in TICK_COLUMNS}
    return dict(zip(TICK_COLUMNS, map(list, zip(*ticks, strict=True)), strict=True))
