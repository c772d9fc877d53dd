"""Real tables through the datasets library, from local files: no network."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from evalray.datasets.tables import TableLocation, explain
from evalray.errors import DatasetError

datasets = pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def parquet_file(tmp_path):
    def write(rows, name="rows.parquet"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), path)
        return path

    return write


def records(provider) -> list[tuple[str, str, str]]:
    return [(r.record_id, r.problem, r.reference) for r in provider.iter_records()]


def test_parquet_gives_the_records_order_and_digest_of_json_lines(
    load, write_rows, numbered_rows, parquet_file
) -> None:
    rows = [{**row, "unused": [1.5], "subject": None} for row in numbered_rows(100)]
    table, lines = load(parquet_file(rows)), load(write_rows(rows))
    assert records(table) == records(lines)
    assert table.digest() == lines.digest()
    assert table.size() == 100


def test_options_survive_parquet(load, parquet_file, write_rows) -> None:
    rows = [{"question": f"{i}?", "choices": ["x", "y"], "answer": i % 2} for i in range(6)]
    settings = {
        "choices": "choices",
        "fields": {"reference": "{{ answer | letter }}"},
        "prompt_template": "{{ question }} {{ options[1].text }}",
    }
    table, lines = load(parquet_file(rows), **settings), load(write_rows(rows), **settings)
    assert list(table.iter_records()) == list(lines.iter_records())
    assert table.digest() == lines.digest()


def test_of_several_parquet_files_the_damaged_one_is_named(load, numbered_rows, parquet_file) -> None:
    parquet_file(numbered_rows(3), "a.parquet")
    damaged = parquet_file(numbered_rows(3), "b.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    with pytest.raises(DatasetError, match=r"b\.parquet: not a whole Parquet file"):
        load(damaged.with_name("*.parquet"))


def test_bad_table_row_is_named_by_its_index(load, parquet_file, numbered_rows) -> None:
    rows = numbered_rows(3)
    rows[1]["answer"] = None
    provider = load(parquet_file(rows))
    assert provider.size() == 2
    assert provider.bad_rows[0].where.endswith("rows.parquet[1]")
    assert provider.bad_rows[0].reason == "column 'answer' is empty"


def test_table_without_the_column_says_so(load, parquet_file) -> None:
    with pytest.raises(DatasetError, match=r"none of the 2 rows can be used.*column 'question' is missing"):
        load(parquet_file([{"prompt": "a"}, {"prompt": "b"}]))


def test_pending_positions_of_a_table(load, parquet_file, numbered_rows) -> None:
    provider = load(parquet_file(numbered_rows(150)))
    everything = list(enumerate(provider.iter_records()))
    pending = list(provider.iter_pending(lambda position: position % 3 != 0))
    assert pending == everything[::3]


def test_folder_of_parquet_has_its_splits(load, parquet_file, numbered_rows, tmp_path) -> None:
    parquet_file(numbered_rows(3), "data/test-00000-of-00001.parquet")
    parquet_file(numbered_rows(5), "data/train-00000-of-00001.parquet")
    assert load(tmp_path / "data").size() == 3
    assert load(tmp_path / "data", dataset_split="train").size() == 5
    with pytest.raises(DatasetError, match=r"no split 'dev'; there are .*test.*; set split"):
        load(tmp_path / "data", dataset_split="dev")


def test_only_split_is_taken_unless_another_is_asked_for(load, numbered_rows, tmp_path) -> None:
    folder = tmp_path / "saved"
    made = datasets.Dataset.from_list(numbered_rows(4))
    datasets.DatasetDict({"validation": made}).save_to_disk(folder)
    assert load(folder).size() == 4
    with pytest.raises(DatasetError, match="no split 'train'; there are validation"):
        load(folder, dataset_split="train")


def test_saved_data_set_is_read(load, numbered_rows, write_rows, tmp_path) -> None:
    datasets.Dataset.from_list(numbered_rows(4)).save_to_disk(tmp_path / "saved")
    assert records(load(tmp_path / "saved")) == records(load(write_rows(numbered_rows(4))))


def test_damaged_parquet_is_one_line(load, tmp_path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be loaded") as caught:
        load(tmp_path / "x.parquet")
    assert "\n" not in str(caught.value)


def test_script_data_set_is_refused_with_the_way_out(tmp_path) -> None:
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text("")
    with pytest.raises(RuntimeError) as raised:
        datasets.load_dataset(str(folder), split="test")
    told = explain(raised.value, TableLocation("hub", "a/scripted"))
    assert str(told).startswith(
        "a/scripted is built by a script, which datasets 4 and later refuse: use a Parquet"
    )


@pytest.mark.parametrize(
    ("error", "gated", "told"),
    [
        (
            datasets.exceptions.DatasetNotFoundError(
                "Dataset 'a/b' is a gated dataset on the Hub. Visit ..."
            ),
            True,
            "a/b is gated: accept its terms at https://huggingface.co/datasets/a/b and set HF_TOKEN",
        ),
        (
            datasets.exceptions.DatasetNotFoundError(
                "Dataset 'a/b' doesn't exist on the Hub or cannot be accessed."
            ),
            False,
            "no dataset 'a/b' on the hub, or it is private: check the name, or set HF_TOKEN",
        ),
        (
            ValueError("Unknown split \"nope\". Should be one of ['train', 'test']."),
            False,
            "a/b: no split 'nope'; there are train, test; set split",
        ),
        (
            ValueError("Bad split: nope. Available splits: ['train', 'test']"),
            False,
            "a/b: no split 'nope'; there are train, test; set split",
        ),
        (
            ValueError("BuilderConfig 'x' not found. Available: ['main', 'socratic']"),
            False,
            "a/b: no subset 'x'; there are main, socratic; set subset",
        ),
        (
            ValueError(
                "Config name is missing.\nPlease pick one among the available configs: ['main', 'socratic']"
            ),
            False,
            "a/b has several subsets; set subset to one of them: main, socratic",
        ),
        (
            ConnectionError("Couldn't reach 'a/b' on the Hub (OfflineModeIsEnabled)"),
            False,
            "the hub cannot be reached and a/b is not in the local cache",
        ),
        (OSError("disk\nbroke"), False, "a/b cannot be loaded: OSError: disk broke"),
    ],
)
def test_library_errors_are_told_in_one_line(error, gated, told) -> None:
    explained = explain(error, TableLocation("hub", "a/b"))
    assert str(explained).startswith(told)
    assert "\n" not in str(explained)
    assert explained.gated is gated


def test_data_set_declared_gated_asks_for_the_token_when_the_hub_hides_it() -> None:
    hidden = datasets.exceptions.DatasetNotFoundError(
        "Dataset 'a/b' doesn't exist on the Hub or cannot be accessed."
    )
    assert explain(hidden, TableLocation("hub", "a/b", gated=True)).gated


def test_hub_name_without_a_network_says_what_to_do(tmp_path) -> None:
    program = (
        "from pathlib import Path\n"
        "from evalray.benchmarks import Benchmark\n"
        "from evalray.datasets import open_dataset\n"
        "from evalray.errors import DatasetError\n"
        "from evalray.types import RunConfig\n"
        "b = Benchmark('b', Path('.'), data_path='nobody/nothing', prompt_template='{{ q }}')\n"
        "try:\n"
        "    open_dataset(b, RunConfig('b', 'x', 'm')).load()\n"
        "except DatasetError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith("the hub cannot be reached and nobody/nothing is not in the local cache")


# -- streaming ----------------------------------------------------------------------------------


def test_stream_stops_at_max_samples_and_repeats_itself(load, parquet_file, numbered_rows) -> None:
    rows = numbered_rows(60)
    rows[10]["answer"] = None
    path = parquet_file(rows)
    provider = load(path, streaming=True, max_samples=20)
    first = records(provider)
    assert first == records(provider)
    assert len(first) == provider.size() == 20
    assert records(load(path, streaming=True, max_samples=30))[:20] == first
    assert "not a full permutation" in provider.warnings[0]


def test_stream_that_ends_early_corrects_its_size(load, parquet_file, numbered_rows) -> None:
    rows = [*numbered_rows(5), *numbered_rows(2), {"question": "no answer", "answer": None}]
    provider = load(parquet_file(rows), streaming=True, max_samples=100)
    assert provider.size() == 100
    found = records(provider)
    assert provider.size() == 7
    assert provider.bad_row_count == 1
    assert len({record_id for record_id, _, _ in found}) == 7
    assert "2 rows repeat" in provider.warnings[1]


def test_stream_needs_to_be_told_where_to_stop(load, parquet_file, numbered_rows) -> None:
    with pytest.raises(DatasetError, match="set max_samples"):
        load(parquet_file(numbered_rows(5)), streaming=True)
