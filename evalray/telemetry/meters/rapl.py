"""Processor packages and their memory through RAPL, as Linux shows it under ``/sys/class/powercap``.

The counter wraps at ``max_energy_range_uj`` (some 20 minutes under load), so it is unwrapped here and
must be read at least once a second.  On current kernels only root may read it; what cannot be read is
``None``, with how to allow it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from evalray.telemetry.meters.base import DeviceInfo, DeviceKind, EnergyMethod, EnergyScope, Meter, Reading
from evalray.telemetry.meters.null import NullMeter

POWERCAP_ROOT = Path("/sys/class/powercap")
ROOT_VARIABLE = "EVALRAY_POWERCAP_ROOT"
_ZONE = re.compile(r"intel-rapl:(\d+)(?::(\d+))?")
_PACKAGE = re.compile(r"package-(\d+)(?:-die-\d+)?")
#: A package above this is taken for a counter gone wrong where the kernel gives no limit.
_PLAUSIBLE_WATTS = 2000.0


def powercap_root() -> Path:
    """Where the zones are; the environment may say otherwise."""
    return Path(os.environ.get(ROOT_VARIABLE) or POWERCAP_ROOT)


def rapl_meters(root: Path | None = None) -> list[Meter]:
    """One meter for each package and each package's DRAM, readable or not; none where there is no RAPL.

    ``core`` and ``uncore`` are parts of their package and ``psys`` holds the packages, so neither is taken.
    """
    root = root or powercap_root()
    meters: list[Meter] = []
    try:
        zones = sorted(
            (path for path in root.iterdir() if _ZONE.fullmatch(path.name)),
            key=lambda path: [int(part) for part in path.name.split(":")[1:]],
        )
    except OSError:
        return meters
    packages = {zone.name: _text(zone / "name") for zone in zones if zone.name.count(":") == 1}
    for zone in zones:
        name = _text(zone / "name")
        owner = packages.get(zone.name.rsplit(":", 1)[0], "") if name == "dram" else name
        if _PACKAGE.fullmatch(owner):
            kind = DeviceKind.DRAM if name == "dram" else DeviceKind.CPU
            label = owner if kind is DeviceKind.CPU else f"{owner}:dram"
            meters.append(_meter(zone, label, kind, len(meters)))
    return meters


def _meter(zone: Path, label: str, kind: DeviceKind, index: int) -> Meter:
    device_id = f"rapl:{label}"
    try:
        wrap = int(_read(zone / "max_energy_range_uj"))
        return RaplMeter(zone, wrap, device_id, label, kind, index)
    except PermissionError:
        reason = (
            f"{zone / 'energy_uj'} may not be read by this user; to allow it: "
            f"sudo chmod a+r {zone.parent}/intel-rapl:*/energy_uj (until the next boot)"
        )
    except (OSError, ValueError) as error:
        reason = f"RAPL zone {zone} cannot be read: {error}"
    return NullMeter(device_id, kind, label, index, reason)


class RaplMeter(Meter):
    """One RAPL zone."""

    def __init__(
        self, zone: Path, wrap_microjoules: int, device_id: str, label: str, kind: DeviceKind, index: int
    ) -> None:
        """Raises ``OSError`` where the counter may not be read, ``ValueError`` where it holds no number."""
        self._file = os.open(zone / "energy_uj", os.O_RDONLY)
        try:
            self._last = self._raw()
        except (OSError, ValueError):
            os.close(self._file)
            raise
        self._wrap = wrap_microjoules
        self._turns = 0
        self.info = DeviceInfo(
            device_id,
            kind,
            label,
            index,
            EnergyMethod.RAPL,
            EnergyScope.PACKAGE,
            power_limit_watts=_limit_watts(zone) or _PLAUSIBLE_WATTS,
            counter_range_joules=wrap_microjoules / 1e6,
        )

    def read(self, *, slow: bool) -> Reading:
        try:
            return Reading(energy_joules=self._joules())
        except (OSError, ValueError) as error:
            return Reading(error=f"RAPL: {error}")

    def read_counter(self) -> float | None:
        try:
            return self._joules()
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _joules(self) -> float:
        raw = self._raw()
        if raw < self._last:
            self._turns += 1
        self._last = raw
        return (raw + self._turns * self._wrap) / 1e6

    def _raw(self) -> int:
        return int(os.pread(self._file, 32, 0))


def _limit_watts(zone: Path) -> float | None:
    """The highest of the zone's power limits: a short burst may go up to it."""
    limits = []
    for path in zone.glob("constraint_*_power_limit_uw"):
        try:
            limits.append(int(_read(path)) / 1e6)
        except (OSError, ValueError):
            continue
    # A limit that was never set is shown as 0 or as an absurd number.
    plausible = [limit for limit in limits if 0 < limit <= _PLAUSIBLE_WATTS]
    return max(plausible, default=None)


def _read(path: Path) -> str:
    return path.read_text().strip()


def _text(path: Path) -> str:
    try:
        return _read(path)
    except OSError:
        return ""
