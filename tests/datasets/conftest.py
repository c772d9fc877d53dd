"""Benchmarks and files for the data tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import Benchmark
from evalray.datasets import DatasetProvider, open_dataset
from evalray.types import RunConfig

REPOSITORY = Path(__file__).parents[2]


def question_benchmark(folder: Path, **changes: Any) -> Benchmark:
    settings: dict[str, Any] = {
        "name": "questions",
        "folder": folder,
        "fields": {"reference": "answer"},
        "prompt_template": "Question: {{ question }}",
    }
    return Benchmark(**(settings | changes))


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def numbered_rows(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {i}?", "answer": str(i)} for i in range(count)]


def loaded(data: Path | str, *, seed: int | None = 42, **settings: Any) -> DatasetProvider:
    """The questions benchmark over ``data``; ``settings`` for load, the config or the benchmark."""
    config_keys = {"record_ids", "dataset_split", "dataset_subset"}
    max_samples = settings.pop("max_samples", None)
    config = {key: settings.pop(key) for key in config_keys & settings.keys()}
    run = RunConfig("questions", "llamacpp", "m", data=str(data), **config)
    provider = open_dataset(question_benchmark(Path("questions"), **settings), run)
    provider.load(max_samples=max_samples, seed=seed)
    return provider


@pytest.fixture
def json_lines(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: Iterable[dict[str, Any]], name: str = "rows.jsonl") -> Path:
        return write_json_lines(tmp_path / name, rows)

    return write
