"""From ticks to windows: how much energy a device used between two updates of its counter, where that is known.

A window runs from one observed change of the counter to the next, so that no window is shorter than the
counter's own resolution.  Where the counter was reset, jumped, stood still or could not be read, the window
is invalid: its seconds are counted and it has no joules, which is never a negative number and never a 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.meters.base import DeviceInfo, EnergyMethod
from evalray.telemetry.series import NodeInfo

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: More than this times the power limit is no measurement.
PLAUSIBLE_OVER_LIMIT = 1.2
#: A counter that is read this long and this often without moving is frozen: every device draws power.
FROZEN_SECONDS = 2.0
FROZEN_TICKS = 10
#: Power is not interpolated over a longer silence.
LONGEST_POWER_GAP_SECONDS = 1.0
UNKNOWN_PERIOD_SECONDS = 0.1


class Fault(IntEnum):
    """Why a window is invalid."""

    NONE = 0
    RESET = 1
    """The counter went backward: the driver was reloaded or the device reset."""
    IMPLAUSIBLE = 2
    """More than 1.2 x the power limit allows, or power below 0."""
    FROZEN = 3
    """The counter stood still while it was read."""
    LOST = 4
    """The device did not answer."""
    GAP = 5
    """Nobody looked for too long: power is not interpolated so far, and a counter that wraps may have wrapped."""
    EDGE = 6
    """Before the first or after the last observed update of the counter."""
    NO_METER = 7
    """The device has no meter."""


@dataclass(slots=True)
class DeviceSeries:
    """One device's ticks as arrays, in time order.  NaN: not read."""

    info: DeviceInfo
    seconds: Floats
    energy_joules: Floats
    power_watts: Floats
    utilization_pct: Floats
    lost: Bools
    """Whether the device itself did not answer."""

    @classmethod
    def from_columns(cls, info: DeviceInfo, columns: Mapping[str, Any]) -> DeviceSeries:
        """From the stored columns (see :mod:`evalray.telemetry.series`) of this device's ticks alone."""
        seconds = _floats(columns["monotonic_seconds"])
        order = np.argsort(seconds, kind="stable")
        lost = np.array([error is not None for error in columns["error"]], dtype=np.bool_)
        return cls(
            info,
            seconds[order],
            _floats(columns["energy_joules"])[order],
            _floats(columns["power_watts"])[order],
            _within(_floats(columns["utilization_pct"])[order], 0.0, 100.0),
            lost[order],
        )

    def is_plausible(self, watts: Floats) -> Bools:
        """Which readings of power can be: neither below 0 nor beyond what the device draws at most."""
        return np.asarray((watts >= 0) & (watts <= PLAUSIBLE_OVER_LIMIT * self.info.most_watts), np.bool_)

    @property
    def plausible_watts(self) -> Floats:
        """Power, NaN where it was not read or cannot be."""
        return np.asarray(np.where(self.is_plausible(self.power_watts), self.power_watts, np.nan), np.float64)

    def __add__(self, later: DeviceSeries) -> DeviceSeries:
        """Both together, where a device was sampled twice (its monitor was restarted)."""
        pairs = zip(self._arrays(), later._arrays(), strict=True)
        seconds, *rest = [np.concatenate(pair) for pair in pairs]
        order = np.argsort(seconds, kind="stable")
        return DeviceSeries(self.info, seconds[order], *(values[order] for values in rest))

    def _arrays(self) -> tuple[Any, ...]:
        return self.seconds, self.energy_joules, self.power_watts, self.utilization_pct, self.lost


def node_series(node: NodeInfo, columns: Mapping[str, Any]) -> dict[str, DeviceSeries]:
    """A node's recorded ticks by device id; ``columns`` as :func:`evalray.telemetry.series.columns` gives them
    or as read back from a file (lists or arrays, missing values ``None`` or NaN)."""
    index = np.asarray(columns["device"], dtype=np.int64)
    errors, seconds = np.asarray(columns["error"], dtype=object), _floats(columns["monotonic_seconds"])
    found = {}
    for number, info in enumerate(node.devices):
        # A reading without a time is none.
        own = np.flatnonzero((index == number) & np.isfinite(seconds))
        part: dict[str, Any] = {
            name: _floats(columns[name])[own]
            for name in ("monotonic_seconds", "energy_joules", "power_watts", "utilization_pct")
        }
        found[info.device_id] = DeviceSeries.from_columns(info, {**part, "error": errors[own]})
    return found


def _floats(values: Any) -> Floats:
    """Values with ``None`` as NaN, which is how NumPy converts it."""
    return np.asarray(values, dtype=np.float64)


def _within(values: Floats, low: float, high: float) -> Floats:
    """Values with what is outside as NaN."""
    return np.asarray(np.where((values >= low) & (values <= high), values, np.nan), np.float64)


@dataclass(slots=True)
class DeviceWindows:
    """Energy of one device, window by window, without gaps from the first tick to the last.

    ``joules`` is 0 where ``fault`` is set, so that sums are over the valid windows.
    """

    info: DeviceInfo
    start: Floats
    end: Floats
    joules: Floats
    fault: NDArray[np.int8]

    @property
    def valid(self) -> Bools:
        return np.asarray(self.fault == Fault.NONE, dtype=np.bool_)

    def invalid_seconds(self) -> dict[str, float]:
        """Seconds lost by cause, in lower case; only those that occurred."""
        seconds = self.end - self.start
        return {
            fault.name.lower(): float(seconds[self.fault == fault].sum())
            for fault in Fault
            if fault is not Fault.NONE and np.any(self.fault == fault)
        }


def device_windows(series: DeviceSeries) -> DeviceWindows:
    """The windows of a device by its own method.  Fewer than two ticks give none."""
    method = series.info.energy_method
    if len(series.seconds) < 2:
        return _windows(series.info, np.zeros(0), np.zeros(0), np.zeros(0, np.int8))
    if method in (EnergyMethod.HW_COUNTER, EnergyMethod.RAPL):
        return _counter_windows(series)
    if method in (EnergyMethod.INTEGRATED_POWER, EnergyMethod.ESTIMATE):
        return _power_windows(series)
    faults = np.full(len(series.seconds) - 1, Fault.NO_METER, np.int8)
    return _windows(series.info, series.seconds, np.zeros(len(faults)), faults)


def _windows(info: DeviceInfo, borders: Floats, joules: Floats, fault: NDArray[np.int8]) -> DeviceWindows:
    return DeviceWindows(info, borders[:-1], borders[1:], np.where(fault == Fault.NONE, joules, 0.0), fault)


def _counter_windows(series: DeviceSeries) -> DeviceWindows:
    info = series.info
    seconds = series.seconds - info.counter_lag_seconds
    read = np.flatnonzero(np.isfinite(series.energy_joules))
    if not len(read):
        cause = Fault.LOST if series.lost.any() else Fault.NO_METER
        return _windows(info, seconds[[0, -1]], np.zeros(1), np.array([cause], np.int8))
    energy = series.energy_joules[read]
    changed = read[1:][energy[1:] != energy[:-1]]
    inner = changed if len(changed) else read[-1:]
    borders = _distinct(np.array([0]), inner, np.array([len(seconds) - 1]))
    level = np.interp(borders, read, energy)  # Every inner border is a tick that was read.
    joules, span = np.diff(level), np.diff(seconds[borders])
    fault = np.zeros(len(joules), np.int8)

    edges = np.zeros(len(joules), np.bool_)
    first, last = (changed[0], changed[-1]) if len(changed) else (len(seconds), -1)
    edges[(borders[1:] <= first) | (borders[:-1] >= last)] = True
    fault[edges] = Fault.EDGE

    reads_before = np.searchsorted(read, borders)
    looks = np.diff(reads_before)
    longest = max(FROZEN_SECONDS, 20 * (info.update_period_seconds or 0.0), _slow_period(seconds[changed]))
    fault[(looks >= FROZEN_TICKS) & (span > longest)] = Fault.FROZEN

    if info.counter_range_joules:  # unread for so long it may have gone round unseen
        round_seconds = info.counter_range_joules / (PLAUSIBLE_OVER_LIMIT * info.most_watts)
        fault[span > max(round_seconds, LONGEST_POWER_GAP_SECONDS)] = Fault.GAP
    fault[_too_much(info, joules, span) & ~edges] = Fault.IMPLAUSIBLE
    fault[joules < 0] = Fault.RESET
    fault[_lost_between(series.lost, borders)] = Fault.LOST
    return _windows(info, seconds[borders], joules, fault)


def _slow_period(changes: Floats) -> float:
    """Seconds in which a counter that was not seen to move at first stands still and is well: thrice its usual."""
    return 3 * float(np.median(np.diff(changes))) if len(changes) > 2 else 0.0


def _power_windows(series: DeviceSeries) -> DeviceWindows:
    seconds, info = series.seconds, series.info
    read = np.flatnonzero(np.isfinite(series.power_watts))
    borders = _distinct(np.array([0]), read, np.array([len(seconds) - 1]))
    power = series.power_watts[borders]
    span = np.diff(seconds[borders])
    joules = (power[1:] + power[:-1]) / 2 * span
    fault = np.zeros(len(span), np.int8)
    tick = float(np.median(np.diff(seconds)))
    fault[span > max(LONGEST_POWER_GAP_SECONDS, 5 * tick)] = Fault.GAP
    odd = ~series.is_plausible(power)
    fault[odd[1:] | odd[:-1]] = Fault.IMPLAUSIBLE
    fault[~np.isfinite(joules)] = Fault.EDGE
    fault[_lost_between(series.lost, borders)] = Fault.LOST
    return _windows(info, seconds[borders], joules, fault)


def _too_much(info: DeviceInfo, joules: Floats, span: Floats) -> Bools:
    """Deltas beyond 1.2 x limit x time, where an update may belong to the period before the window too."""
    slack = info.update_period_seconds or UNKNOWN_PERIOD_SECONDS
    return np.asarray(joules > PLAUSIBLE_OVER_LIMIT * info.most_watts * (span + slack), np.bool_)


def _lost_between(lost: Bools, borders: NDArray[np.intp]) -> Bools:
    """Windows in which the device did not answer at least once, their borders included."""
    before = np.concatenate(([0], np.cumsum(lost)))
    return np.asarray(before[borders[1:] + 1] - before[borders[:-1]] > 0, np.bool_)


def _distinct(*parts: Any) -> NDArray[np.intp]:
    return np.unique(np.concatenate(parts).astype(np.intp))


@dataclass(slots=True)
class Integral:
    """A quantity summed over time, read off at any instant: linear within each window."""

    seconds: Floats
    total: Floats

    @classmethod
    def of(cls, start: Floats, end: Floats, amounts: Floats) -> Integral:
        """``amounts`` per window; windows follow on one another."""
        if not len(start):
            return cls(np.zeros(1), np.zeros(1))
        return cls(np.append(start, end[-1]), np.concatenate(([0.0], np.cumsum(amounts))))

    def between(self, start: Any, end: Any) -> Floats:
        """The amount from ``start`` to ``end``; outside of the series there is nothing."""
        upper = np.interp(end, self.seconds, self.total)
        return np.asarray(upper - np.interp(start, self.seconds, self.total), np.float64)


@dataclass(slots=True)
class EnergyCurve:
    """Energy of one device between any two instants, its counter interpolated linearly."""

    joules: Integral
    valid_seconds: Integral
    utilization: Integral
    """Percent x seconds."""
    utilization_seconds: Integral

    @classmethod
    def of(cls, windows: DeviceWindows, series: DeviceSeries) -> EnergyCurve:
        spans = (windows.end - windows.start) * windows.valid
        read = np.flatnonzero(np.isfinite(series.utilization_pct))
        seconds, level = series.seconds[read], series.utilization_pct[read]
        span = np.diff(seconds)
        close = span <= LONGEST_POWER_GAP_SECONDS
        mean = (level[1:] + level[:-1]) / 2
        return cls(
            Integral.of(windows.start, windows.end, windows.joules),
            Integral.of(windows.start, windows.end, spans),
            Integral.of(seconds[:-1], seconds[1:], np.where(close, mean * span, 0.0)),
            Integral.of(seconds[:-1], seconds[1:], np.where(close, span, 0.0)),
        )


#: From this many seconds on a difference between counter and power is told.
CHECK_SECONDS = 5.0
CHECK_TOLERANCE = 0.10


def counter_disagreement(series: DeviceSeries, windows: DeviceWindows) -> str | None:
    """A warning where counter and integrated power differ by over 10 % in at least 5 valid seconds.

    ``None``: they agree, or there are not both.  Power of another scope than the energy is no check.
    """
    info = series.info
    watts = series.plausible_watts
    read = np.isfinite(watts)
    if info.energy_method is not EnergyMethod.HW_COUNTER or info.power_scope is not info.energy_scope:
        return None
    spans = (windows.end - windows.start)[windows.valid]
    if read.sum() < 2 or spans.sum() < CHECK_SECONDS:
        return None
    seconds, power = series.seconds[read], watts[read]
    curve = Integral.of(seconds[:-1], seconds[1:], np.diff(seconds) * (power[1:] + power[:-1]) / 2)
    integrated = float(curve.between(windows.start, windows.end)[windows.valid].sum())
    counted = float(windows.joules.sum())
    if abs(counted - integrated) <= CHECK_TOLERANCE * max(counted, integrated):
        return None
    return (
        f"{info.name} ({info.device_id}): the energy counter gives {counted:.0f} J and polled power "
        f"{integrated:.0f} J over the same {spans.sum():.0f} s; the counter is used"
    )
