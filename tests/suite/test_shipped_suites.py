"""The suites in ``configs/`` are valid, and the quick start needs nothing that is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalray.plan import make_plan
from evalray.suite import Registry, load_suite

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.name)
def test_a_shipped_suite_plans_without_a_warning(file: Path) -> None:
    registry = Registry.installed()
    plan = make_plan(load_suite(file, registry), registry=registry)
    assert plan.runs
    assert plan.warnings == []


def test_the_quick_start_reads_the_samples_that_its_benchmarks_carry() -> None:
    registry = Registry.installed()
    plan = make_plan(load_suite(CONFIGS / "quickstart.toml", registry), registry=registry)
    assert plan.skipped == []
    for run in plan.runs:
        assert run.benchmark is not None
        own = run.config.data or str(run.benchmark.folder / "sample.jsonl")
        assert Path(own) == run.benchmark.folder / "sample.jsonl"
        rows = Path(own).read_text(encoding="utf-8").splitlines()
        assert len(rows) >= (run.config.max_samples or 0) >= 30
