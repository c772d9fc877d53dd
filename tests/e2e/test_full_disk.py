"""``evalray run`` on a disk that really is full, and again once there is room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

#: In a mount namespace of its own: nothing of it is left afterwards, however it ends.
_APART = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
_SCRIPT = """
mount -t tmpfs -o size=$1 small results || exit 77
shift
"$@" >first.json 2>first.err
echo $? >first.code
mount -o remount,size=64m small results || exit 78
"$@" >second.json 2>second.err
echo $? >second.code
cp results/sums/gsm8k_m/generations.jsonl .
"""


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    attempt = [*_APART, "mount", "-t", "tmpfs", "-o", "size=64k", "small", str(folder)]
    return subprocess.run(attempt, capture_output=True, timeout=20, check=False).returncode == 0


def test_a_full_disk_is_said_once_with_exit_code_3_and_continued_with_room(
    adder: Any, sums: Callable[[int], Path], tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    if not _can_mount(tmp_path / "results"):
        pytest.skip("no small file system can be mounted here")
    total = 600
    command = [sys.executable, "-m", "evalray", "run", "--json", "-b", "gsm8k", "-m", "m"]
    command += ["-e", "openai-compatible", "--base-url", adder.base_url, "--data", str(sums(total))]
    command += ["-w", "8", "--sweep-id", "sums", "--no-tracking"]
    clean = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")}
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [*_APART, "sh", "-c", _SCRIPT, "sh", "200k", *command],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": root, "CI": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "first.err").read_text()
    first = json.loads((tmp_path / "first.json").read_text())
    assert ((tmp_path / "first.code").read_text(), first["exit_code"]) == ("3\n", 3), said
    [error] = first["errors"]
    assert "No space left on device; free some space and run the same command again" in error
    [run] = first["runs"]
    assert (run["status"], run["reason"]) == ("partial", error)
    assert said.count("No space left") == 1, said
    assert "Traceback" not in said
    second = json.loads((tmp_path / "second.json").read_text())
    assert ((tmp_path / "second.code").read_text(), second["errors"]) == ("0\n", [])
    assert second["runs"][0]["status"] == "complete"
    lines = [json.loads(line) for line in (tmp_path / "generations.jsonl").read_text().splitlines()]
    assert Counter(line["position"] for line in lines) == Counter(range(total))
    assert sum(count > 1 for count in adder.seen().values()) <= 20
