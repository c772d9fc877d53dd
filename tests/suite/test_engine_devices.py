"""Which replicas book GPUs, and which have the cores to themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.plan_notes import deployment_notes
from evalray.suite.engine_choice import computes_on_cpu, gpus_per_replica


@pytest.mark.parametrize(
    ("arguments", "num_gpus", "gpus"),
    [
        ({}, None, 2),
        ({"pipeline_parallel_size": 3}, None, 6),
        ({"device": "cpu"}, None, 0),
        ({"device": "cpu"}, 2, 0),
        ({}, 0, 0),
    ],
)
def test_vllm_books_a_gpu_for_every_worker_unless_it_runs_on_cpu(
    arguments: dict[str, Any], num_gpus: int | None, gpus: int
) -> None:
    assert gpus_per_replica("vllm", 2, engine_args=arguments, num_gpus=num_gpus) == gpus
    assert computes_on_cpu("vllm", arguments, num_gpus) is (gpus == 0)


@pytest.mark.parametrize(("name", "on_cpu"), [("llamacpp", True), ("openai-compatible", False)])
def test_a_server_elsewhere_leaves_the_cores_alone(name: str, on_cpu: bool) -> None:
    assert computes_on_cpu(name, {"device": "cpu"}) is on_cpu


def test_a_checkpoint_that_is_not_there_is_noted_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalray.plan_notes._is_installed", lambda package: True)
    missing = EngineConfig(model="m", engine="vllm", path=str(tmp_path / "m"))
    assert "does not exist" in deployment_notes(missing, 0, joins_cluster=False)[0]
    assert (
        "config.json is missing"
        in deployment_notes(
            EngineConfig(model="m", engine="vllm", path=str(tmp_path)), 0, joins_cluster=False
        )[0]
    )
    (tmp_path / "config.json").write_text("{}")
    assert not deployment_notes(
        EngineConfig(model="m", engine="vllm", path=str(tmp_path)), 0, joins_cluster=False
    )
