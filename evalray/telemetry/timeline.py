"""A run's power over time: watts of each device and the requests in flight, in few enough bins to draw.

Power is what was polled, or where a device gives only a counter, the joules of its windows over their
seconds.  A bin of which less than half was validly measured has no power, so that a gap stays a gap: no
value is bridged, and none is 0 that was not read as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.analysis import NodeAnalysis
from evalray.telemetry.figures import DeviceEvidence
from evalray.telemetry.meters.base import DeviceInfo, DeviceKind
from evalray.telemetry.pauses import Pause, Place, broken_axis
from evalray.telemetry.windows import LONGEST_POWER_GAP_SECONDS, DeviceSeries, DeviceWindows, Fault

Floats = NDArray[np.float64]

#: A plot is about this many pixels wide.
MAX_BINS = 1000
SHORTEST_BIN_SECONDS = 0.02
#: Shown before the first request and after the last: this share of the run, within these seconds.  Readings
#: after the last are looked at for 0.9 s.
_MARGIN_SHARE = 0.02
_MARGIN_SECONDS = (0.1, 0.8)
#: Polled power is drawn unless the counter covers clearly more of the time.
_POLLED_ENOUGH = 0.9
#: Of these the power is known all the same.
_HARMLESS = (Fault.NONE, Fault.EDGE, Fault.NO_METER)


@dataclass(slots=True, frozen=True)
class RunPart:
    """A run's requests on one node.

    ``members`` are indices of the analysis's requests; ``clock_offset_seconds`` is Unix time less the
    node's monotonic clock during the run.
    """

    node_id: str
    analysis: NodeAnalysis
    members: NDArray[np.intp]
    clock_offset_seconds: float
    notes: tuple[str, ...] = ()
    """Why meters are missing on the node."""


@dataclass(slots=True, frozen=True)
class DevicePower:
    """One device's power per bin in watts.  NaN: not measured."""

    node_id: str
    device_id: str
    name: str
    kind: DeviceKind
    index: int
    mean_watts: Floats
    lowest_watts: Floats
    highest_watts: Floats

    @property
    def measured(self) -> bool:
        return bool(np.isfinite(self.mean_watts).any())


@dataclass(slots=True, frozen=True)
class PowerTimeline:
    """A run over time, in bins of equal length; second 0 is when its first request was sent.

    Long ``pauses`` are left out: seconds are those of the time in which the run was asked something.
    """

    started_at: float
    """Unix seconds of second 0."""
    bin_seconds: float
    first_bin: int
    """Bin ``i`` begins at ``(first_bin + i) * bin_seconds``."""
    devices: tuple[DevicePower, ...]
    in_flight: Floats
    """Mean number of the run's requests in flight, per bin."""
    others_in_flight: Floats
    """The same of all other requests to engines on the run's devices."""
    reason: str = ""
    """Why no device has power; empty where one has."""
    pauses: tuple[Pause, ...] = ()
    """What was cut out between parts of a sweep that was continued later."""

    @property
    def edges(self) -> Floats:
        """Where the bins begin, and the end of the last, in seconds."""
        return bin_edges(self.first_bin, len(self.in_flight), self.bin_seconds)

    @property
    def begins_at(self) -> Floats:
        """When each bin began, in Unix seconds, pauses included."""
        begins = self.edges[:-1]
        return np.asarray(
            self.started_at + begins + sum((begins >= pause.at) * pause.cut_seconds for pause in self.pauses),
            np.float64,
        )


def bin_edges(first: int, count: int, seconds: float) -> Floats:
    """``count`` bins of ``seconds`` from the ``first``-th on; rounded, so that 3 x 0.1 is 0.3."""
    return np.asarray(np.round(np.arange(first, first + count + 1) * seconds, 6), np.float64)


def power_timeline(parts: Sequence[RunPart]) -> PowerTimeline:
    """The timeline of a run over its nodes.  Raises ``ValueError`` where it has no request."""
    parts = [part for part in parts if len(part.members)]
    if not parts:
        raise ValueError("a timeline needs at least one request")
    started_at = min(
        float(part.analysis.requests.sent[part.members].min()) + part.clock_offset_seconds for part in parts
    )
    shifts = [part.clock_offset_seconds - started_at for part in parts]
    spans = [_span(part, shift) for part, shift in zip(parts, shifts, strict=True)]
    places, pauses = broken_axis(spans, shifts, (_MARGIN_SHARE, *_MARGIN_SECONDS))
    placed = list(zip(parts, places, strict=True))
    found = _found(placed)
    own = _joined([_times(part, part.members, place) for part, place in placed])
    others = _joined([_times(part, _sharing(part), place) for part, place in placed])
    span = float(own[1].max())
    first, count, seconds = _bins(span, [pieces for _, _, pieces in found])
    edges = bin_edges(first, count, seconds)
    devices = tuple(_device_power(part.node_id, info, pieces, edges) for part, info, pieces in found)
    measured = any(device.measured for device in devices)
    return PowerTimeline(
        started_at,
        seconds,
        first,
        devices,
        _mean_in_flight(*own, edges),
        _mean_in_flight(*others, edges),
        "" if measured else _why(parts),
        pauses,
    )


def _span(part: RunPart, shift: float) -> tuple[float, float]:
    sent, end = part.analysis.requests.sent[part.members], part.analysis.requests.end[part.members]
    return float(sent.min()) + shift, float(end.max()) + shift


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _found(placed: Sequence[tuple[RunPart, Place]]) -> list[tuple[RunPart, DeviceInfo, _Pieces]]:
    """The devices and what is known of their power, those of one device over all spells together.

    A node has another id each time Ray starts, so a device is known by its own id, unless several nodes had
    that at once (``rapl:package-0``).
    """
    seen = [(part, place, each.info) for part, place in placed for each in _devices(part)]
    several = {
        info.device_id
        for part, place, info in seen
        for other, elsewhere, same in seen
        if info.device_id == same.device_id
        and part.node_id != other.node_id
        and _overlap(_span(part, place.shift), _span(other, elsewhere.shift))
    }
    found: dict[tuple[str, str], tuple[RunPart, DeviceInfo, list[_Pieces]]] = {}
    for part, place, info in seen:
        key = (part.node_id if info.device_id in several else "", info.device_id)
        windows = part.analysis.evidence[info.device_id].windows
        pieces = _pieces(part.analysis.series[info.device_id], windows, place)
        found.setdefault(key, (part, info, []))[2].append(pieces)
    return [(part, info, _Pieces.of(pieces)) for part, info, pieces in found.values()]


def _devices(part: RunPart) -> list[DeviceEvidence]:
    """The devices whose joules are the run's, GPUs in the driver's order."""
    analysis = part.analysis
    ids = analysis.energy_devices(analysis.engines_of(part.members))
    seen = [analysis.evidence[device_id] for device_id in ids]
    return sorted(seen, key=lambda each: (str(each.info.kind), each.info.index))


def _sharing(part: RunPart) -> NDArray[np.intp]:
    """Requests of other runs to the same engines or to others on the same devices."""
    analysis = part.analysis
    used = analysis.engines_of(part.members)
    devices = {device_id for engine in used for device_id in analysis.engines[engine].device_ids}
    near = [
        index
        for index, engine in enumerate(analysis.engines)
        if index in used or devices & set(engine.device_ids)
    ]
    mask = np.isin(analysis.requests.engine, near)
    mask[part.members] = False
    return np.flatnonzero(mask)


def _times(part: RunPart, members: NDArray[np.intp], place: Place) -> tuple[Floats, Floats]:
    requests = part.analysis.requests
    sent, end = requests.sent[members] + place.shift, requests.end[members] + place.shift
    return np.clip(sent, place.low, place.high), np.clip(end, place.low, place.high)


def _joined(pairs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    return np.concatenate([sent for sent, _ in pairs]), np.concatenate([end for _, end in pairs])


@dataclass(slots=True)
class _Pieces:
    """Stretches of valid measurement in time order, which do not overlap."""

    start: Floats
    end: Floats
    watts: Floats
    lowest: Floats
    highest: Floats

    @property
    def seconds(self) -> Floats:
        return self.end - self.start

    @classmethod
    def of(cls, parts: Sequence[_Pieces]) -> _Pieces:
        """All of ``parts``, which do not overlap."""
        joined = [np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__]
        order = np.argsort(joined[0], kind="stable")
        return cls(*(values[order] for values in joined))


def _pieces(series: DeviceSeries, windows: DeviceWindows, place: Place) -> _Pieces:
    """What is known of a device's power; its times moved to their ``place``."""
    polled, counted = _polled(series, windows), _counted(series, windows)
    enough = polled.seconds.sum() >= _POLLED_ENOUGH * counted.seconds.sum()
    best = polled if enough else counted
    start = np.maximum(best.start + place.shift, place.low)
    end = np.minimum(best.end + place.shift, place.high)
    kept = end > start
    return _Pieces(start[kept], end[kept], best.watts[kept], best.lowest[kept], best.highest[kept])


def _polled(series: DeviceSeries, windows: DeviceWindows) -> _Pieces:
    """From each reading of power to the next, unless nobody looked in between or the window is invalid."""
    plausible = series.plausible_watts
    read = np.flatnonzero(np.isfinite(plausible))
    seconds, watts = series.seconds[read], plausible[read]
    start, end, before, after = seconds[:-1], seconds[1:], watts[:-1], watts[1:]
    near = end - start <= _longest_silence(series)
    kept = (end > start) & near & ~_invalid_at((start + end) / 2, windows)
    low, high = np.minimum(before, after), np.maximum(before, after)
    return _Pieces(start[kept], end[kept], ((before + after) / 2)[kept], low[kept], high[kept])


def _longest_silence(series: DeviceSeries) -> float:
    """Seconds without a look beyond which nothing is said of the time in between."""
    tick = float(np.median(np.diff(series.seconds))) if len(series.seconds) > 1 else 0.0
    return max(LONGEST_POWER_GAP_SECONDS, 5 * tick)


def _invalid_at(seconds: Floats, windows: DeviceWindows) -> NDArray[np.bool_]:
    if not len(windows.start):
        return np.zeros(len(seconds), np.bool_)
    number = _window_at(seconds, windows)
    inside = (seconds >= windows.start[0]) & (seconds <= windows.end[-1])
    return np.asarray(inside & ~np.isin(windows.fault[number], _HARMLESS), np.bool_)


def _window_at(seconds: Floats, windows: DeviceWindows) -> NDArray[np.intp]:
    """Index of the window that each instant lies in, or the nearest."""
    return np.clip(np.searchsorted(windows.start, seconds, "right") - 1, 0, None)


def _counted(series: DeviceSeries, windows: DeviceWindows) -> _Pieces:
    """The counter's valid windows, each with its mean, unless nobody looked for long."""
    kept = windows.valid & (windows.end > windows.start)
    if len(kept):
        silent = np.flatnonzero(np.diff(series.seconds) > _longest_silence(series))
        middle = (series.seconds[silent] + series.seconds[silent + 1]) / 2 - series.info.counter_lag_seconds
        kept[_window_at(middle, windows)] = False
    start, end = windows.start[kept], windows.end[kept]
    watts = windows.joules[kept] / (end - start)
    return _Pieces(start, end, watts, watts, watts)


def _bins(span: float, devices: Sequence[_Pieces]) -> tuple[int, int, float]:
    """First bin, number and length: no shorter than the readings, no more than :data:`MAX_BINS`."""
    margin = min(max(span * _MARGIN_SHARE, _MARGIN_SECONDS[0]), _MARGIN_SECONDS[1])
    lengths = [float(np.median(pieces.seconds)) for pieces in devices if len(pieces.start)]
    # Readings come a little late: those of every 100 ms still fill bins of 100 ms.
    readings = 0.8 * min(lengths, default=0.0)
    whole = span + 2 * margin
    seconds = _round_up(max(whole / (MAX_BINS - 2), readings, SHORTEST_BIN_SECONDS))
    first = math.floor(-margin / seconds)
    return first, max(1, math.ceil((span + margin) / seconds) - first), seconds


def _round_up(seconds: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, … and their tenths."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return round(next(step * power for step in (1, 2, 5, 10) if step * power >= seconds * (1 - 1e-9)), 6)


def _device_power(node_id: str, info: DeviceInfo, pieces: _Pieces, edges: Floats) -> DevicePower:
    mean, lowest, highest = _binned(pieces, edges)
    return DevicePower(node_id, info.device_id, info.name, info.kind, info.index, mean, lowest, highest)


def _binned(pieces: _Pieces, edges: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean by time, lowest and highest of each bin; NaN where less than half of it is known."""
    unknown = np.full(len(edges) - 1, np.nan)
    if not len(pieces.start):
        return unknown, unknown, unknown
    known = _between(pieces, pieces.seconds, edges)
    joules = _between(pieces, pieces.seconds * pieces.watts, edges)
    first = np.searchsorted(pieces.end, edges[:-1], "right")
    last = np.searchsorted(pieces.start, edges[1:], "left")
    enough = (known >= np.diff(edges) / 2) & (first < last)
    bounds = np.column_stack((first, np.maximum(first, last))).ravel()
    low = np.minimum.reduceat(np.append(pieces.lowest, np.inf), bounds)[::2]
    high = np.maximum.reduceat(np.append(pieces.highest, -np.inf), bounds)[::2]
    mean = np.divide(joules, known, out=unknown.copy(), where=enough)
    # A mean from sums over the whole run may miss its bounds by the last digits.
    return (
        np.where(enough, np.clip(mean, low, high), np.nan),
        np.where(enough, low, np.nan),
        np.where(enough, high, np.nan),
    )


def _between(pieces: _Pieces, amounts: Floats, edges: Floats) -> Floats:
    """The amount in each bin, every piece's spread evenly over it."""
    total = np.concatenate(([0.0], np.cumsum(amounts)))
    seconds = np.column_stack((pieces.start, pieces.end)).ravel()
    level = np.column_stack((total[:-1], total[1:])).ravel()
    return np.asarray(np.diff(np.interp(edges, seconds, level)), np.float64)


def _mean_in_flight(sent: Floats, end: Floats, edges: Floats) -> Floats:
    """Mean number of requests between ``sent`` and ``end``, per bin."""
    area = _seconds_since(np.sort(sent), edges) - _seconds_since(np.sort(end), edges)
    # Differences of long sums leave noise in the last digits where nothing is in flight.
    return np.asarray(np.round(np.maximum(np.diff(area), 0.0) / np.diff(edges), 6), np.float64)


def _seconds_since(instants: Floats, at: Floats) -> Floats:
    """Sum over the sorted ``instants`` before each ``at`` of the time since."""
    total = np.concatenate(([0.0], np.cumsum(instants)))
    number = np.searchsorted(instants, at, "right")
    return np.asarray(number * at - total[number], np.float64)


def _why(parts: Sequence[RunPart]) -> str:
    """Why nothing is known of any device, in the meters' own words."""
    said: dict[str, None] = {}
    for part in parts:
        engines = part.analysis.engines_of(part.members)
        said |= dict.fromkeys(part.analysis.figures.basis[engine].reason for engine in engines)
        said |= dict.fromkeys(part.notes)
    return "; ".join(filter(None, said)) or "no valid reading while its requests were in flight"
