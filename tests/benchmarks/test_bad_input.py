"""Every benchmark: columns that are missing or renamed, splits that are empty or do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import load_benchmark
from evalray.errors import DatasetError

datasets = pytest.importorskip("datasets")

FOLDER = Path(__file__).parents[2] / "benchmarks"

#: Benchmark, a column it cannot do without, and what the message calls it.
NEEDED = [
    ("supergpqa", "question", "column 'question' is missing"),
    ("supergpqa", "options", "column 'options' is missing"),
    ("supergpqa", "answer_letter", "column 'answer_letter' is missing"),
    ("mmlu-pro", "question", "column 'question' is missing"),
    ("mmlu-pro", "options", "column 'options' is missing"),
    ("gpqa", "Question", "column 'Question' or 'question' is missing"),
    ("gpqa", "Correct Answer", "column 'Correct Answer' or 'correct_answer' is missing"),
    ("gpqa", "Incorrect Answer 2", "column 'Incorrect Answer 2' or 'incorrect_answer_2' is missing"),
    ("math500", "problem", "column 'problem' or 'question' is missing"),
    ("simpleqa", "problem", "column 'problem' or 'question' is missing"),
    ("simpleqa", "answer", "column 'answer' is missing"),
    ("hle", "question", "column 'question' is missing"),
    ("hle", "answer", "column 'answer' is missing"),
    ("natural-reasoning", "question", "column 'question' or 'problem' is missing"),
    (
        "natural-reasoning",
        "reference_answer",
        "column 'reference_answer' or 'answer' or 'solution' is missing",
    ),
    ("frames", "Prompt", "column 'Prompt' or 'prompt' or 'question' is missing"),
    ("frames", "Answer", "column 'Answer' or 'answer' or 'gold_answer' is missing"),
    ("wildchat", "conversation", "column 'conversation' is missing"),
    ("wildchat", "language", "column 'language' is missing"),
    ("gaia", "Question", "column 'Question' or 'question' is missing"),
]

#: Benchmark, new names for its columns.
RENAMED = [
    ("supergpqa", {"subfield": "subfields"}),
    ("mmlu-pro", {"answer": "letter_of_answer"}),
    (
        "gpqa",
        {
            "Question": "question",
            "Correct Answer": "correct_answer",
            "Incorrect Answer 1": "incorrect_answer_1",
            "Incorrect Answer 2": "incorrect_answer_2",
            "Incorrect Answer 3": "incorrect_answer_3",
            "Subdomain": "subdomain",
            "High-level domain": "domain",
            "Record ID": "record_id",
        },
    ),
    ("math500", {"problem": "question", "subject": "type"}),
    ("simpleqa", {"problem": "question"}),
    ("natural-reasoning", {"question": "problem", "reference_answer": "answer"}),
    ("frames", {"Prompt": "question", "Answer": "gold_answer", "wiki_links": "wikipedia_links"}),
    (
        "frames",
        {"Prompt": "prompt", "Answer": "answer", "Unnamed: 0": "", "reasoning_types": "reasoning_type"},
    ),
    ("gaia", {"Question": "question", "Final answer": "final_answer", "Level": "level"}),
    ("hle", {"category": "topic"}),
]


@pytest.mark.parametrize(("name", "column", "told"), NEEDED)
def test_a_column_that_is_missing_is_named(
    name: str, column: str, told: str, load: Any, sample: Any, write_jsonl: Any
) -> None:
    rows = [{key: value for key, value in row.items() if key != column} for row in sample(name)]
    with pytest.raises(DatasetError) as caught:
        load(name, write_jsonl(rows, "2023/validation/rows.jsonl"))
    message = str(caught.value)
    assert "rows can be used" in message
    assert told in message
    assert "rows.jsonl:" in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "names"), RENAMED)
def test_columns_under_another_known_name_give_the_same_questions(
    name: str, names: dict[str, str], load: Any, sample: Any, write_jsonl: Any
) -> None:
    rows = [
        {names.get(key, key): value for key, value in row.items()}
        for row in sample(name)
        if not row.get("file_name")
    ]
    provider = load(name, write_jsonl(rows))
    assert provider.bad_rows == []
    by_problem = {record.problem: record for record in load(name).iter_records()}
    for record in provider.iter_records():
        whole = by_problem[record.problem]
        assert record.reference == whole.reference
        assert record.record_id == whole.record_id
        assert record.subject == whole.subject or name in ("supergpqa", "hle")
        assert record.subject or name == "natural-reasoning"


@pytest.mark.parametrize("name", sorted({name for name, _, _ in NEEDED}))
def test_an_empty_file_says_so(name: str, load: Any, write_jsonl: Any) -> None:
    with pytest.raises(DatasetError, match=f"{name}: the data has no rows"):
        load(name, write_jsonl([]))


@pytest.mark.parametrize("name", ["supergpqa", "gpqa", "math500", "frames", "hle"])
def test_a_split_that_is_empty_or_not_there_says_so(
    name: str, load: Any, sample: Any, tmp_path: Path
) -> None:
    split = load_benchmark(FOLDER / name).split
    keep = [{k: v for k, v in row.items() if isinstance(v, str)} for row in sample(name)]
    table = datasets.Dataset.from_list(keep)
    datasets.DatasetDict({split: table.select([]), "dev": table}).save_to_disk(tmp_path / "saved")
    with pytest.raises(DatasetError, match="the data has no rows"):
        load(name, tmp_path / "saved")
    with pytest.raises(DatasetError, match=f"no split 'tset'; there are .*{split}.*; set split"):
        load(name, tmp_path / "saved", dataset_split="tset")


def test_an_empty_split_of_parquet_says_so(load: Any, sample: Any, tmp_path: Path) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    table = pa.Table.from_pylist(sample("math500"))
    parquet.write_table(table.slice(0, 0), tmp_path / "test-00000-of-00001.parquet")
    parquet.write_table(table, tmp_path / "train-00000-of-00001.parquet")
    with pytest.raises(DatasetError, match="a table in it has no rows; name the files"):
        load("math500", tmp_path)
    with pytest.raises(DatasetError, match="the data has no rows"):
        load("math500", tmp_path / "test*.parquet")
    assert load("math500", tmp_path / "train*.parquet").size() == 4


def test_an_empty_stream_says_so(load: Any, tmp_path: Path) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    schema = pa.schema([("question", pa.string()), ("reference_answer", pa.string())])
    parquet.write_table(pa.Table.from_pylist([], schema), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match="the data has no rows"):
        load("natural-reasoning", tmp_path / "x.parquet", max_samples=10)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("question", "column 'question' or 'problem' is missing"),
        ("reference_answer", "column 'reference_answer' or 'answer' or 'solution' is missing"),
    ],
)
def test_a_stream_without_its_column_fails_on_loading(
    column: str, told: str, load: Any, sample: Any, tmp_path: Path
) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [
        {key: value for key, value in row.items() if key != column} for row in sample("natural-reasoning")
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=told) as caught:
        load("natural-reasoning", tmp_path / "x.parquet", max_samples=10)
    assert "the data has: " in str(caught.value)
