"""What the page on benchmarks says is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from evalray import benchmarks, templates
from evalray.benchmarks import load_benchmark
from evalray.datasets import open_dataset
from evalray.settings import RunDefaults
from evalray.types import RunConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def block(language: str, containing: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    return found


@pytest.mark.parametrize(
    "name", sorted(file.parent.name for file in (ROOT / "benchmarks").glob("*/benchmark.toml"))
)
def test_every_shipped_benchmark_is_in_the_table_as_it_is(name: str) -> None:
    benchmark = load_benchmark(ROOT / "benchmarks" / name)
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| [`{name}`]")]
    assert f"`{benchmark.scorer}` |" in line
    assert ("**gated**" in line) is benchmark.gated
    assert ("streamed" in line) is benchmark.streaming
    if benchmark.data_path != "sample.jsonl":
        assert f"`{benchmark.data_path}`" in line


def test_every_key_of_a_definition_is_told() -> None:
    def keys(model: type[BaseModel], prefix: str) -> list[str]:
        return [f"`{prefix}{name}`" for name in model.model_fields]

    wanted = [
        key for key in keys(benchmarks._Definition, "") if key not in ("`data`", "`fields`", "`scorer`")
    ]
    wanted += keys(benchmarks._Data, "data.") + keys(benchmarks._Fields, "fields.")
    wanted += keys(benchmarks._Scorer, "scorer.") + keys(RunDefaults, "")
    assert [key for key in wanted if key not in PAGE] == []


def test_every_filter_of_ours_is_told() -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    ours = templates._environment().filters.keys() - ImmutableSandboxedEnvironment().filters.keys()
    assert ours
    assert [name for name in sorted(ours) if f"| `{name}" not in PAGE] == []


def test_the_smallest_benchmark_runs(tmp_path: Path) -> None:
    folder = tmp_path / "capitals"
    folder.mkdir()
    smallest = min((text for kind, text in BLOCKS if kind == "toml"), key=len)
    (folder / "benchmark.toml").write_text(smallest)
    (folder / "prompt.jinja").write_text(block("jinja", "capital of"))
    (folder / "sample.jsonl").write_text(block("json", "Oslo"))
    provider = open_dataset(load_benchmark(folder), RunConfig("capitals", "x", "m"))
    provider.load(seed=None)
    assert [(record.problem, record.reference) for record in provider.iter_records()] == [
        ("What is the capital of Norway? Reply with its name only.", "Oslo"),
        ("What is the capital of Kenya? Reply with its name only.", "Nairobi"),
    ]
    assert provider.bad_rows == []


def test_the_whole_definition_loads(tmp_path: Path) -> None:
    folder = tmp_path / "capitals"
    folder.mkdir()
    (folder / "benchmark.toml").write_text(block("toml", 'title = "Capitals"'))
    (folder / "prompt.jinja").write_text("{{ place }}")
    rows = '{"country": "Norway", "capital": "Oslo", "population": 5, "region": "", "continent": "Europe", "code": "no"}\n'
    (folder / "rows.jsonl").write_text(rows + rows.replace("5", "0"))
    benchmark = load_benchmark(folder)
    assert benchmark.revision == "v1.0"
    provider = open_dataset(benchmark, RunConfig("capitals", "x", "m", data=str(folder / "rows.jsonl")))
    provider.load()
    (record,) = provider.iter_records()
    assert (record.record_id, record.problem, record.subject) == ("no", "Norway", "Europe")
    assert provider.filtered_row_count == 1


def test_the_provider_runs(tmp_path: Path) -> None:
    folder = tmp_path / "squares"
    folder.mkdir()
    (folder / "benchmark.toml").write_text('provider = "squares.py:Squares"\n')
    (folder / "squares.py").write_text(block("python", "class Squares"))
    provider: Any = open_dataset(load_benchmark(folder), RunConfig("squares", "x", "m"))
    provider.load(max_samples=3)
    assert [record.reference for record in provider.iter_records()] == ["1", "4", "9"]
    assert provider.size() == 3
