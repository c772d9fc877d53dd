"""The meter of what cannot be measured: it is read like any other and gives nothing."""

from __future__ import annotations

from evalray.telemetry.meters.base import DeviceInfo, DeviceKind, EnergyMethod, Meter, Reading

_NOTHING = Reading()


class NullMeter(Meter):
    """A device of which nothing can be read, and why."""

    def __init__(self, device_id: str, kind: DeviceKind, name: str, index: int, reason: str) -> None:
        self.info = DeviceInfo(device_id, kind, name, index, EnergyMethod.NONE, None, reason)

    def read(self, *, slow: bool) -> Reading:
        return _NOTHING
