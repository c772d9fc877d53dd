"""RAPL against a powercap tree of plain files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evalray.telemetry.meters import DeviceKind, EnergyMethod, EnergyScope, NullMeter, rapl_meters

_WRAP = 262_143_328_850


def _zone(root: Path, name: str, label: str, microjoules: int, limit_watts: int | None = 250) -> Path:
    zone = root / name
    zone.mkdir(parents=True)
    (zone / "name").write_text(f"{label}\n")
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text(f"{_WRAP}\n")
    if limit_watts is not None:
        (zone / "constraint_0_power_limit_uw").write_text(f"{limit_watts * 1_000_000}\n")
    return zone


def test_packages_and_dram_are_taken_and_their_parts_are_not(tmp_path: Path) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 10)
    _zone(tmp_path, "intel-rapl:0:0", "core", 5)
    _zone(tmp_path, "intel-rapl:0:1", "dram", 3)
    _zone(tmp_path, "intel-rapl:1", "package-1", 20)
    _zone(tmp_path, "intel-rapl:2", "psys", 50)
    _zone(tmp_path, "intel-rapl-mmio:0", "package-0", 10)
    infos = [meter.info for meter in rapl_meters(tmp_path)]
    assert [(info.device_id, info.kind) for info in infos] == [
        ("rapl:package-0", DeviceKind.CPU),
        ("rapl:package-0:dram", DeviceKind.DRAM),
        ("rapl:package-1", DeviceKind.CPU),
    ]
    assert {(info.energy_method, info.energy_scope) for info in infos} == {
        (EnergyMethod.RAPL, EnergyScope.PACKAGE)
    }


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    zone = _zone(tmp_path, "intel-rapl:0", "package-0", _WRAP - 1_000_000)
    (meter,) = rapl_meters(tmp_path)
    before = meter.read(slow=False).energy_joules
    (zone / "energy_uj").write_text("500000")
    after = meter.read(slow=False).energy_joules
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(1.5)


def test_an_unreadable_counter_is_none_with_how_to_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 10)
    refuse = os.open

    def guarded(path: object, flags: int, *rest: int) -> int:
        if str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied", str(path))
        return refuse(path, flags, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", guarded)  # root may read everything, so the refusal is played
    (meter,) = rapl_meters(tmp_path)
    assert isinstance(meter, NullMeter)
    assert meter.info.energy_method is EnergyMethod.NONE
    assert "chmod a+r" in meter.info.reason
    assert meter.read(slow=True).energy_joules is None


def test_a_counter_that_goes_away_is_an_error_and_not_a_zero(tmp_path: Path) -> None:
    zone = _zone(tmp_path, "intel-rapl:0", "package-0", 10)
    (meter,) = rapl_meters(tmp_path)
    (zone / "energy_uj").write_text("")
    reading = meter.read(slow=False)
    assert reading.energy_joules is None
    assert reading.error is not None


@pytest.mark.parametrize(
    ("limit", "expected"), [(250, 250.0), (0, 2000.0), (None, 2000.0), (999_999, 2000.0)]
)
def test_an_absurd_limit_is_replaced(tmp_path: Path, limit: int | None, expected: float) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 10, limit)
    assert rapl_meters(tmp_path)[0].info.power_limit_watts == expected


def test_the_root_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _zone(tmp_path, "intel-rapl:0", "package-0", 10)
    monkeypatch.setenv("EVALRAY_POWERCAP_ROOT", str(tmp_path))
    assert len(rapl_meters()) == 1


def test_a_machine_without_rapl_has_no_such_meter(tmp_path: Path) -> None:
    assert rapl_meters(tmp_path / "absent") == []
