"""The shipped benchmarks, their samples, and the tables the hub would serve for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import load_benchmark
from evalray.datasets import DatasetProvider, open_dataset
from evalray.types import RunConfig

FOLDER = Path(__file__).parents[2] / "benchmarks"


def sample_rows(name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / name / "sample.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def sample() -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a benchmark's sample."""
    return sample_rows


@pytest.fixture
def load() -> Callable[..., DatasetProvider]:
    """A shipped benchmark over ``data``, loaded in the order of the data."""

    def loaded(name: str, data: Path | str = "sample", **config: Any) -> DatasetProvider:
        max_samples = config.pop("max_samples", None)
        run = RunConfig(name, "llamacpp", "m", data=str(data), **config)
        provider = open_dataset(load_benchmark(FOLDER / name), run)
        provider.load(seed=None, max_samples=max_samples)
        return provider

    return loaded


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
