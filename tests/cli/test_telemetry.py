from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def _telemetry(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evalray", "telemetry", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _sweep(folder: Path) -> Path:
    run = folder / "b_m" / "telemetry"
    run.mkdir(parents=True)
    device = {"device_id": "GPU-1", "name": "NVIDIA H200", "measured_joules": 150.0, "idle_joules": None}
    figures = {"energy_joules": 100.0, "idle_joules": None, "mfu_pct": 12.5, "devices": [device]}
    (run / "run.json").write_text(json.dumps(figures))
    return folder


def test_a_finished_sweep_shows_what_was_measured_and_a_dash_for_the_rest(tmp_path: Path) -> None:
    done = _telemetry(str(_sweep(tmp_path)))
    assert done.returncode == 0
    shown = done.stdout + done.stderr
    assert "12.5 %" in shown
    assert "150 J" in shown
    assert "–" in shown


def test_json_has_the_figures_as_they_are(tmp_path: Path) -> None:
    found = json.loads(_telemetry(str(_sweep(tmp_path)), "--json").stdout)
    assert found["runs"]["b_m"]["mfu_pct"] == 12.5
    assert found["runs"]["b_m"]["idle_joules"] is None


def test_a_folder_without_telemetry_says_why(tmp_path: Path) -> None:
    done = _telemetry(str(tmp_path))
    assert done.returncode != 0
    assert "only local engines are measured" in " ".join(done.stderr.split())
