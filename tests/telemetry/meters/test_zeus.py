"""The adapter to zeus, against objects of zeus's shape: its vendors' devices cannot be had here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from evalray.telemetry.meters import DeviceKind, EnergyMethod
from evalray.telemetry.meters.zeus import AmdMeter, SocMeter, counter_agrees


def _gpu(**answers: object) -> SimpleNamespace:
    def refuse() -> None:
        raise RuntimeError("not supported")

    names = ("get_name", "get_total_energy_consumption", "get_instant_power_usage", "get_average_power_usage")
    calls = dict.fromkeys((*names, "get_power_management_limit", "get_gpu_temperature"), refuse)
    return SimpleNamespace(**(calls | {name: (lambda value=value: value) for name, value in answers.items()}))


@pytest.mark.parametrize(
    ("joules", "watts", "agrees"),
    [
        (50, 100.0, True),
        (0, 100.0, False),
        (-1, 100.0, False),
        (1, 100.0, False),
        (600, 100.0, False),
        (5, None, True),
    ],
)
def test_a_counter_is_believed_only_where_power_bears_it_out(
    joules: float, watts: float | None, agrees: bool
) -> None:
    assert counter_agrees(joules, watts, 0.5) is agrees


def test_a_trusted_counter_is_read_in_joules() -> None:
    gpu = _gpu(get_name="MI300X", get_total_energy_consumption=5000, get_average_power_usage=300_000)
    meter = AmdMeter(gpu, 0, trusted=True, has_power=True)
    assert meter.info.energy_method is EnergyMethod.HW_COUNTER
    assert meter.read(slow=True)[:2] == (5.0, 300.0)


def test_a_counter_that_is_not_trusted_is_not_read() -> None:
    gpu = _gpu(get_total_energy_consumption=5000, get_instant_power_usage=300_000)
    meter = AmdMeter(gpu, 0, trusted=False, has_power=True)
    assert meter.info.energy_method is EnergyMethod.INTEGRATED_POWER
    assert meter.read(slow=False)[:2] == (None, 300.0)


def test_the_second_die_of_a_card_is_not_counted_again() -> None:
    meter = AmdMeter(_gpu(), 1, trusted=False, has_power=False)
    assert meter.info.energy_method is EnergyMethod.NONE
    assert "MI250X" in meter.info.reason


def test_a_rail_of_a_system_on_chip_is_read_in_joules() -> None:
    soc = SimpleNamespace(get_total_energy_consumption=lambda: SimpleNamespace(gpu_mj=1500))
    meter = SocMeter(soc, "gpu_mj", "gpu", DeviceKind.GPU, 1)
    assert meter.read(slow=False).energy_joules == 1.5
