"""AMD GPUs, Apple silicon and Jetson through the device layer of the ``zeus`` package (an optional extra).

A thin adapter: zeus knows the vendors' interfaces (amdsmi's counter resolution, the chiplets of an MI250X),
this file turns what it gives into readings.  An energy counter is believed only after it has been seen to
agree with power within a factor of ten over half a second; several AMD models freeze theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from evalray.telemetry.meters.base import DeviceInfo, DeviceKind, EnergyMethod, EnergyScope, Meter, Reading
from evalray.telemetry.meters.null import NullMeter

VALIDATION_SECONDS = 0.5
_AGREEMENT = (0.1, 10.0)

#: Rail, its kind, and zeus's names for it (Apple silicon, Jetson).
_SOC_RAILS = (
    ("cpu", DeviceKind.CPU, ("cpu_total_mj", "cpu_energy_mj")),
    ("gpu", DeviceKind.GPU, ("gpu_mj", "gpu_energy_mj")),
    ("dram", DeviceKind.DRAM, ("dram_mj",)),
    ("total", DeviceKind.SOC, ("total_energy_mj",)),
)


def zeus_meters() -> list[Meter]:
    """Meters for what zeus finds besides NVIDIA GPUs, which are read directly; none without zeus."""
    if find_spec("zeus") is None:
        return []
    return [*_amd_meters(), *_soc_meters()]


def counter_agrees(joules: float, watts: float | None, seconds: float) -> bool:
    """Whether a counter's step is of the order of power x time.  A counter that stands does not agree."""
    if not joules > 0:
        return False
    if not watts:
        return True
    low, high = _AGREEMENT
    return low < joules / (watts * seconds) < high


def _amd_meters() -> list[Meter]:
    try:
        vendor: Any = import_module("zeus.device.gpu")
        found = list(vendor.AMDGPUs().gpus) if vendor.amdsmi_is_available() else []
    except Exception as error:  # noqa: BLE001 - a vendor's library may raise anything while it looks around
        reason = f"AMD GPUs cannot be read through zeus: {error}"
        return [NullMeter("amd:unknown", DeviceKind.GPU, "AMD GPU", 0, reason)]
    before = [_guarded(gpu.get_total_energy_consumption) for gpu in found]
    started = time.monotonic()
    if found:
        time.sleep(VALIDATION_SECONDS)
    meters: list[Meter] = []
    for index, (gpu, first) in enumerate(zip(found, before, strict=True)):
        seconds = time.monotonic() - started
        last, power = _guarded(gpu.get_total_energy_consumption), _amd_power(gpu)
        trusted = (
            first is not None
            and last is not None
            and counter_agrees((last - first) / 1e3, None if power is None else power / 1e3, seconds)
        )
        meters.append(AmdMeter(gpu, index, trusted=trusted, has_power=bool(power)))
    return meters


class AmdMeter(Meter):
    """One AMD GPU, in HIP's order."""

    def __init__(self, gpu: Any, index: int, *, trusted: bool, has_power: bool) -> None:
        self._gpu = gpu
        self._trusted = trusted
        method = EnergyMethod.HW_COUNTER if trusted else EnergyMethod.INTEGRATED_POWER
        reason = "" if trusted else "its energy counter stands still or disagrees with its power"
        if not trusted and not has_power:
            method = EnergyMethod.NONE
            reason += "; power cannot be read either (the second die of an MI250X is counted with the first)"
        scope = None if method is EnergyMethod.NONE else EnergyScope.GPU
        name = _guarded(gpu.get_name) or "AMD GPU"
        limit = _guarded(gpu.get_power_management_limit)
        self.info = DeviceInfo(
            f"amd:{index}",
            DeviceKind.GPU,
            str(name),
            index,
            method,
            scope,
            reason,
            power_limit_watts=limit / 1e3 if limit else None,
            power_scope=scope,
        )

    def read(self, *, slow: bool) -> Reading:
        power = _amd_power(self._gpu)
        temperature = _guarded(self._gpu.get_gpu_temperature) if slow else None
        return Reading(
            energy_joules=self.read_counter(),
            power_watts=None if power is None else power / 1e3,
            temperature_celsius=temperature,
        )

    def read_counter(self) -> float | None:
        millijoules = _guarded(self._gpu.get_total_energy_consumption) if self._trusted else None
        return None if millijoules is None else millijoules / 1e3


def _amd_power(gpu: Any) -> float | None:
    for query in (gpu.get_instant_power_usage, gpu.get_average_power_usage):
        if (milliwatts := _guarded(query)) is not None:
            return float(milliwatts)
    return None


def _soc_meters() -> list[Meter]:
    try:
        vendor: Any = import_module("zeus.device.soc")
        soc = vendor.get_soc()
        first = soc.get_total_energy_consumption()
    except Exception:  # noqa: BLE001 - no system-on-chip is the usual case, and each vendor says so differently
        return []
    return [
        SocMeter(soc, attribute, name, kind, index)
        for index, (name, kind, attributes) in enumerate(_SOC_RAILS)
        for attribute in attributes
        if getattr(first, attribute, None) is not None
    ]


class SocMeter(Meter):
    """One rail of a system-on-chip."""

    def __init__(self, soc: Any, attribute: str, name: str, kind: DeviceKind, index: int) -> None:
        self._soc, self._attribute = soc, attribute
        scope = EnergyScope.PACKAGE if kind in (DeviceKind.CPU, DeviceKind.DRAM) else EnergyScope.MODULE
        self.info = DeviceInfo(f"soc:{name}", kind, f"SoC {name}", index, EnergyMethod.HW_COUNTER, scope)

    def read(self, *, slow: bool) -> Reading:
        return Reading(energy_joules=self.read_counter())

    def read_counter(self) -> float | None:
        measured = _guarded(self._soc.get_total_energy_consumption)
        millijoules = getattr(measured, self._attribute, None)
        return None if millijoules is None else float(millijoules) / 1e3


def _guarded(call: Callable[[], Any]) -> Any:
    """What ``call`` gives, or ``None``: a meter's read never raises."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - amdsmi and zeus raise types of their own, many per vendor
        return None
