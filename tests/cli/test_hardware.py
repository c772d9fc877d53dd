from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = ("hardware", "probe", "--threads", "1", "--seconds", "0.2")


def _run(cache: Path, *args: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "evalray", *args, "--json"],
        env=os.environ | {"EVALRAY_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_the_probe_prints_achievable_figures_and_keeps_them(tmp_path: Path) -> None:
    code, first = _run(tmp_path, *PROBE)
    assert code == 0
    assert first["probe"]["label"] == "achievable"
    assert first["probe"]["flops_per_second"] > 0
    again = _run(tmp_path, *PROBE)[1]["probe"]
    for figure in (
        "flops_per_second",
        "read_bytes_per_second",
    ):  # kept, or bettered where the machine was busy
        assert again[figure] >= first["probe"][figure]


def test_a_device_that_cannot_be_probed_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    code, report = _run(tmp_path, "hardware", "probe", "--device", "tpu")
    assert code == 1
    assert len(report["errors"]) == 1
    assert "neither cpu nor cuda" in report["errors"][0]
