"""Joules of devices to the requests that used them, so that they add up.

In each window k of a device, requests i that were active share its joules E_k by the FLOPs w_ik that each did
there: ``e_i = sum_k E_k * w_ik / sum_j w_jk``.  A window in which nobody did anything is idle, and of one that
was in use for a part, the device's idle power over the rest of it (where it had idle windows to know it from).
So, per device, what the requests got plus idle is what the valid windows measured.  Engines that share a device share one
ledger; an engine on several devices does an equal part of its work on each and sums what it gets.

Where one engine of a device has no known shape, all on that device are weighed by tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.blocks import Rates, walk
from evalray.telemetry.meters.base import DeviceInfo, DeviceKind
from evalray.telemetry.requests import EngineUse, RequestColumns
from evalray.telemetry.windows import DeviceWindows, Integral
from evalray.telemetry.work import PREFILL, SHORTEST_SECONDS, Stretches, TokenCost, join, stretches

Floats = NDArray[np.float64]


@dataclass(slots=True)
class DeviceLedger:
    """Where the joules of one device went.  ``attributed_joules + idle_joules == measured_joules``."""

    info: DeviceInfo
    weight: str
    """``flops`` or ``tokens``: what the joules were shared by."""
    measured_joules: float | None
    """Sum over the valid windows; ``None`` where there is no valid window."""
    attributed_joules: float | None
    idle_joules: float | None
    valid_seconds: float
    invalid_seconds: dict[str, float]
    """By cause."""
    idle_seconds: float
    """Time in valid windows in which no request was active."""
    windows: int
    resolution_seconds: float | None
    """Median length of a valid window."""
    idle: Integral
    """Idle joules over time, to give a stretch of the run its own."""
    engine_joules: dict[int, float]
    """The attributed joules by index of the engine."""

    @property
    def idle_watts(self) -> float | None:
        """Mean power while nothing ran; ``None`` below :data:`IDLE_BASELINE_SECONDS` of it."""
        if self.idle_joules is None or self.idle_seconds < IDLE_BASELINE_SECONDS:
            return None
        return self.idle_joules / self.idle_seconds


#: Less idle time than this makes no baseline.
IDLE_BASELINE_SECONDS = 10.0


@dataclass(slots=True)
class Shares:
    """What each request got, by kind of device.  All arrays are per request; 0 where it got nothing."""

    prefill_joules: dict[DeviceKind, Floats] = field(default_factory=dict)
    decode_joules: dict[DeviceKind, Floats] = field(default_factory=dict)
    gpu_seconds: Floats = field(default_factory=lambda: np.zeros(0))
    """Share of the time of the GPUs it ran on, by the same weights."""


@dataclass(slots=True)
class Attribution:
    """The result: shares per request, a ledger per device."""

    shares: Shares
    ledgers: list[DeviceLedger]


def attribute(
    requests: RequestColumns, engines: Sequence[EngineUse], devices: Mapping[str, DeviceWindows]
) -> Attribution:
    """Share the energy of ``devices`` (by id) among ``requests``.

    All requests that touched the devices have to be there, warm-ups, failures and other runs' included:
    what is left out is charged to the others.  Devices of an engine that are not in ``devices`` were not
    measured and give nothing.
    """
    count = len(requests)
    shares = Shares(gpu_seconds=np.zeros(count))
    for kind in {windows.info.kind for windows in devices.values()}:
        shares.prefill_joules[kind] = np.zeros(count)
        shares.decode_joules[kind] = np.zeros(count)
    members = [np.flatnonzero(requests.engine == index) for index in range(len(engines))]
    ledgers = []
    for device_id, windows in devices.items():
        users = [
            index
            for index, engine in enumerate(engines)
            if device_id in engine.device_ids and len(members[index])
        ]
        by_flops = all(engines[index].shape is not None for index in users)
        parts = []
        for index in users:
            engine = engines[index]
            alike = sum(1 for other in engine.device_ids if _kind(devices, other) is windows.info.kind)
            cost = TokenCost.of(engine.shape if by_flops else None)
            part = stretches(requests, members[index], cost)
            part.flops_rate /= max(1, alike)
            part.flops_slope /= max(1, alike)
            parts.append(part)
        work = join(parts) if parts else stretches(requests, np.zeros(0, np.intp), TokenCost.of(None))
        weight = "flops" if by_flops else "tokens"
        ledgers.append(_settle(windows, work, shares, weight, requests.engine))
    return Attribution(shares, ledgers)


def _kind(devices: Mapping[str, DeviceWindows], device_id: str) -> DeviceKind | None:
    windows = devices.get(device_id)
    return None if windows is None else windows.info.kind


def _settle(
    windows: DeviceWindows, work: Stretches, shares: Shares, weight: str, engine: NDArray[np.int32]
) -> DeviceLedger:
    """Share one device's windows and add each request's part to ``shares``."""
    work = work.take(np.argsort(work.start, kind="stable"))
    starts, ends, valid = windows.start, windows.end, windows.valid
    span = ends - starts
    rates = Rates(work.start, work.flops_rate, work.flops_slope)
    joules, seconds = np.zeros(len(work.start)), np.zeros(len(work.start))
    idle_joules, idle_span = _idle(windows, work)
    shared = windows.joules - idle_joules
    unused = np.zeros(len(starts), np.bool_)
    for block in walk(starts, ends, work.start, work.end):
        own = slice(block.first, block.last)
        amounts = rates.in_pairs(block)
        total = rates.per_window(block, starts, ends, amounts)
        unused[own] = total <= 0
        unit = np.divide(1.0, total, out=np.zeros(len(total)), where=total > 0)
        share = amounts * unit[block.window]
        touched = len(block.partial)
        used = span[own] - idle_span[own]
        joules[block.partial] += np.bincount(block.owner, share * shared[own][block.window], touched)
        seconds[block.partial] += np.bincount(block.owner, share * used[block.window], touched)
        if len(block.whole):
            begin = float(starts[block.first])
            weighed, offset = unit * span[own], starts[own] + span[own] / 2 - begin
            level, growth = rates.at(block.whole, begin)
            for out, price in ((joules, weighed * shared[own]), (seconds, weighed * used)):
                out[block.whole] += level * price.sum() + growth * (price * offset).sum()
    # Which windows nobody used is settled by the weights themselves, so that no joule falls between the two.
    idle_joules[unused], idle_span[unused] = windows.joules[unused], span[unused]
    _hand_out(work, joules, seconds, windows.info.kind, shares)
    has_energy = bool(valid.any())
    of_engines = np.bincount(engine[work.request], joules) if len(joules) else np.zeros(0)
    return DeviceLedger(
        info=windows.info,
        weight=weight,
        measured_joules=math.fsum(windows.joules[valid]) if has_energy else None,
        attributed_joules=math.fsum(joules) if has_energy else None,
        idle_joules=math.fsum(idle_joules) if has_energy else None,
        valid_seconds=float(span[valid].sum()),
        invalid_seconds=windows.invalid_seconds(),
        idle_seconds=float(idle_span[valid].sum()),
        windows=len(starts),
        resolution_seconds=float(np.median(span[valid])) if has_energy else None,
        idle=Integral.of(starts, ends, idle_joules),
        engine_joules={int(index): float(of_engines[index]) for index in np.unique(engine[work.request])},
    )


def _idle(windows: DeviceWindows, work: Stretches) -> tuple[Floats, Floats]:
    """Idle joules and idle seconds of each window; ``work`` is in ascending order of start.

    A window that is used in part is idle for the device's idle power over the rest, at most for that part of
    its joules; without a wholly idle window that power is not known, and the users get all.
    """
    span = windows.end - windows.start
    busy = _busy(work).between(windows.start, windows.end)
    idle_span = np.where(span - busy > SHORTEST_SECONDS, span - busy, 0.0)
    wholly = (busy <= 0) & (span > 0)
    idle_span[wholly] = span[wholly]
    known = wholly & windows.valid
    # The median, since loading a model is idle time too and draws more.
    watts = float(np.median(windows.joules[known] / span[known])) if known.any() else 0.0
    most = windows.joules * np.divide(idle_span, span, out=np.zeros(len(span)), where=span > 0)
    return np.where(wholly, windows.joules, np.minimum(watts * idle_span, most)), idle_span


def _busy(work: Stretches) -> Integral:
    """Seconds in which at least one stretch is under way, over time."""
    if not len(work.start):
        return Integral(np.zeros(1), np.zeros(1))
    reach = np.maximum.accumulate(work.end)
    opens = np.concatenate(([True], work.start[1:] > reach[:-1]))
    first = np.flatnonzero(opens)
    starts, ends = work.start[first], np.append(reach[first[1:] - 1], reach[-1])
    borders = np.column_stack((starts, ends)).ravel()
    lengths = np.cumsum(ends - starts)
    return Integral(borders, np.column_stack((lengths - (ends - starts), lengths)).ravel())


def _hand_out(work: Stretches, joules: Floats, seconds: Floats, kind: DeviceKind, shares: Shares) -> None:
    count = len(shares.gpu_seconds)
    prefill = work.phase == PREFILL
    for out, phase in ((shares.prefill_joules, prefill), (shares.decode_joules, ~prefill)):
        out[kind] += np.bincount(work.request[phase], joules[phase], count)
    if kind is DeviceKind.GPU:
        shares.gpu_seconds += np.bincount(work.request, seconds, count)
