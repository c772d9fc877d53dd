"""A replica that is larger than a node, on a cluster of two: what it gets, and what is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).with_name("spanning.py")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What :mod:`spanning` tells, by sweep; a test session has one Ray, and this is another."""
    folder = tmp_path_factory.mktemp("spanning")
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    value: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return value


def test_it_gets_its_gpus_on_several_nodes_again_after_a_death(told: dict[str, Any]) -> None:
    sweep = told["dying"]
    assert (sweep["exit_code"], sweep["outcomes"]) == (0, {"correct": 21}), sweep
    assert (sweep["workers"], sweep["nodes"]) == ([4, 4], [2, 2])
    assert any("4 GPUs, more than any node has" in line for line in sweep["said"]), sweep


def test_a_stage_larger_than_a_node_is_packed_by_ray(told: dict[str, Any]) -> None:
    sweep = told["packed"]
    assert (sweep["outcomes"], sweep["workers"], sweep["nodes"]) == ({"correct": 20}, [3], [2]), sweep


def test_its_energy_is_null_with_the_reason_and_never_that_of_one_node(told: dict[str, Any]) -> None:
    joules, method, reason = told["dying"]["energy"]
    assert (joules, method) == (None, "none")
    assert "several nodes" in reason


def test_what_the_whole_cluster_has_not_is_named_in_time(told: dict[str, Any]) -> None:
    sweep = told["large"]
    assert sweep["exit_code"] == 1
    assert "no place within 5 s" in sweep["reason"]
    assert "5 GPUs (the cluster has 4) over several nodes" in sweep["reason"]


@pytest.mark.parametrize("how", ["dying", "packed", "large", "interrupted", "killed"])
def test_nothing_of_it_is_left_however_it_ends(told: dict[str, Any], how: str) -> None:
    sweep = told[how]
    assert (sweep["gpus_free"], sweep["no_group"], sweep["no_worker"]) == (True, True, True), sweep


def test_a_stopped_driver_was_at_work(told: dict[str, Any]) -> None:
    assert (told["interrupted"]["began"], told["interrupted"]["exit_code"]) == (True, 130)
    assert (told["killed"]["began"], told["killed"]["exit_code"]) == (True, -9)
    assert told["killed"]["nodes"] == [2]
