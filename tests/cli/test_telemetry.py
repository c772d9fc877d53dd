from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalray.cli import main
from evalray.cli.tables import energy_lines
from evalray.errors import ConfigError, StoreError
from evalray.importing import import_path
from evalray.reports import PowerFiles, device_energy, measuring_notes, write_power
from evalray.runtime import RunOutcome, SweepResult
from evalray.telemetry import DeviceKind, DevicePower, PowerTimeline
from evalray.telemetry_report import telemetry_report
from evalray.types import RunSummary


def _telemetry(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalray", "telemetry", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _sweep(folder: Path, *names: str) -> Path:
    for name in names or ("b_m",):
        run = folder / name / "telemetry"
        run.mkdir(parents=True)
        device = {
            "device_id": "GPU-1",
            "name": "NVIDIA H200",
            "measured_joules": 150.0,
            "idle_joules": None,
        }
        figures = {"energy_joules": 100.0, "idle_joules": None, "mfu_pct": 12.5, "devices": [device]}
        (run / "run.json").write_text(json.dumps(figures))
    return folder


def _plotted(folder: Path) -> Path:
    watts = np.full(5, 300.0)
    device = DevicePower("n", "GPU-1", "NVIDIA H200", DeviceKind.GPU, 0, watts, watts, watts)
    write_power(_sweep(folder) / "b_m", PowerTimeline(0.0, 1.0, 0, (device,), np.ones(5), np.zeros(5)))
    return folder


def test_a_finished_sweep_shows_what_was_measured_and_a_dash_for_the_rest(tmp_path: Path) -> None:
    done = _telemetry(str(_sweep(tmp_path)))
    assert done.returncode == 0
    shown = done.stdout + done.stderr
    assert "12.5 %" in shown
    assert "150 J" in shown
    assert "–" in shown


def test_json_has_the_figures_as_they_are_and_the_files_of_the_plot(tmp_path: Path) -> None:
    found = json.loads(_telemetry(str(_plotted(tmp_path)), "--json").stdout)
    assert found["runs"]["b_m"]["mfu_pct"] == 12.5
    assert found["runs"]["b_m"]["idle_joules"] is None
    files = PowerFiles(tmp_path / "b_m")
    assert found["plots"] == {
        "b_m": {
            "parquet": str(files.timeline),
            "svg": str(files.plot("svg")),
            "png": str(files.plot("png")),
        }
    }
    assert found["plot"] is None


def test_a_folder_without_a_run_says_so_and_one_that_is_not_there_too(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no telemetry: holds no run"):
        telemetry_report(tmp_path)
    with pytest.raises(ConfigError, match="no such file or directory"):
        telemetry_report(tmp_path / "absent")


def _imported(tmp_path: Path, **changes: Any) -> Path:
    row = {"record_id": "s-1", "benchmark": "simpleqa", "model": "m", "backend": "jarvis-direct"}
    row |= {"model_answer": "x", "is_correct": True, "score": 1.0, "latency_seconds": 1.0, "error": None}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | changes) + "\n")
    return import_path(tmp_path / "rows.jsonl", output_dir=tmp_path / "results").directory


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"devices": 5}',
        '{"devices": [{"invalid_seconds": {"lost": 1}}]}',
        '{"devices": [{"device_id": "g", "invalid_seconds": {"lost": "x"}}]}',
        '{"steady": 5}',
    ],
)
def test_damaged_figures_are_named_and_hide_no_other_run(tmp_path: Path, content: str) -> None:
    sweep = _sweep(tmp_path, "b_m", "b_n")
    (sweep / "b_m" / "telemetry" / "run.json").write_text(content)
    found = telemetry_report(sweep)
    assert list(found.runs) == ["b_n"]
    assert any(
        "b_m/telemetry/run.json cannot be read" in note and "remove it" in note for note in found.notes
    )
    with pytest.raises(StoreError, match="cannot be read"):
        telemetry_report(sweep / "b_m")


@pytest.mark.parametrize(
    ("joules", "said"),
    [(12.5, "is in report.html (Speed and cost)"), (0.0, "its rows bring no energy figures")],
)
def test_an_imported_run_says_where_the_energy_it_brings_is_shown(
    tmp_path: Path, joules: float, said: str
) -> None:
    sweep = _imported(tmp_path, energy_joules=joules, power_watts=joules)
    with pytest.raises(StoreError, match=re.escape(said)) as caught:
        telemetry_report(sweep)
    assert "simpleqa_m: imported: EvalRay's meters did not see it" in str(caught.value)
    with pytest.raises(StoreError, match=re.escape(said)):
        telemetry_report(sweep / "simpleqa_m")
    assert ("12.5 J" in (sweep / "report.md").read_text()) is bool(joules)


def test_no_energy_is_written_as_a_power_of_ten(tmp_path: Path) -> None:
    sweep = _sweep(tmp_path)
    file = sweep / "b_m" / "telemetry" / "run.json"
    file.write_text(file.read_text().replace("100.0", "12345678.9"))
    [energy, _] = telemetry_report(sweep).tables
    assert "12,345,679 J" in energy.rows[0]
    summary = RunSummary("b", "c", "d", "m", 1, 1, 1, 1.0, 0, 1.0, None)
    summary.energy_method, summary.total_energy_joules = "nvml", 23_456.7
    [line, *_] = energy_lines([RunOutcome("b", "m", "complete", summary=summary)])
    assert "23,457 J" in line.plain


def test_beside_measured_runs_those_without_figures_are_named(tmp_path: Path) -> None:
    sweep = _sweep(_imported(tmp_path), "b_m")
    report = telemetry_report(sweep)
    assert list(report.runs) == ["b_m"]
    assert any(note.startswith("simpleqa_m: imported") for note in report.notes)


@pytest.mark.parametrize(
    ("engine", "telemetry", "said"),
    [
        ("openai-compatible", True, "openai-compatible passes requests on to a server"),
        ("llamacpp", False, "telemetry = false"),
        ("llamacpp", True, "nothing was generated"),
    ],
)
def test_a_run_without_figures_says_which_reason_it_is(
    tmp_path: Path, engine: str, telemetry: bool, said: str
) -> None:
    sweep = _imported(tmp_path)
    file = sweep / "simpleqa_m" / "run.json"
    manifest = json.loads(file.read_text())
    manifest["config"]["telemetry"] = telemetry
    manifest["info"] = {"engine": engine}
    file.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=said):
        telemetry_report(sweep)


def test_a_plot_that_is_missing_is_drawn_again_and_named(tmp_path: Path) -> None:
    files = PowerFiles(_plotted(tmp_path) / "b_m")
    before = files.plot("svg").read_bytes()
    files.plot("svg").unlink()
    done = _telemetry(str(tmp_path / "b_m"))
    assert done.returncode == 0
    assert files.plot("svg").read_bytes() == before
    assert str(files.plot("svg")) in done.stderr


def test_a_run_of_which_no_reading_is_left_shows_its_figures_and_says_why_there_is_no_plot(
    tmp_path: Path,
) -> None:
    done = _telemetry(str(_sweep(tmp_path)))
    assert done.returncode == 0
    assert "b_m: power is not plotted" in done.stderr
    assert "has no readings" in done.stderr


def test_a_plot_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.png"
    done = _telemetry(str(_plotted(tmp_path)), "--plot", str(target), "--json")
    assert done.returncode == 0
    assert target.read_bytes() == PowerFiles(tmp_path / "b_m").plot("png").read_bytes()
    assert json.loads(done.stdout)["plot"] == str(target)


@pytest.mark.parametrize(
    ("names", "file", "code", "said"),
    [
        (("b_m",), "plot.pdf", 2, "ends in .svg or .png"),
        (("b_m", "b_n"), "plot.svg", 2, "holds 2 runs"),
        (("b_m",), "plot.svg", 1, "has no readings"),
    ],
)
def test_a_plot_that_cannot_be_drawn_says_why(
    tmp_path: Path, names: tuple[str, ...], file: str, code: int, said: str
) -> None:
    done = _telemetry(str(_sweep(tmp_path, *names)), "--plot", str(tmp_path / file))
    assert done.returncode == code
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / file).exists()


def test_a_plot_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    done = _telemetry(str(_plotted(tmp_path)), "--plot", str(tmp_path / "nowhere" / "plot.svg"))
    assert done.returncode == 1
    assert "cannot be written" in done.stderr


def _summary(**figures: Any) -> RunSummary:
    return RunSummary(
        "b", "c", "jarvis-direct", "m", 1, 1, 1, 1.0, 0, None, None, energy_method="rapl", **figures
    )


def test_emissions_are_shown_where_the_summary_has_them(tmp_path: Path) -> None:
    folder = _sweep(tmp_path)
    assert "CO2e" not in _telemetry(str(folder)).stdout
    (folder / "b_m.summary.json").write_text(json.dumps(asdict(_summary(gco2e=12.5))))
    assert "12.5 g" in _telemetry(str(folder / "b_m")).stdout
    assert json.loads(_telemetry(str(folder), "--json").stdout)["runs"]["b_m"]["gco2e"] == 12.5


def test_the_ending_of_a_sweep_shows_emissions() -> None:
    summary = _summary(total_energy_joules=100.0, gco2e=0.0125)
    [line, *_] = energy_lines([RunOutcome("b", "m", "complete", summary=summary)])
    assert "0.0125 gCO2e" in line.plain


def test_the_ending_of_a_sweep_says_that_joules_are_an_estimate_and_shows_large_ones_whole() -> None:
    summary = _summary(total_energy_joules=123456.7, energy_reason="a guess")
    summary.energy_method = "estimate"
    first, second = energy_lines([RunOutcome("b", "m", "complete", summary=summary)])
    assert "123,457 J" in first.plain
    assert "energy by estimate: a guess" in second.plain


def test_devices_that_no_engine_of_the_run_used_are_not_in_its_table() -> None:
    def device(number: int, **more: Any) -> dict[str, Any]:
        return {"device_id": f"GPU-{number}", "name": "NVIDIA L4", "measured_joules": 12345.6, **more}

    own = device(0, engines=["m/0"], energy_method="integrated_power", reason="no energy counter")
    blind = device(1, engines=["m/1"], energy_method="none", reason="a MIG slice")
    table = device_energy({"b_m": {"devices": [own, blind, device(2, engines=[])]}})
    assert [row[0] for row in table.rows] == ["NVIDIA L4 (GPU-0)", "NVIDIA L4 (GPU-1)"]
    assert table.rows[0][2] == "12,346 J"
    assert [row[-1] for row in table.rows] == ["integrated_power: no energy counter", "a MIG slice"]


def test_summarize_shows_energy_and_utilisation_as_the_sweep_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = RunOutcome("b", "m", "complete", summary=_summary(total_energy_joules=742.0, mfu_pct=12.5))
    result = SweepResult("s", tmp_path, 0, [outcome])
    monkeypatch.setattr("evalray.api.summarize_path", lambda path: result)
    with pytest.raises(SystemExit):
        main(["summarize", str(tmp_path)])
    out = capsys.readouterr().out
    assert "742 J" in out
    assert "MFU 12.5 %" in out


def test_reasons_and_peaks_say_what_of_and_whose_they_are() -> None:
    known = {"peak": "5 GFLOP/s", "energy_reason": "no meter"}
    assert measuring_notes(
        {"b_m": known, "b_n": {"utilization_reason": "no peak", "energy_reason": "no meter"}}
    ) == [
        "energy: no meter",
        "b_n: MFU and MBU: no peak",
        "b_m: MFU and MBU are of 5 GFLOP/s",
    ]
