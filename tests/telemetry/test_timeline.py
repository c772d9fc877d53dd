"""Power over time from series made by hand: what was measured is there, and what was not is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    EngineUse,
    RequestLog,
    RunPart,
    analyse,
    power_timeline,
)
from evalray.telemetry.timeline import MAX_BINS
from evalray.telemetry.windows import DeviceSeries

Change = Callable[[DeviceSeries, np.ndarray], None]
_NAN = float("nan")


def _device(
    watts: float | np.ndarray = 100.0,
    *,
    seconds: np.ndarray | None = None,
    method: EnergyMethod = EnergyMethod.HW_COUNTER,
    polled: bool = True,
    device_id: str = "GPU-1",
    index: int = 0,
) -> DeviceSeries:
    """10 s of readings, ten a second unless told otherwise; the counter follows the power."""
    at = np.arange(101) / 10 if seconds is None else seconds
    level = np.broadcast_to(np.asarray(watts, np.float64), at.shape).copy()
    counter = np.concatenate(([0.0], np.cumsum(np.diff(at) * (level[1:] + level[:-1]) / 2))) + 5.0
    none = method is EnergyMethod.NONE
    counts = method in (EnergyMethod.HW_COUNTER, EnergyMethod.RAPL)
    scope = None if none else EnergyScope.GPU
    reason = "no counter here" if none else ""
    info = DeviceInfo(
        device_id, DeviceKind.GPU, "Stub", index, method, scope, reason, power_limit_watts=1000.0
    )
    return DeviceSeries(
        info,
        at,
        counter if counts else np.full(len(at), _NAN),
        level if polled and not none else np.full(len(at), _NAN),
        np.full(len(at), _NAN),
        np.zeros(len(at), np.bool_),
    )


def _part(
    devices: Sequence[DeviceSeries],
    requests: Sequence[tuple[float, float]],
    *,
    others: Sequence[tuple[float, float, int]] = (),
    **more: Any,
) -> RunPart:
    """A run on engine 0; ``others`` are (sent, end, engine): 0 and 1 are on the devices, 2 is elsewhere."""
    log = RequestLog()
    for sent, end in requests:
        log.add(0, sent=sent, end=end, prompt_tokens=10, output_tokens=10)
    for sent, end, engine in others:
        log.add(engine, sent=sent, end=end, prompt_tokens=10, output_tokens=10)
    ids = tuple(device.info.device_id for device in devices)
    engines = [EngineUse("m/0", ids), EngineUse("other/0", ids), EngineUse("elsewhere/0")]
    series = {device.info.device_id: device for device in devices}
    analysis = analyse(series, log.columns(), engines)
    members = np.arange(len(requests), dtype=np.intp)
    return RunPart("n1", analysis, members, more.pop("offset", 1000.0), **more)


def _at(timeline: Any, values: np.ndarray, second: float) -> float:
    return float(values[np.searchsorted(timeline.edges, second, "right") - 1])


@pytest.mark.parametrize(
    ("method", "polled"),
    [
        (EnergyMethod.HW_COUNTER, True),
        (EnergyMethod.INTEGRATED_POWER, True),
        (EnergyMethod.HW_COUNTER, False),
        (EnergyMethod.RAPL, False),
    ],
)
def test_power_is_what_the_device_drew_polled_or_from_its_counter(method: EnergyMethod, polled: bool) -> None:
    watts = np.where(np.arange(101) < 50, 100.0, 300.0)
    timeline = power_timeline([_part([_device(watts, method=method, polled=polled)], [(1.0, 9.0)])])
    (device,) = timeline.devices
    assert (timeline.bin_seconds, timeline.reason) == (0.1, "")
    assert _at(timeline, device.mean_watts, 2.05) == pytest.approx(100.0)
    assert _at(timeline, device.mean_watts, 6.05) == pytest.approx(300.0)


def _lose(series: DeviceSeries, gone: np.ndarray) -> None:
    series.lost[gone] = True
    series.power_watts[gone] = series.energy_joules[gone] = _NAN


def _silence(series: DeviceSeries, gone: np.ndarray) -> None:
    kept = ~gone
    for name in ("seconds", "energy_joules", "power_watts", "utilization_pct", "lost"):
        setattr(series, name, getattr(series, name)[kept])


def _freeze(series: DeviceSeries, gone: np.ndarray) -> None:
    series.energy_joules[gone] = series.energy_joules[gone][0]


def _jump(series: DeviceSeries, gone: np.ndarray) -> None:
    series.energy_joules[gone] += np.cumsum(np.full(gone.sum(), 5000.0))


@pytest.mark.parametrize(
    ("change", "polled"),
    [
        (_lose, True),
        (_lose, False),
        (_silence, True),
        (_silence, False),
        (_freeze, True),
        (_freeze, False),
        (_jump, True),
    ],
)
def test_what_was_not_validly_measured_is_a_gap_and_no_zero(change: Change, polled: bool) -> None:
    series = _device(polled=polled)
    change(series, (series.seconds >= 4.0) & (series.seconds < 7.0))
    timeline = power_timeline([_part([series], [(1.0, 9.0)])])
    (device,) = timeline.devices
    middle = timeline.edges[:-1] + 1.0
    inside = (middle > 4.2) & (middle < 6.7)
    outside = (middle > 1.2) & (middle < 3.7) | (middle > 7.3) & (middle < 8.9)
    for values in (device.mean_watts, device.lowest_watts, device.highest_watts):
        assert np.isnan(values[inside]).all()
        assert values[outside] == pytest.approx(100.0)


def test_a_short_loss_is_not_bridged() -> None:
    series = _device(method=EnergyMethod.INTEGRATED_POWER)
    _lose(series, (series.seconds > 4.95) & (series.seconds < 5.45))
    (device,) = (timeline := power_timeline([_part([series], [(1.0, 9.0)])])).devices
    assert np.isnan(_at(timeline, device.mean_watts, 4.25))


def test_a_bin_has_power_where_at_least_half_of_it_was_measured() -> None:
    series = _device(seconds=np.arange(20_001) / 10)
    _lose(series, (series.seconds > 1000.95) & (series.seconds < 1004.45))
    _lose(series, (series.seconds > 1100.95) & (series.seconds < 1102.45))
    timeline = power_timeline([_part([series], [(0.0, 2000.0)])])
    (device,) = timeline.devices
    assert timeline.bin_seconds == 5.0
    assert np.isnan(_at(timeline, device.mean_watts, 1000.0))
    assert _at(timeline, device.mean_watts, 1100.0) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("devices", "notes", "reason"),
    [
        ([_device(method=EnergyMethod.NONE)], (), "no counter here"),
        ([], ("no RAPL: ask the administrator",), "no RAPL: ask the administrator"),
    ],
)
def test_without_power_the_requests_are_there_and_the_reason(
    devices: list[DeviceSeries], notes: tuple[str, ...], reason: str
) -> None:
    timeline = power_timeline([_part(devices, [(1.0, 3.0), (2.0, 3.0)], notes=notes)])
    assert reason in timeline.reason
    assert not any(device.measured for device in timeline.devices)
    assert _at(timeline, timeline.in_flight, 0.5) == 1.0
    assert _at(timeline, timeline.in_flight, 1.5) == 2.0


def test_requests_of_others_count_where_they_share_engine_or_devices() -> None:
    others = [(2.0, 4.0, 0), (2.0, 4.0, 1), (2.0, 4.0, 2)]
    timeline = power_timeline([_part([_device()], [(1.0, 5.0)], others=others)])
    assert _at(timeline, timeline.in_flight, 2.05) == 1.0
    assert _at(timeline, timeline.others_in_flight, 2.05) == 2.0


def test_two_nodes_with_clocks_of_their_own_share_one_time_axis() -> None:
    step = np.where(np.arange(101) < 50, 100.0, 300.0)
    near = _part([_device(step)], [(1.0, 9.0)], offset=1000.0)
    far = _part(
        [_device(step, seconds=np.arange(101) / 10 + 500, device_id="GPU-2")], [(503.0, 509.0)], offset=500.0
    )
    timeline = power_timeline([near, far])
    assert timeline.started_at == 1001.0
    assert _at(timeline, timeline.in_flight, 1.0) == 1.0
    assert _at(timeline, timeline.in_flight, 3.0) == 2.0
    for device in timeline.devices:
        assert _at(timeline, device.mean_watts, 3.5) == pytest.approx(100.0)
        assert _at(timeline, device.mean_watts, 4.5) == pytest.approx(300.0)


def _later(after: float, *, spans: Sequence[tuple[float, float]] = ((2.0, 8.0),), **more: Any) -> RunPart:
    """The same GPU at 300 W in a sweep that was continued: another node, by Ray's count, of another clock."""
    part = _part([_device(300.0)], list(spans), offset=1000.0 + after, **more)
    return dataclasses.replace(part, node_id="n2")


def test_a_long_pause_is_cut_out_of_the_axis_and_kept_beside_it() -> None:
    timeline = power_timeline([_part([_device()], [(1.0, 9.0)]), _later(7200.0)])
    [pause] = timeline.pauses
    assert pause.seconds == pytest.approx(7200.0 - 7.0)
    assert timeline.edges[-1] < 16.0
    [device] = timeline.devices
    assert _at(timeline, device.mean_watts, 4.0) == pytest.approx(100.0)
    assert _at(timeline, device.mean_watts, pause.at + 3.0) == pytest.approx(300.0)
    assert _at(timeline, timeline.in_flight, pause.at + 3.0) == 1.0
    assert timeline.in_flight.sum() * timeline.bin_seconds == pytest.approx(14.0, abs=0.1)
    begins = timeline.begins_at
    assert begins[np.searchsorted(timeline.edges, 4.0)] == pytest.approx(1005.0, abs=0.2)
    second = begins[np.searchsorted(timeline.edges, pause.at + 3.0)]
    assert second == pytest.approx(1000.0 + 7200.0 + 2.0 + 3.0, abs=0.5)


def test_a_short_pause_is_shown_as_it_was() -> None:
    timeline = power_timeline([_part([_device()], [(1.0, 9.0)]), _later(10.0)])
    assert timeline.pauses == ()
    assert timeline.edges[-1] > 17.0
    assert len(timeline.devices) == 1


def test_each_of_several_pauses_is_cut_and_what_others_did_in_them_is_not_shown() -> None:
    first = _part([_device()], [(1.0, 9.0)], others=[(0.0, 10.0, 1)])
    later = [_later(100.0 * number, others=[(0.0, 10.0, 1)]) for number in (1, 2, 3)]
    timeline = power_timeline([*later, first])
    assert [round(pause.seconds) for pause in timeline.pauses] == [93, 94, 94]
    assert timeline.edges[-1] < 32.0
    assert timeline.others_in_flight.max() <= 1.0
    assert np.nanmax(timeline.devices[0].mean_watts) <= 300.0 + 1e-6


def test_devices_of_one_name_on_several_nodes_stay_apart_over_a_pause() -> None:
    parts = [
        dataclasses.replace(
            _part([_device(device_id="rapl:package-0")], [(1.0, 9.0)], offset=offset), node_id=node
        )
        for node, offset in (("n1", 1000.0), ("n2", 1000.0), ("n1", 9000.0))
    ]
    assert [device.node_id for device in power_timeline(parts).devices] == ["n1", "n2"]


def test_ten_hours_fit_and_the_highest_reading_of_them_still_shows() -> None:
    seconds = np.arange(360_001) / 10
    watts = np.full(len(seconds), 200.0)
    watts[123_456] = 700.0
    timeline = power_timeline([_part([_device(watts, seconds=seconds)], [(0.0, 36_000.0)])])
    (device,) = timeline.devices
    assert len(timeline.in_flight) <= MAX_BINS
    assert np.nanmax(device.highest_watts) == 700.0
    assert np.nanmin(device.lowest_watts) == 200.0
    assert np.nanmax(device.mean_watts) < 202.0


def test_the_area_under_the_line_is_the_energy() -> None:
    watts = 150.0 + 100.0 * np.sin(np.arange(101))
    timeline = power_timeline([_part([_device(watts, polled=False)], [(1.0, 9.0)])])
    (device,) = timeline.devices
    inside = (timeline.edges[:-1] >= 0) & (timeline.edges[1:] <= 8)
    joules = np.trapezoid(watts[10:91], dx=0.1)
    assert device.mean_watts[inside].sum() * timeline.bin_seconds == pytest.approx(joules, rel=1e-9)


def test_a_run_without_requests_has_no_timeline() -> None:
    with pytest.raises(ValueError, match="at least one request"):
        power_timeline([_part([_device()], [])])


_spans = st.lists(
    st.tuples(st.floats(0.0, 5000.0), st.floats(0.0, 2000.0)).map(lambda each: (each[0], each[0] + each[1])),
    min_size=1,
    max_size=30,
)


@given(_spans)
def test_request_seconds_are_conserved_in_a_bounded_number_of_bins(spans: list[tuple[float, float]]) -> None:
    timeline = power_timeline([_part([], spans)])
    assert len(timeline.in_flight) <= MAX_BINS
    total = sum(end - sent for sent, end in spans)
    assert timeline.in_flight.sum() * timeline.bin_seconds == pytest.approx(total, rel=1e-4, abs=1e-2)
    assert (timeline.in_flight >= 0).all()


@given(
    st.lists(st.floats(0.0, 900.0), min_size=3, max_size=60),
    st.lists(st.floats(0.01, 3.0), min_size=60, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_means_lie_between_the_lowest_and_the_highest_reading(
    watts: list[float], steps: list[float], lost: list[bool]
) -> None:
    count = len(watts)
    seconds = np.cumsum(steps[:count])
    series = _device(np.array(watts), seconds=seconds, method=EnergyMethod.INTEGRATED_POWER)
    _lose(series, np.array(lost[:count]))
    request = (float(seconds[0]), float(seconds[-1]))
    (device,) = power_timeline([_part([series], [request])]).devices
    known = np.isfinite(device.mean_watts)
    assert (device.lowest_watts[known] <= device.mean_watts[known]).all()
    assert (device.mean_watts[known] <= device.highest_watts[known]).all()
    assert (device.highest_watts[known] <= max(watts)).all()
    assert np.isnan(device.highest_watts[~known]).all()
