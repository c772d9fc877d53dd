"""Which devices a sample's energy is of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    DeviceSeries,
    EnergyMethod,
    EnergyScope,
    EngineUse,
    ModelShape,
    RequestLog,
    analyse,
    energy_basis,
)

_CPU = DeviceInfo("rapl:package-0", DeviceKind.CPU, "package-0", 0, EnergyMethod.RAPL, EnergyScope.PACKAGE)
_DRAM = DeviceInfo(
    "rapl:package-0:dram", DeviceKind.DRAM, "package-0:dram", 1, EnergyMethod.RAPL, EnergyScope.PACKAGE
)
_GPU = DeviceInfo("GPU-a", DeviceKind.GPU, "stub", 0, EnergyMethod.HW_COUNTER, EnergyScope.GPU)
_OLD = DeviceInfo("GPU-b", DeviceKind.GPU, "old", 1, EnergyMethod.INTEGRATED_POWER, EnergyScope.GPU)
_WATTS = {_CPU.device_id: 60.0, _DRAM.device_id: 10.0, _GPU.device_id: 300.0}


def _series(info: DeviceInfo) -> DeviceSeries:
    seconds = np.arange(0.0, 10.0, 0.1)
    unknown = np.full(len(seconds), np.nan)
    return DeviceSeries(
        info, seconds, seconds * _WATTS[info.device_id], unknown, unknown, np.zeros(len(seconds), np.bool_)
    )


def _row(shape: ModelShape, *infos: DeviceInfo) -> dict[str, object]:
    log = RequestLog()
    log.add(0, sent=2.0, first_token=3.0, end=6.0, prompt_tokens=10, output_tokens=20)
    ids = tuple(info.device_id for info in infos)
    series = {info.device_id: _series(info) for info in infos}
    return analyse(series, log.columns(), [EngineUse("e", ids, shape)]).figures.row(0)


@pytest.fixture
def shape(shape_named: Callable[[str], ModelShape]) -> ModelShape:
    return shape_named("Llama-3.1-8B")


def test_an_engine_on_the_processor_has_the_joules_of_package_and_memory(shape: ModelShape) -> None:
    row = _row(shape, _CPU, _DRAM)
    assert row["energy_joules"] == pytest.approx(280.0, rel=0.05)
    assert row["cpu_energy_joules"] == pytest.approx(240.0, rel=0.05)
    assert row["dram_energy_joules"] == pytest.approx(40.0, rel=0.05)
    assert (row["gpu_energy_joules"], row["gpu_seconds"]) == (None, None)
    assert (row["energy_method"], row["energy_scope"]) == ("rapl", "package")


def test_the_processors_joules_stand_beside_a_gpu_engines_and_are_not_added(shape: ModelShape) -> None:
    row = _row(shape, _GPU, _CPU)
    assert row["energy_joules"] == row["gpu_energy_joules"] == pytest.approx(1200.0, rel=0.05)
    assert row["cpu_energy_joules"] == pytest.approx(240.0, rel=0.05)
    assert row["power_watts"] == pytest.approx(300.0)
    assert (row["energy_method"], row["gpu_seconds"]) == ("hw_counter", pytest.approx(4.0, rel=0.05))


@pytest.mark.parametrize(
    ("devices", "method", "scope"),
    [
        ((_GPU,), "hw_counter", "gpu"),
        ((_GPU, _OLD), "mixed", "gpu"),
        ((_OLD, _CPU), "integrated_power", "gpu"),
        ((), "none", None),
    ],
)
def test_the_method_is_of_the_devices_that_are_summed(
    devices: tuple[DeviceInfo, ...], method: str, scope: str | None
) -> None:
    ids = tuple(info.device_id for info in devices)
    basis = energy_basis(EngineUse("e", ids), {info.device_id: info for info in devices})
    assert (basis.energy_method, basis.energy_scope) == (method, scope)
    assert bool(basis.reason) == (not devices)
