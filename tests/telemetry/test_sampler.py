from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from evalray.telemetry.meters import DeviceKind, Meter, NullMeter, Reading, nvidia_meters
from evalray.telemetry.sampler import NodeSampler
from evalray.telemetry.series import TICK_COLUMNS, ClockPair, NodeInfo, Tick, columns
from evalray.telemetry.update_period import observe_counters

Load = Callable[[Sequence[dict[str, Any]]], Any]


class _Broken(NullMeter):
    def read(self, *, slow: bool) -> Reading:
        raise RuntimeError("driver bug")


def _null(index: int) -> Meter:
    return NullMeter(f"none:{index}", DeviceKind.GPU, "none", index, "no meter")


def _sampler(meters: Sequence[Meter], clock: Any = None, **options: Any) -> NodeSampler:
    if clock is not None:
        options |= {"clock": clock.now, "clocks": lambda: ClockPair(clock.now(), 1e9 + clock.now())}
    return NodeSampler(meters, node_id="node", **{"tick_seconds": 0.1, "watch_seconds": 0.0, **options})


def test_each_tick_reads_every_device_once(stub_devices: Load) -> None:
    clock = stub_devices([{"power": [(0, 100.0)]}, {"power": [(0, 200.0)]}])
    sampler = _sampler(nvidia_meters(), clock)
    for _ in range(3):
        clock.advance(0.1)
        sampler.tick()
    ticks = sampler.drain().ticks
    assert [tick.device for tick in ticks] == [0, 1] * 3
    assert [tick.energy_joules for tick in ticks] == pytest.approx([10, 20, 20, 40, 30, 60])


def test_slow_quantities_are_read_once_a_second(stub_devices: Load) -> None:
    clock = stub_devices([{"power": [(0, 100.0)]}])
    sampler = _sampler(nvidia_meters(), clock)
    for _ in range(30):
        sampler.tick()
        clock.advance(0.1)
    read = [tick.temperature_celsius is not None for tick in sampler.drain().ticks]
    assert read[0]
    assert sum(read) == 3


def test_a_full_ring_drops_the_oldest_and_counts_them() -> None:
    sampler = _sampler([_null(0), _null(1)], ring_ticks=10)
    for _ in range(8):
        sampler.tick()
    batch = sampler.drain()
    assert (len(batch.ticks), batch.dropped) == (10, 6)
    sampler.tick()
    batch = sampler.drain()
    assert (len(batch.ticks), batch.dropped) == (2, 0)


def test_a_batch_is_no_larger_than_asked_and_the_rest_stays() -> None:
    sampler = _sampler([_null(0)])
    for _ in range(5):
        sampler.tick()
    assert [len(sampler.drain(limit).ticks) for limit in (3, 3, 3)] == [3, 2, 0]


def test_a_broken_meter_does_not_end_the_others(stub_devices: Load) -> None:
    stub_devices([{"power": [(0, 100.0)]}])
    sampler = _sampler([_Broken("x", DeviceKind.GPU, "x", 0, ""), *nvidia_meters()])
    sampler.tick()
    broken, good = sampler.drain().ticks
    assert broken.error == "RuntimeError: driver bug"
    assert good.power_watts == 100.0


@pytest.fixture
def observe_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Lets a sampler watch the stub's counters while the virtual clock moves."""

    def use(clock: Any) -> None:
        monkeypatch.setattr(
            "evalray.telemetry.sampler.observe_counters",
            lambda counters, **options: observe_counters(counters, **options, sleep=clock.advance),
        )

    return use


@pytest.mark.parametrize(("period", "tick"), [(0.1, 0.1), (0.06, 0.06), (0.01, 0.1), (0.3, 0.1)])
def test_the_tick_is_the_counters_period_within_bounds(
    stub_devices: Load, observe_in_virtual_time: Callable[[Any], None], period: float, tick: float
) -> None:
    clock = stub_devices([{"power": [(0, 100.0)], "period": period}])
    observe_in_virtual_time(clock)
    sampler = _sampler(nvidia_meters(), clock, tick_seconds=None, watch_seconds=2.0)
    assert sampler.node.tick_seconds == pytest.approx(tick, abs=0.003)
    assert sampler.node.devices[0].update_period_seconds == pytest.approx(period, abs=0.003)


def _step_until(sampler: NodeSampler, clock: Any, seconds: float) -> list[Tick]:
    while clock.now() < seconds:
        clock.advance(sampler.step())
    return sampler.drain().ticks


@pytest.mark.parametrize("period", [0.02, 0.05, 0.1, 0.3])
def test_a_counters_updates_are_stamped_when_they_happen(
    stub_devices: Load, observe_in_virtual_time: Callable[[Any], None], period: float
) -> None:
    clock = stub_devices([{"power": [(0, 100.0)], "period": period}] * 2)
    observe_in_virtual_time(clock)
    sampler = _sampler(nvidia_meters(), clock, watch_seconds=2.0)
    clock.set(5.0371)
    ticks = [tick for tick in _step_until(sampler, clock, 15) if tick.device == 0]
    changed = [tick for before, tick in pairwise(ticks) if tick.energy_joules != before.energy_joules][1:]
    late = [tick.monotonic_seconds - (tick.energy_joules or 0) / 100 for tick in changed]
    assert max(map(abs, late)) <= max(period / 8, 0.003)
    assert len(changed) == pytest.approx(10 / max(period, 0.1), rel=0.15)


def test_a_watched_counter_that_stops_is_still_recorded(
    stub_devices: Load, observe_in_virtual_time: Callable[[Any], None]
) -> None:
    clock = stub_devices([{"power": [(0, 100.0)], "period": 0.1, "freeze_at": 3.0}])
    observe_in_virtual_time(clock)
    sampler = _sampler(nvidia_meters(), clock, watch_seconds=1.0)
    clock.set(5.0)
    assert len(_step_until(sampler, clock, 10)) == pytest.approx(50, abs=5)


def test_a_very_fast_counter_is_read_at_the_tick_and_known_to_lag_by_half_its_period(
    stub_devices: Load, observe_in_virtual_time: Callable[[Any], None]
) -> None:
    clock = stub_devices([{"power": [(0, 100.0)], "period": 0.005}])
    observe_in_virtual_time(clock)
    sampler = _sampler(nvidia_meters(), clock, watch_seconds=1.0)
    sampler.step()
    assert sampler.step() == pytest.approx(0.1)
    assert sampler.node.devices[0].counter_lag_seconds == pytest.approx(0.0025, abs=0.001)


def test_the_thread_samples_until_stopped_and_the_rest_can_be_fetched() -> None:
    sampler = _sampler([_null(0)], tick_seconds=0.01)
    sampler.start()
    deadline = threading.Event()
    while len(sampler.latest()) == 1 and sampler.latest()[0] is None:
        assert not deadline.wait(0.01)
    sampler.stop()
    seen = sampler.drain().ticks
    assert seen
    assert not sampler.drain().ticks
    assert all(tick.energy_joules is None for tick in seen)


def test_a_node_survives_being_written_down(stub_devices: Load) -> None:
    stub_devices([{"power": [(0, 1.0)]}, {"power": [(0, 1.0)], "mig": 1}])
    node = _sampler(nvidia_meters()).node
    assert NodeInfo.from_dict(node.to_dict()) == node


def test_ticks_become_columns_by_their_names() -> None:
    sampler = _sampler([_null(0)])
    sampler.tick()
    table = columns(sampler.drain().ticks)
    assert tuple(table) == TICK_COLUMNS
    assert table["device"] == [0]
    assert columns([])["energy_joules"] == []
