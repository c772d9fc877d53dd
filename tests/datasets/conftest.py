"""Benchmarks and files for the data tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from evalray.datasets import DatasetProvider, open_dataset
from evalray.definition import Benchmark
from evalray.types import RunConfig


def _benchmark(**changes: Any) -> Benchmark:
    settings: dict[str, Any] = {
        "name": "questions",
        "folder": Path("questions"),
        "fields": {"reference": "answer"},
        "prompt_template": "Question: {{ question }}",
    }
    return Benchmark(**(settings | changes))


def _loaded(data: Path | str, *, seed: int | None = 42, **settings: Any) -> DatasetProvider:
    max_samples = settings.pop("max_samples", None)
    names = {"record_ids", "dataset_split", "dataset_subset"} & settings.keys()
    config = {name: settings.pop(name) for name in names}
    run = RunConfig("questions", "llamacpp", "m", data=str(data), **config)
    provider = open_dataset(_benchmark(**settings), run)
    provider.load(max_samples=max_samples, seed=seed)
    return provider


@pytest.fixture
def make_benchmark() -> Callable[..., Benchmark]:
    """A benchmark with the columns question and answer; keyword arguments change it."""
    return _benchmark


@pytest.fixture
def load() -> Callable[..., DatasetProvider]:
    """That benchmark over ``data``, loaded; keyword arguments for load, config or benchmark."""
    return _loaded


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSON lines; a string is written as it is."""

    def write(rows: Iterable[dict[str, Any] | str], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def numbered_rows() -> Callable[[int], list[dict[str, Any]]]:
    return lambda count: [{"question": f"What is {i}?", "answer": str(i)} for i in range(count)]
