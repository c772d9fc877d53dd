"""OpenJarvis's own suite files load and plan unchanged.

``EVALRAY_OPENJARVIS_SUITES`` may point at a folder of them, such as the one its wheel carries.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evalray.plan import make_plan, plan_to_dict
from evalray.suite import Registry, load_suite

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "openjarvis"
FOLDERS = [SHARED, *(Path(p) for p in [os.environ.get("EVALRAY_OPENJARVIS_SUITES")] if p)]
FILES = sorted(file for folder in FOLDERS for file in folder.glob("*.toml"))


@pytest.mark.skipif(not FILES, reason="no OpenJarvis suites on this machine")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_cell_is_planned(file: Path) -> None:
    registry = Registry.installed()
    suite = load_suite(file, registry)
    plan = make_plan(suite, registry=registry)
    assert len(plan.runs) + len(plan.skipped) == len(suite.models) * len(suite.benchmarks)
    assert all(run.reason for run in plan.skipped)
    json.dumps([plan.suite, plan_to_dict(plan)])


@pytest.mark.skipif(not SHARED.is_dir(), reason="no OpenJarvis suites on this machine")
def test_num_gpus_is_the_default_of_tensor_parallel_size(registry: Registry) -> None:
    suite = load_suite(SHARED / "smoke_nvidia.toml", registry)
    with_vllm = Registry(registry.engines | {"vllm"}, registry.scorers, registry.benchmarks)
    listing = registry.benchmarks["gsm8k"]
    with_vllm.benchmarks["supergpqa"] = listing
    plan = make_plan(suite, registry=with_vllm)
    parallel = {d.model: d.engine_config.tensor_parallel_size for d in plan.deployments}
    assert parallel["openai/gpt-oss-120b"] == 2
    assert parallel["openai/gpt-oss-20b"] == 1
