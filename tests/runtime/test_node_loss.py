from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).with_name("node_loss.py")


@pytest.mark.slow
def test_what_was_in_flight_on_a_lost_node_is_done_on_another_and_no_sample_is_blamed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "told.json").read_text())
    assert result["outcomes"] == {"correct": 150}, result
    assert result["exit_code"] == 0
    assert any("node was lost" in line for line in result["said"]), result
