"""NVIDIA meters against the stub NVML, through the real pynvml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml
import pytest

from evalray.telemetry.meters import (
    EnergyMethod,
    EnergyScope,
    EstimateMeter,
    NullMeter,
    find_meters,
    nvidia_meters,
    visible_gpus,
)

Load = Callable[[Sequence[dict[str, Any]]], Any]
_POWER = [(0, 300.0), (10, 600.0)]


def test_the_counter_is_read_in_joules_by_uuid(stub_devices: Load) -> None:
    clock = stub_devices([{"uuid": "GPU-aaaa", "power": _POWER, "base_mj": 5_000_000}])
    (meter,) = nvidia_meters()
    assert meter.info.device_id == "GPU-aaaa"
    assert meter.info.energy_method is EnergyMethod.HW_COUNTER
    assert meter.info.energy_scope is EnergyScope.GPU
    clock.set(12.0)
    assert meter.read(slow=False).energy_joules == pytest.approx(5000 + 3000 + 1200)


def test_what_changes_slowly_is_read_only_when_asked(stub_devices: Load) -> None:
    stub_devices([{"power": _POWER, "utilization": 73}])
    (meter,) = nvidia_meters()
    quick, slow = meter.read(slow=False), meter.read(slow=True)
    assert (quick.power_watts, quick.utilization_pct, quick.temperature_celsius) == (300.0, 73.0, None)
    assert slow.memory_used_bytes == 81559 * 2**20 // 4
    assert (slow.sm_clock_mhz, slow.memory_clock_mhz, slow.temperature_celsius) == (1980.0, 2619.0, 55.0)
    assert slow.throttle_reasons == 4


@pytest.mark.parametrize(
    ("script", "method", "scope", "said"),
    [
        ({}, EnergyMethod.HW_COUNTER, EnergyScope.GPU, ""),
        ({"no_counter": 1}, EnergyMethod.INTEGRATED_POWER, EnergyScope.GPU, "no energy counter"),
        (
            {"no_counter": 1, "no_instant": 1},
            EnergyMethod.INTEGRATED_POWER,
            EnergyScope.GPU,
            "no energy counter",
        ),
        (
            {"no_counter": 1, "module_power": 1},
            EnergyMethod.INTEGRATED_POWER,
            EnergyScope.MODULE,
            "whole module",
        ),
        ({"no_counter": 1, "no_power": 1}, EnergyMethod.NONE, None, "neither energy nor power"),
        ({"mig": 1}, EnergyMethod.NONE, None, "MIG"),
    ],
)
def test_the_best_method_a_gpu_has_is_taken_and_said(
    stub_devices: Load, script: dict[str, Any], method: EnergyMethod, scope: EnergyScope | None, said: str
) -> None:
    stub_devices([{"power": _POWER, **script}])
    (meter,) = nvidia_meters()
    assert (meter.info.energy_method, meter.info.energy_scope) == (method, scope)
    assert said in meter.info.reason


@pytest.mark.parametrize(
    ("script", "average"),
    [
        ({}, False),
        ({"no_instant": 1}, True),
        ({"no_instant": 1, "name": "NVIDIA A100-SXM4-80GB", "arch": 7}, False),
        ({"no_instant": 1, "name": "NVIDIA A10", "arch": 7}, True),
        ({"no_instant": 1, "name": "Tesla T4", "arch": 6}, False),
    ],
)
def test_a_running_mean_of_power_is_known_as_one(
    stub_devices: Load, script: dict[str, Any], average: bool
) -> None:
    stub_devices([{"power": _POWER, **script}])
    (meter,) = nvidia_meters()
    assert meter.info.power_is_average is average


def test_a_mig_gpu_reads_neither_energy_nor_power(stub_devices: Load) -> None:
    stub_devices([{"power": _POWER, "mig": 1, "utilization": 50}])
    reading = nvidia_meters()[0].read(slow=True)
    assert (reading.energy_joules, reading.power_watts, reading.utilization_pct) == (None, None, None)
    assert reading.memory_used_bytes is not None


def test_a_lost_gpu_says_so_and_comes_back(stub_devices: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = stub_devices([{"power": _POWER, "lost_at": 1.0, "back_at": 2.0}])
    monkeypatch.setattr("evalray.telemetry.meters.nvidia.RETRY_SECONDS", 0.0)
    (meter,) = nvidia_meters()
    clock.set(1.5)
    assert meter.read(slow=False).error == "GPU_IS_LOST"
    assert meter.read(slow=False).energy_joules is None
    clock.set(2.5)
    assert meter.read(slow=False).energy_joules == pytest.approx(750)


def test_a_lost_gpu_is_not_asked_again_at_once(stub_devices: Load) -> None:
    clock = stub_devices([{"power": _POWER, "lost_at": 1.0, "back_at": 2.0}])
    (meter,) = nvidia_meters()
    clock.set(1.5)
    meter.read(slow=False)
    clock.set(2.5)
    assert meter.read(slow=False).error == "GPU_IS_LOST"


def test_one_failing_quantity_leaves_the_others(stub_devices: Load) -> None:
    stub_devices(
        [{"power": _POWER, "error_nvmlDeviceGetTemperature": 999, "error_nvmlDeviceGetClockInfo": 4}]
    )
    reading = nvidia_meters()[0].read(slow=True)
    assert (reading.temperature_celsius, reading.sm_clock_mhz, reading.error) == (None, None, None)
    assert reading.power_watts == 300.0


def test_a_gpu_that_cannot_be_opened_is_listed_with_the_code(stub_devices: Load) -> None:
    stub_devices([{"power": _POWER}, {"lost_at": 0}])
    good, bad = nvidia_meters()
    assert good.info.has_energy
    assert isinstance(bad, NullMeter)
    assert "GPU_IS_LOST" in bad.info.reason


@pytest.mark.parametrize(
    ("code", "said"), [(4, "NO_PERMISSION"), (999, "UNKNOWN"), (10, "TIMEOUT"), (19, "IN_USE"), (3, "vGPU")]
)
def test_a_counter_that_fails_from_the_start_leaves_integrated_power_and_says_why(
    stub_devices: Load, code: int, said: str
) -> None:
    stub_devices([{"power": _POWER, "error_nvmlDeviceGetTotalEnergyConsumption": code}])
    (meter,) = nvidia_meters()
    assert meter.info.energy_method is EnergyMethod.INTEGRATED_POWER
    assert said in meter.info.reason
    assert meter.read(slow=False).power_watts == 300.0


def test_a_name_or_uuid_that_is_no_text_takes_no_other_gpu_its_meter(
    stub_devices: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_devices([{"power": _POWER}, {"power": _POWER}])
    uuid = pynvml.nvmlDeviceGetUUID
    broken = iter([True, False])

    def no_text(_: Any) -> str:
        return b"\xff".decode()

    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda h: no_text(h) if next(broken) else uuid(h))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", no_text)
    first, second = nvidia_meters()
    assert (first.info.energy_method, second.info.energy_method) == ("none", "hw_counter")
    assert "UnicodeDecodeError" in first.info.reason
    assert second.info.name == "NVIDIA GPU"


def test_without_a_driver_there_are_no_meters(stub_devices: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_devices([])
    monkeypatch.setenv("EVALRAY_STUB_NVML", "/nowhere")
    assert nvidia_meters() == []


def test_an_estimate_is_made_only_when_asked_and_only_where_nothing_is_measured(stub_devices: Load) -> None:
    stub_devices([{"no_counter": 1, "no_power": 1, "utilization": 100}, {"power": _POWER}])
    assert [meter.info.energy_method for meter in nvidia_meters()] == ["none", "hw_counter"]
    guessed, measured = (meter for meter in find_meters(estimate=True) if meter.info.kind == "gpu")
    assert isinstance(guessed, EstimateMeter)
    assert guessed.info.energy_method is EnergyMethod.ESTIMATE
    assert guessed.read(slow=False).power_watts == pytest.approx(700.0)
    assert measured.info.energy_method is EnergyMethod.HW_COUNTER


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,2", [0, 2]),
        ("2,0", [2, 0]),
        ("GPU-bbbb", [1]),
        ("GPU-b", [1]),
        ("GPU-", []),
        ("", []),
        ("0,-1,2", [0]),
        ("0,7,1", [0]),
        ("1,1", [1]),
        ("MIG-1234-5678", [2]),
    ],
)
def test_cuda_visible_devices_are_found_by_index_uuid_or_slice(
    stub_devices: Load, visible: str, expected: list[int]
) -> None:
    uuids = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]
    stub_devices([{"uuid": uuid, "power": _POWER, "mig": uuid == "GPU-cccc"} for uuid in uuids])
    infos = [meter.info for meter in nvidia_meters()]
    assert [info.index for info in visible_gpus(infos, visible)] == expected
