"""A registry that does not depend on what this version has, and a place to write suite files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evalray.benchmarks import BenchmarkListing
from evalray.definition import Benchmark
from evalray.suite import Registry, Suite, load_suite


def listed(benchmark: Benchmark) -> BenchmarkListing:
    return BenchmarkListing(benchmark.name, benchmark.folder, "./benchmarks", benchmark)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    folder = tmp_path / "benchmarks" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "sample.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    gsm8k = Benchmark(
        name="gsm8k",
        folder=folder,
        scorer="number",
        scorer_args={"tolerance": 0.01},
        split="test",
        fewshot=({"question": "2 + 2?", "answer": "4"},),
        defaults={"max_tokens": 300, "stop": ["Question:"]},
    )
    quickstart = Benchmark(name="quickstart", folder=folder, scorer="mcq")
    return Registry(
        engines=frozenset({"llamacpp", "openai-compatible"}),
        scorers=frozenset({"mcq", "number", "exact"}),
        benchmarks={"gsm8k": listed(gsm8k), "quickstart": listed(quickstart)},
    )


@pytest.fixture
def write_suite(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "suite.toml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def load(registry: Registry, write_suite: Callable[..., Path]) -> Callable[[str], Suite]:
    return lambda text: load_suite(write_suite(text), registry)
