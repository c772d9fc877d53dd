from __future__ import annotations

import os
import subprocess
import sys

import pytest

from evalray.datasets import open_dataset
from evalray.errors import ConfigError, DatasetError
from evalray.types import RunConfig


def run(**settings) -> RunConfig:
    return RunConfig("questions", "llamacpp", "m", **settings)


def problems_seen(provider) -> set[str]:
    provider.load()
    return {record.problem for record in provider.iter_records()}


def rows(*names: str) -> list[dict[str, str]]:
    return [{"question": name, "answer": "1"} for name in names]


def test_without_data_the_sample_of_the_benchmark_is_used(make_benchmark, write_rows, tmp_path) -> None:
    write_rows(rows("own"), "sample.jsonl")
    assert problems_seen(open_dataset(make_benchmark(folder=tmp_path), run())) == {"Question: own"}


def test_sample_can_be_asked_for_by_name(make_benchmark, write_rows, tmp_path) -> None:
    write_rows(rows("own"), "sample.jsonl")
    benchmark = make_benchmark(folder=tmp_path, data_path="somebody/elsewhere")
    assert problems_seen(open_dataset(benchmark, run(data="sample"))) == {"Question: own"}


def test_data_path_is_relative_to_the_benchmark(make_benchmark, write_rows, tmp_path) -> None:
    write_rows(rows("own"), "more.jsonl")
    benchmark = make_benchmark(folder=tmp_path, data_path="more.jsonl")
    assert problems_seen(open_dataset(benchmark, run())) == {"Question: own"}


def test_data_is_relative_to_the_suite_and_then_to_the_working_directory(
    make_benchmark, write_rows, tmp_path, monkeypatch
) -> None:
    here, suite = tmp_path / "here", tmp_path / "suite"
    here.mkdir()
    suite.mkdir()
    write_rows(rows("here"), "here/both.jsonl")
    write_rows(rows("suite"), "suite/both.jsonl")
    write_rows(rows("only here"), "here/one.jsonl")
    monkeypatch.chdir(here)
    opened = {
        name: open_dataset(make_benchmark(), run(data=name), suite_dir=suite)
        for name in ("both.jsonl", "one.jsonl")
    }
    assert {name: problems_seen(provider) for name, provider in opened.items()} == {
        "both.jsonl": {"Question: suite"},
        "one.jsonl": {"Question: only here"},
    }


def test_glob_takes_files_in_the_order_of_their_names(make_benchmark, write_rows, tmp_path) -> None:
    for name in ("b", "a", "c"):
        write_rows(rows(name), f"part-{name}.jsonl")
    provider = open_dataset(make_benchmark(), run(data=str(tmp_path / "part-[ab].jsonl")))
    provider.load(seed=None)
    assert [record.problem for record in provider.iter_records()] == ["Question: a", "Question: b"]


def test_folder_takes_the_files_of_the_split_and_else_all(make_benchmark, write_rows, tmp_path) -> None:
    (tmp_path / "f").mkdir()
    write_rows(rows("t"), "f/test.jsonl")
    write_rows(rows("t2"), "f/test-00001.jsonl")
    write_rows(rows("v"), "f/validation.jsonl")
    (tmp_path / "f" / "README.md").write_text("no data")
    folder = str(tmp_path / "f")
    assert problems_seen(open_dataset(make_benchmark(), run(data=folder))) == {"Question: t", "Question: t2"}
    asked = open_dataset(make_benchmark(), run(data=folder, dataset_split="validation"))
    assert problems_seen(asked) == {"Question: v"}
    unnamed = open_dataset(make_benchmark(), run(data=folder, dataset_split="dev"))
    assert len(problems_seen(unnamed)) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("absent.jsonl", "no such data: absent.jsonl; looked for "),
        ("./absent", "no such data"),
        ("absent/*.csv", "no such data"),
        ("a/b/c", "no such data"),
        ("two words", "neither a file, glob or folder that exists nor a hub name"),
        ("notes.txt", r"files named \*.txt cannot be read as data; known are .jsonl"),
        ("empty", "holds no data files"),
        ("mixed.*", "mixes Parquet and text files"),
    ],
)
def test_data_that_cannot_be_had_says_why(make_benchmark, tmp_path, monkeypatch, data, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed.csv").write_text("x")
    (tmp_path / "mixed.parquet").write_text("x")
    with pytest.raises(DatasetError, match=message):
        open_dataset(make_benchmark(), run(data=data))


def test_a_path_that_is_not_there_is_named_once(make_benchmark, tmp_path) -> None:
    path = tmp_path / "absent.jsonl"
    with pytest.raises(DatasetError) as caught:
        open_dataset(make_benchmark(), run(data=str(path)))
    assert str(caught.value).count(str(path)) == 1


PROVIDER = """
from evalray.datasets import DatasetProvider
from evalray.types import EvalRecord

class Made(DatasetProvider):
    dataset_id = dataset_name = "made"

    def __init__(self, benchmark=None):
        self.benchmark = benchmark

    def load(self, *, max_samples=None, split=None, seed=None):
        self.records = [EvalRecord("1", self.benchmark.title, "", "chat")]

    def iter_records(self):
        return self.records

    def size(self):
        return len(self.records)

class NotOne:
    pass
"""


def test_provider_of_a_users_own_is_loaded_from_the_benchmarks_folder(make_benchmark, tmp_path) -> None:
    (tmp_path / "made.py").write_text(PROVIDER)
    benchmark = make_benchmark(folder=tmp_path, provider="made.py:Made", title="Mine")
    provider = open_dataset(benchmark, run())
    assert problems_seen(provider) == {"Mine"}
    assert [position for position, _ in provider.iter_pending(lambda position: False)] == [0]


@pytest.mark.parametrize(
    "provider", ["made.py:Absent", "absent.py:Made", "no_such_module:Made", "made.py:NotOne"]
)
def test_provider_that_cannot_be_used_names_file_and_key(make_benchmark, tmp_path, provider) -> None:
    (tmp_path / "made.py").write_text(PROVIDER)
    with pytest.raises(ConfigError, match=rf"benchmark\.toml: provider: {provider}"):
        open_dataset(make_benchmark(folder=tmp_path, provider=provider), run())


def test_importing_the_package_does_not_import_the_datasets_library() -> None:
    program = (
        "import sys, evalray.datasets; print([m for m in ('datasets', 'pyarrow', 'ray') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.timeout(20)
def test_data_that_is_no_regular_file_is_said_to_be_none(make_benchmark, tmp_path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(DatasetError, match="no regular file"):
        open_dataset(make_benchmark(), run(data=str(tmp_path / "rows.jsonl")))
