"""Windows from recorded ticks; the counters' misbehaviour is scripted in the stub NVML."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from evalray.telemetry.meters import (
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    nvidia_meters,
    rapl_meters,
)
from evalray.telemetry.sampler import NodeSampler
from evalray.telemetry.series import ClockPair, NodeInfo, columns
from evalray.telemetry.windows import (
    DeviceSeries,
    DeviceWindows,
    EnergyCurve,
    counter_disagreement,
    device_windows,
    node_series,
)

Load = Callable[[Sequence[dict[str, Any]]], Any]
_STEADY = [(0, 300.0)]


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalray.telemetry.meters.nvidia.RETRY_SECONDS", 0.0)


def _record(
    load: Load, script: dict[str, Any], seconds: float = 10.0, tick: float = 0.1
) -> tuple[DeviceSeries, DeviceWindows]:
    clock = load([{"power": _STEADY, "period": 0.1, **script}])
    sampler = NodeSampler(nvidia_meters(), node_id="n", tick_seconds=tick, watch_seconds=0, clock=clock.now)
    for step in range(round(seconds / tick) + 1):
        clock.set(step * tick)
        sampler.tick()
    series = next(iter(node_series(sampler.node, columns(sampler.drain().ticks)).values()))
    return series, device_windows(series)


def test_windows_follow_on_one_another_from_first_tick_to_last(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {"reset_at": 3.05, "lost_at": 6, "back_at": 7})
    assert windows.start[0] == series.seconds[0]
    assert windows.end[-1] == series.seconds[-1]
    assert np.array_equal(windows.start[1:], windows.end[:-1])


def test_a_well_behaved_counter_gives_its_whole_difference(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {})
    inside = series.energy_joules[-1] - series.energy_joules[1]
    assert windows.joules.sum() == pytest.approx(inside, rel=1e-12)
    assert set(windows.invalid_seconds()) <= {"edge"}


@pytest.mark.parametrize("period", [0.25, 0.13, 1.0])
def test_a_counter_slower_than_the_ticks_has_windows_of_its_own_length(
    stub_devices: Load, period: float
) -> None:
    _, windows = _record(stub_devices, {"period": period, "limit_watts": 301}, seconds=20)
    spans = (windows.end - windows.start)[windows.valid]
    assert spans.mean() == pytest.approx(period, rel=0.1)
    assert (windows.joules[windows.valid] > 0).all()
    assert windows.joules.sum() == pytest.approx(300 * spans.sum(), rel=0.02)


def test_a_reset_makes_one_window_invalid_and_never_negative(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"base_mj": 9e9, "reset_at": 5.05})
    assert windows.invalid_seconds()["reset"] == pytest.approx(0.1)
    assert (windows.joules >= 0).all()
    assert windows.joules.sum() == pytest.approx(300 * 9.8, rel=0.01)


def test_an_implausible_jump_makes_one_window_invalid(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"jump_at": 5.05, "jump_mj": 1e6})
    assert windows.invalid_seconds()["implausible"] == pytest.approx(0.1)
    assert windows.joules.sum() == pytest.approx(300 * 9.8, rel=0.01)


def test_a_frozen_counter_is_flagged_for_as_long_as_it_stood(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"freeze_at": 3.0, "freeze_until": 7.0})
    assert windows.invalid_seconds()["frozen"] == pytest.approx(4.0, abs=0.25)
    assert windows.joules.sum() == pytest.approx(300 * 5.8, rel=0.05)


def test_a_counter_that_never_moves_measures_nothing(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"freeze_at": 0.0})
    assert not windows.valid.any()
    assert windows.invalid_seconds() == {"frozen": pytest.approx(10.0)}


def test_a_counter_that_freezes_for_good_is_invalid_to_the_end(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"freeze_at": 6.0})
    assert windows.invalid_seconds()["frozen"] == pytest.approx(4.0, abs=0.15)


def test_a_gpu_lost_for_good_is_invalid_to_the_end(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"lost_at": 6.0})
    assert windows.invalid_seconds()["lost"] == pytest.approx(4.0, abs=0.15)
    assert windows.joules.sum() == pytest.approx(300 * 5.8, rel=0.02)


def test_a_gpu_that_comes_back_is_measured_again(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"lost_at": 4.0, "back_at": 6.0, "reset_at": 5.0})
    assert windows.invalid_seconds()["lost"] == pytest.approx(2.1, abs=0.15)
    assert windows.valid[-2]


def test_without_a_counter_power_is_integrated_by_trapezoid(stub_devices: Load) -> None:
    power = [(step * 0.1, 200.0 + 20 * step) for step in range(21)]
    series, windows = _record(
        stub_devices, {"no_counter": 1, "power": power, "limit_watts": 700}, seconds=2.0
    )
    assert windows.joules.sum() == pytest.approx(np.trapezoid(series.power_watts, series.seconds))
    assert windows.valid.all()


def test_power_is_not_integrated_over_a_silence() -> None:
    info = DeviceInfo(
        "GPU-a",
        DeviceKind.GPU,
        "old",
        0,
        EnergyMethod.INTEGRATED_POWER,
        EnergyScope.GPU,
        power_limit_watts=300,
    )
    seconds = np.array([0.0, 0.1, 0.2, 3.0, 3.1])
    unknown = np.full(5, np.nan)
    series = DeviceSeries(info, seconds, unknown, np.full(5, 100.0), unknown, np.zeros(5, np.bool_))
    windows = device_windows(series)
    assert windows.invalid_seconds() == {"gap": pytest.approx(2.8)}
    assert windows.joules.sum() == pytest.approx(30.0)


def test_a_device_without_a_meter_has_time_and_no_joules(stub_devices: Load) -> None:
    _, windows = _record(stub_devices, {"mig": 1}, seconds=1.0)
    assert windows.invalid_seconds() == {"no_meter": pytest.approx(1.0)}


def test_a_rapl_counter_goes_through_its_wrap(tmp_path: Any) -> None:
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    wrap, now = 50_000_000, [0.0]
    (zone / "name").write_text("package-0")
    (zone / "max_energy_range_uj").write_text(str(wrap))
    (zone / "energy_uj").write_text("0")
    sampler = NodeSampler(
        rapl_meters(tmp_path), node_id="n", tick_seconds=0.1, watch_seconds=0, clock=lambda: now[0]
    )
    for step in range(101):
        now[0] = step * 0.1
        (zone / "energy_uj").write_text(str(int(200e6 * now[0]) % wrap))
        sampler.tick()
    windows = device_windows(next(iter(node_series(sampler.node, columns(sampler.drain().ticks)).values())))
    assert windows.joules.sum() == pytest.approx(200 * 9.9, rel=1e-6)
    assert set(windows.invalid_seconds()) == {"edge"}


def test_energy_between_two_instants_is_interpolated(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {})
    curve = EnergyCurve.of(windows, series)
    assert curve.joules.between(2.03, 4.57) == pytest.approx(300 * 2.54, rel=1e-6)
    assert curve.joules.between(-5.0, -1.0) == 0.0


def test_counter_and_power_that_disagree_are_told(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {})
    assert counter_disagreement(series, windows) is None
    series.power_watts *= 1.5
    assert "counter is used" in (counter_disagreement(series, windows) or "")


def test_a_device_that_was_sampled_twice_is_one_series(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {})
    halves = [
        DeviceSeries(series.info, *(values[part] for values in series._arrays()))
        for part in (slice(50, None), slice(None, 50))
    ]
    assert device_windows(halves[0] + halves[1]).joules.sum() == pytest.approx(windows.joules.sum())


def test_windows_of_a_counter_that_lags_are_that_much_earlier(stub_devices: Load) -> None:
    series, windows = _record(stub_devices, {})
    series.info = dataclasses.replace(series.info, counter_lag_seconds=0.04)
    assert device_windows(series).start == pytest.approx(windows.start - 0.04)


# -- counters and readings that nobody should believe -----------------------------------------------

_TENTHS = np.arange(600) / 10


def _series(energy: Any = None, power: Any = None, **info: Any) -> DeviceSeries:
    """A minute of a GPU, ten readings a second."""
    values: dict[str, Any] = {
        "energy_method": EnergyMethod.HW_COUNTER,
        "energy_scope": EnergyScope.GPU,
        "power_scope": EnergyScope.GPU,
        "power_limit_watts": 700.0,
        **info,
    }
    nothing = [None] * len(_TENTHS)
    columns = {
        "monotonic_seconds": _TENTHS,
        "energy_joules": nothing if energy is None else energy,
        "power_watts": nothing if power is None else power,
        "utilization_pct": nothing,
        "error": nothing,
    }
    return DeviceSeries.from_columns(DeviceInfo("g", DeviceKind.GPU, "GPU", 0, **values), columns)


@pytest.mark.parametrize("period", [0.02, 0.1, 1.0, 3.0, 10.0])
def test_a_counter_of_any_period_is_measured(period: float) -> None:
    energy = np.floor(_TENTHS / period + 1e-9) * period * 300
    windows = device_windows(_series(energy, update_period_seconds=period if period <= 0.2 else None))
    valid = (windows.end - windows.start)[windows.valid].sum()
    assert windows.joules.sum() == pytest.approx(300 * valid, rel=0.01)
    assert set(windows.invalid_seconds()) == {"edge"}
    assert valid >= 60 - 2 * period - 0.2


def test_a_slow_counter_that_stops_is_frozen() -> None:
    energy = np.floor(np.minimum(_TENTHS, 30) / 3 + 1e-9) * 900 + np.where(_TENTHS > 55, 1.0, 0.0)
    assert device_windows(_series(energy)).invalid_seconds()["frozen"] > 20


@pytest.mark.parametrize("limit", [None, 0.0, 4_294_967.295, 700.0])
def test_an_absurd_counter_is_invalid_whatever_limit_the_driver_gives(limit: float | None) -> None:
    energy = 300 * _TENTHS
    energy[300] = 1.8e16
    windows = device_windows(_series(energy, power_limit_watts=limit))
    assert windows.joules.sum() == pytest.approx(300 * 59.6)
    assert set(windows.invalid_seconds()) == {"edge", "implausible", "reset"}


@pytest.mark.parametrize("odd", [-300.0, 4_294_967.295])
def test_power_that_cannot_be_is_neither_integrated_nor_a_peak(odd: float) -> None:
    power = np.full(len(_TENTHS), 300.0)
    power[300] = odd
    method = EnergyMethod.INTEGRATED_POWER
    series = _series(power=power, energy_method=method, power_limit_watts=None)
    windows = device_windows(series)
    assert windows.joules.sum() == pytest.approx(300 * 59.7)
    assert windows.invalid_seconds() == {"implausible": pytest.approx(0.2)}
    assert np.nanmax(series.plausible_watts) == np.nanmin(series.plausible_watts) == 300.0


@pytest.mark.parametrize(("seconds", "measured"), [(200.0, True), (1500.0, False)])
def test_a_counter_that_may_have_gone_round_unseen_measures_nothing(seconds: float, measured: bool) -> None:
    info = {"energy_method": EnergyMethod.RAPL, "power_limit_watts": 200.0, "counter_range_joules": 262_144.0}
    before, after = _series(_TENTHS * 100, **info), _series(_TENTHS * 100 + 10_000, **info)
    after.seconds = after.seconds + seconds
    windows = device_windows(before + after)
    [gap] = np.flatnonzero(windows.end - windows.start > 10)
    assert windows.valid[gap] == measured
    assert ("gap" in windows.invalid_seconds()) is not measured


def test_utilisation_beyond_100_and_readings_without_a_time_are_none() -> None:
    info = dataclasses.replace(_series().info)
    columns: dict[str, Any] = {
        "device": [0, 0, 0, 0],
        "monotonic_seconds": [0.0, None, 1.0, float("nan")],
        "energy_joules": [None] * 4,
        "power_watts": [None] * 4,
        "utilization_pct": [50.0, 50.0, 5000.0, -1.0],
        "error": [None] * 4,
    }
    node = NodeInfo("n", (info,), 0.1, ClockPair(0.0, 1e9))
    series = node_series(node, columns)["g"]
    assert series.seconds.tolist() == [0.0, 1.0]
    assert np.isfinite(series.utilization_pct).tolist() == [True, False]
