from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalray.definition import Benchmark
from evalray.engines.base import EngineConfig
from evalray.plan import Deployment, Plan, PlannedRun
from evalray.types import RunConfig

_ENGINE = "runtime.scripted_engine:ScriptedEngine"


class Plans:
    """Makes plans whose prompts tell the scripted engine what to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def benchmark(self, name: str, prompts: list[str]) -> Benchmark:
        folder = self.folder / "benchmarks" / name
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"id": f"r{i}", "question": p, "answer": p.split()[-1]} for i, p in enumerate(prompts)]
        (folder / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Benchmark(
            name,
            folder,
            fields={"id": "id", "reference": "answer"},
            prompt_template="{{ question }}",
            scorer="number",
        )

    def run(self, benchmark: Benchmark, model: str = "scripted", **config: Any) -> PlannedRun:
        config = {"scorer": "number", "max_tokens": 16, **config}
        return PlannedRun(RunConfig(benchmark.name, "jarvis-direct", model, **config), benchmark)

    def deployment(self, runs: list[PlannedRun], *, in_flight: int = 4, **more: Any) -> Deployment:
        args = more.pop("engine_args", {})
        model = runs[0].config.model
        config = EngineConfig(model, _ENGINE, max_concurrency=in_flight, engine_args=args, max_retries=0)
        return Deployment(model, config, cpus_per_replica=0.1, runs=runs, **more)

    def plan(self, *deployments: Deployment, **more: Any) -> Plan:
        return Plan("test", "", "sweep", self.folder / "sweep", {}, list(deployments), **more)

    def one(self, prompts: list[str], *, engine_args: dict[str, Any] | None = None, **config: Any) -> Plan:
        """One benchmark ``b`` on one model."""
        run = self.run(self.benchmark("b", prompts), **config)
        return self.plan(self.deployment([run], engine_args=engine_args or {}))


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """The lines of a run's generations, or of another journal."""

    def read(run: str = "b_scripted", name: str = "generations") -> list[dict[str, Any]]:
        text = (tmp_path / "sweep" / run / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    return read


@pytest.fixture
def server() -> Iterator[Any]:
    """A judge over HTTP: ``judge_server.JudgeServer``."""
    spec = importlib.util.spec_from_file_location("judge_server", Path(__file__).with_name("judge_server.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.judge_server() as running:
        yield running
