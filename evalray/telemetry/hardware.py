"""The table of known devices, in ``hardware.toml``: dense peaks, bandwidth, power, and where each is from.

A device is found by its whole name (as NVML or amdsmi gives it) and its memory, which must fit the row.
What is not listed is unknown: a wrong peak is worse than none, so nothing is ever guessed from a part of
a name, and no default stands in.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from evalray.errors import ConfigError

_GIB = 1024**3
_DTYPES = ("bf16", "fp16", "fp8", "int8")
_MIG = re.compile(r"\bMIG\b", re.IGNORECASE)
_PROBE = (
    "give gpu_peak_tflops and gpu_peak_bandwidth_gb_s in the suite, "
    "or measure it on its machine: evalray hardware probe --device cuda:0"
)


@dataclass(slots=True, frozen=True)
class DeviceSpec:
    """One row of the table, for one device as the driver counts devices.

    ``tflops`` maps a dtype to its dense tensor peak with fp32 accumulation (int8: TOPS); a dtype the
    device has no unit for is absent.  ``says`` is what was read at ``source``; ``checked`` whether the vendor
    itself says so.
    """

    name: str
    pattern: re.Pattern[str]
    memory_gib: tuple[float, float]
    tflops: MappingProxyType[str, float]
    bandwidth_gb_s: float
    tdp_watts: float | None
    source: str
    says: str
    checked: bool
    date: str
    memory_required: bool = False


@dataclass(slots=True, frozen=True)
class DeviceMatch:
    """The row of a device, or ``None`` and the reason."""

    device: str
    spec: DeviceSpec | None = None
    reason: str = ""


@lru_cache(maxsize=1)
def known_devices() -> tuple[DeviceSpec, ...]:
    """Every row of the table."""
    text = (files("evalray.telemetry") / "hardware.toml").read_text(encoding="utf-8")
    return parse_devices(text)


def parse_devices(text: str) -> tuple[DeviceSpec, ...]:
    """Read a table.  Raises :class:`ConfigError` naming the row and what is wrong with it."""
    return tuple(_row(row) for row in tomllib.loads(text).get("device", ()))


def _row(row: dict[str, Any]) -> DeviceSpec:
    name = str(row.get("name", "?"))
    try:
        low, high = row["memory_gib"]
        tflops = {dtype: float(row["tflops"][dtype]) for dtype in row["tflops"]}
        if unknown := set(tflops) - set(_DTYPES):
            raise ValueError(f"dtype {min(unknown)} is none of {', '.join(_DTYPES)}")
        bandwidth = float(row["bandwidth_gb_s"])
        if not (tflops and bandwidth > 0 and 0 < low < high and min(tflops.values()) > 0):
            raise ValueError("figures must be above 0")
        return DeviceSpec(
            name=name,
            pattern=re.compile(row["pattern"], re.IGNORECASE | re.ASCII),
            memory_gib=(float(low), float(high)),
            tflops=MappingProxyType(tflops),
            bandwidth_gb_s=bandwidth,
            tdp_watts=row.get("tdp_watts"),
            source=row["source"],
            says=row["says"],
            checked=_boolean(row["checked"]),
            date=str(row["date"]),
            memory_required=_boolean(row.get("memory_required", False)),
        )
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise ConfigError(f"hardware table, device {name!r}: {error}") from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def find_device(name: str, memory_bytes: int | None = None, *, sliced: bool = False) -> DeviceMatch:
    """The row for a device ``name``, with ``memory_bytes`` as the driver reports them.

    Without memory the name must settle it alone.  Slices (MIG, vGPU), laptop and cut-down variants and
    memory that does not fit find nothing; ``sliced`` says that a device is cut up which bears its whole name.
    """
    name = " ".join(name.split())
    if sliced or _MIG.search(name):
        return DeviceMatch(name, reason=f"{name}: a MIG slice has not the whole device's peak: {_PROBE}")
    named = [spec for spec in known_devices() if spec.pattern.fullmatch(name)]
    if not named:
        return DeviceMatch(name, reason=f"{name or 'a device without a name'} is not in the table: {_PROBE}")
    if memory_bytes is None:
        if len(named) > 1 or named[0].memory_required:
            return DeviceMatch(name, reason=f"{name} needs its memory size to be told apart: {_PROBE}")
        return DeviceMatch(name, named[0])
    gib = memory_bytes / _GIB
    fitting = [spec for spec in named if spec.memory_gib[0] <= gib <= spec.memory_gib[1]]
    if len(fitting) != 1:
        return DeviceMatch(name, reason=f"{name} with {gib:.0f} GiB is not in the table: {_PROBE}")
    return DeviceMatch(name, fitting[0])
