"""Every shipped sample has the hub's exact columns and goes through the loaders that the hub's data takes."""

from __future__ import annotations

import importlib.util
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from evalray.benchmarks import load_benchmark  # noqa: E402

FOLDER = Path(__file__).parents[2] / "benchmarks"


def _schemas() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("hub_schemas", Path(__file__).with_name("hub_schemas.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.HUB_SCHEMAS


HUB_SCHEMAS = _schemas()
NAMES = sorted(HUB_SCHEMAS)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def with_times(value: Any, kind: Any) -> Any:
    """JSON has no times: texts become times where the hub's type is one."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_list(kind):
        return [with_times(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        assert set(value) == {field.name for field in kind}
        return {field.name: with_times(value[field.name], field.type) for field in kind}
    return value


def hub_table(name: str, rows: list[dict[str, Any]]) -> Any:
    schema = HUB_SCHEMAS[name]
    return pa.Table.from_pylist(
        [{field.name: with_times(row[field.name], field.type) for field in schema} for row in rows], schema
    )


def test_every_shipped_benchmark_with_data_on_the_hub_is_covered() -> None:
    own = {"quickstart", "gsm8k"}
    shipped = {file.parent.name for file in FOLDER.glob("*/benchmark.toml")}
    assert shipped - own == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_has_the_columns_of_the_hub_and_no_other(name: str, sample: Any) -> None:
    rows = sample(name)
    assert 3 <= len(rows) <= 6
    for row in rows:
        assert list(row) == HUB_SCHEMAS[name].names
    hub_table(name, rows)  # raises where a value has another type


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_loads_without_a_bad_row(name: str, load: Any) -> None:
    provider = load(name)
    assert provider.bad_rows == []
    assert provider.size() >= 3
    for record in provider.iter_records():
        assert record.problem.strip()
        assert record.reference.strip()
        assert record.category == load_benchmark(FOLDER / name).category
    with_subjects = {record.subject != "" for record in provider.iter_records()}
    assert with_subjects == {name != "natural-reasoning"}


@pytest.mark.parametrize("name", NAMES)
def test_parquet_gives_the_records_and_the_digest_of_the_sample(
    name: str, load: Any, sample: Any, tmp_path: Path
) -> None:
    path = tmp_path / "hub.parquet"
    parquet.write_table(hub_table(name, sample(name)), path)
    if name == "gaia":
        shutil.copytree(FOLDER / "gaia" / "2023", tmp_path / "2023")
    lines = load(name)
    if load_benchmark(FOLDER / name).streaming:
        table = load(name, path, max_samples=100)
        assert list(table.iter_records()) == list(lines.iter_records())
        assert table.filtered_row_count == lines.filtered_row_count > 0
        return
    table = load(name, path)
    found = list(table.iter_records())
    if name == "gaia":
        for record in found:
            moved = record.metadata["file_path"]
            here = moved.replace(str(tmp_path), str(FOLDER / "gaia"))
            record.metadata["file_path"] = here
            record.problem = record.problem.replace(moved, here) if moved else record.problem
    assert found == list(lines.iter_records())
    assert table.digest() == lines.digest()


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_the_hubs_files_is_read_by_its_split(
    name: str, load: Any, sample: Any, tmp_path: Path
) -> None:
    benchmark = load_benchmark(FOLDER / name)
    if benchmark.files or benchmark.streaming:
        pytest.skip("has a layout of its own, or is read as a stream")
    folder = tmp_path / "data"
    folder.mkdir()
    rows = sample(name)
    parquet.write_table(hub_table(name, rows), folder / f"{benchmark.split}-00000-of-00001.parquet")
    other = "train" if benchmark.split != "train" else "test"
    parquet.write_table(hub_table(name, rows[:1]), folder / f"{other}-00000-of-00001.parquet")
    assert load(name, folder).size() == load(name).size()


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_names_source_licence_prompt_and_scorer(name: str) -> None:
    text = (FOLDER / name / "README.md").read_text(encoding="utf-8")
    benchmark = load_benchmark(FOLDER / name)
    assert f"https://huggingface.co/datasets/{benchmark.data_path}" in text
    assert f"split `{benchmark.split}`" in text
    assert f"| scorer | `{benchmark.scorer}`" in text
    for row in ("| licence |", "| access |", "| prompt |", "| columns |"):
        assert row in text
    assert ("HF_TOKEN" in text) is benchmark.gated
