from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.telemetry import (
    Batch,
    ClockPair,
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    LatestReading,
    LatestReadings,
    NodeInfo,
    Reading,
    Tick,
)

COUNTER, POWER = EnergyMethod.HW_COUNTER, EnergyMethod.INTEGRATED_POWER


def _info(method: EnergyMethod, device_id: str = "GPU-1") -> DeviceInfo:
    scope = None if method is EnergyMethod.NONE else EnergyScope.GPU
    return DeviceInfo(
        device_id,
        DeviceKind.GPU,
        "H200",
        0,
        method,
        scope,
        power_limit_watts=100.0,
        update_period_seconds=0.1,
    )


def _latest(method: EnergyMethod, *ticks: Tick) -> LatestReading:
    latest = LatestReading("node", _info(method))
    for tick in ticks:
        latest.add(tick, arrived_at=0.0)
    return latest


def tick(seconds: float, device: int = 0, **reading: Any) -> Tick:
    return Tick(device, seconds, *Reading(**reading))


@pytest.mark.parametrize(
    ("method", "ticks", "joules"),
    [
        (COUNTER, [(1, 500.0), (2, 550.0), (3, 560.0)], 60.0),
        (COUNTER, [(1, 500.0), (2, None), (3, 560.0)], 60.0),
        # The driver was reloaded: what the counter lost is not known.
        (COUNTER, [(1, 500.0), (2, 550.0), (3, 10.0), (4, 20.0)], 60.0),
        # More than 1.2 x 100 W allow.
        (COUNTER, [(1, 500.0), (2, 5000.0), (3, 5010.0)], 10.0),
        (COUNTER, [(1, 500.0)], 0.0),
        (COUNTER, [(1, None)], None),
        (POWER, [(1.0, 50.0), (1.5, 70.0), (2.0, 70.0)], 65.0),
        (POWER, [(1.0, 50.0), (9.0, 50.0), (9.5, 50.0)], 25.0),
        (EnergyMethod.ESTIMATE, [(1.0, 50.0), (2.0, 50.0)], 50.0),
        (EnergyMethod.NONE, [(1.0, 50.0), (2.0, 50.0)], None),
    ],
)
def test_energy_is_what_can_be_told_from_counter_or_power(
    method: EnergyMethod, ticks: list[tuple[float, float | None]], joules: float | None
) -> None:
    quantity = "energy_joules" if method is COUNTER else "power_watts"
    latest = _latest(method, *(tick(seconds, **{quantity: value}) for seconds, value in ticks))
    assert latest.energy_joules == (joules if joules is None else pytest.approx(joules))


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(-1e6, 1e6), st.booleans())),
    st.sampled_from([COUNTER, POWER]),
)
def test_energy_never_falls(ticks: list[tuple[float, float, bool]], method: EnergyMethod) -> None:
    latest, before = _latest(method), 0.0
    for seconds, value, is_lost in ticks:
        latest.add(
            tick(seconds, energy_joules=value, power_watts=value, error="LOST" if is_lost else None), 0.0
        )
        assert (latest.energy_joules or 0.0) >= before
        before = latest.energy_joules or 0.0


def test_what_is_asked_seldom_stays_beside_what_is_asked_often() -> None:
    latest = _latest(COUNTER, tick(1, power_watts=90.0, temperature_celsius=60.0), tick(2, power_watts=95.0))
    assert (latest.value("power_watts", 0.0), latest.value("temperature_celsius", 0.0)) == (95.0, 60.0)


def test_a_quantity_that_is_given_no_more_is_none() -> None:
    latest = _latest(COUNTER, tick(1, power_watts=90.0, utilization_pct=5.0), tick(60, utilization_pct=6.0))
    assert (latest.value("power_watts", 0.0), latest.value("utilization_pct", 0.0)) == (None, 6.0)


def test_a_lost_device_has_no_readings_and_keeps_its_joules() -> None:
    before = [tick(1, energy_joules=1.0, power_watts=9.0), tick(2, energy_joules=8.0, power_watts=9.0)]
    latest = _latest(COUNTER, *before, tick(3, error="GPU_IS_LOST"))
    assert (latest.value("power_watts", 0.0), latest.energy_joules) == (None, 7.0)


def test_nothing_of_a_silent_monitor_is_told_as_if_it_were_now() -> None:
    latest = _latest(COUNTER, tick(1, power_watts=90.0))
    assert (latest.value("power_watts", 10.0), latest.value("power_watts", 60.0)) == (90.0, None)


def test_a_batch_that_comes_late_changes_nothing() -> None:
    ticks = [
        tick(1, energy_joules=1.0),
        tick(5, energy_joules=9.0),
        tick(3, energy_joules=5.0, power_watts=1.0),
    ]
    latest = _latest(COUNTER, *ticks, tick(6, energy_joules=10.0))
    assert (latest.energy_joules, latest.value("power_watts", 0.0)) == (9.0, None)


def test_monitors_of_a_node_go_on_with_the_same_devices_and_nodes_have_their_own() -> None:
    readings = LatestReadings(clock=lambda: 0.0)
    infos = (_info(COUNTER), _info(COUNTER, "GPU-2"))
    nodes = [NodeInfo(name, infos, 0.1, ClockPair(0.0, 0.0)) for name in ("a", "a", "b")]
    for second, node in enumerate(nodes):
        ticks = [tick(second + 1, device, energy_joules=10.0 * second) for device in (0, 1)]
        readings.add(node, Batch(ticks, ClockPair(0.0, 0.0)))
    found = [(each.node_id, each.info.device_id, each.energy_joules) for each in readings.devices]
    assert found == [("a", "GPU-1", 10.0), ("a", "GPU-2", 10.0), ("b", "GPU-1", 0.0), ("b", "GPU-2", 0.0)]
