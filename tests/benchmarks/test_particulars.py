"""What is particular to one benchmark: shuffled options, files, articles, filters, odd cells."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import load_benchmark
from evalray.datasets import open_dataset
from evalray.errors import ConfigError, DatasetError
from evalray.types import RunConfig

FOLDER = Path(__file__).parents[2] / "benchmarks"


def records(provider: Any) -> list[Any]:
    return list(provider.iter_records())


# -- GPQA: options in an order of their own -------------------------------------------------------


def gpqa_rows(count: int) -> list[dict[str, Any]]:
    return [
        {"Record ID": f"rec{i}", "Question": f"Question {i}?", "Correct Answer": f" right {i} "}
        | {f"Incorrect Answer {k}": f"wrong {i}-{k}" for k in (1, 2, 3)}
        for i in range(count)
    ]


def test_gold_letters_of_gpqa_are_spread_and_follow_the_right_option(load: Any, write_jsonl: Any) -> None:
    found = records(load("gpqa", write_jsonl(gpqa_rows(400))))
    letters = Counter(record.reference for record in found)
    assert set(letters) == set("ABCD")
    assert min(letters.values()) > 70
    for record in found:
        number = record.record_id.removeprefix("rec")
        assert record.metadata["options"]["ABCD".index(record.reference)] == f"right {number}"
        assert f"\n{record.reference}. right {number}\n" in record.problem
        wrong = {f"wrong {number}-{k}" for k in (1, 2, 3)}
        assert set(record.metadata["options"]) == wrong | {f"right {number}"}


def test_options_of_a_question_do_not_depend_on_seed_order_or_selection(write_jsonl: Any) -> None:
    rows = gpqa_rows(30)
    benchmark = load_benchmark(FOLDER / "gpqa")
    seen = []
    for data, seed, samples in ((rows, 1, None), (rows[::-1], 2, 12), (rows[5:], None, None)):
        path = write_jsonl(data)
        provider = open_dataset(benchmark, RunConfig("gpqa", "x", "m", data=str(path)))
        provider.load(seed=seed, max_samples=samples)
        seen.append({record.record_id: record.problem for record in provider.iter_records()})
    for other in seen[1:]:
        assert {name: seen[0][name] for name in other} == other


def test_order_of_options_is_the_same_in_every_release(load: Any, write_jsonl: Any) -> None:
    """A changed order would put new questions under the ids of answered ones."""
    found = records(load("gpqa", write_jsonl(gpqa_rows(8))))
    assert "".join(record.reference for record in found) == "CCCDACCD"


# -- other multiple choice ----------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "index"), [("J", 9), (None, 9), ("j", 0)])
def test_mmlu_pro_letters_go_up_to_j(
    load: Any, sample: Any, write_jsonl: Any, answer: Any, index: int
) -> None:
    row = sample("mmlu-pro")[0] | {"answer": answer, "answer_index": index}
    (record,) = records(load("mmlu-pro", write_jsonl([row])))
    assert record.reference == "J"


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"subfield": "s", "field": "f", "discipline": "d"}, "s"),
        ({"subfield": "", "field": "f", "discipline": "d"}, "f"),
        ({"subfield": None, "field": " ", "discipline": "d"}, "d"),
    ],
)
def test_supergpqa_subject_is_the_finest_there_is(
    load: Any, sample: Any, write_jsonl: Any, given: dict[str, Any], subject: str
) -> None:
    (record,) = records(load("supergpqa", write_jsonl([sample("supergpqa")[0] | given])))
    assert record.subject == subject


# -- SimpleQA: a dictionary as text ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "topic"),
    [
        ("{'topic': 'Art', 'answer_type': 'Person', 'urls': ['u']}", "Art"),
        ('{"topic": "Art"}', "Art"),
        ({"topic": "Art"}, "Art"),
        ("{'topic': __import__('os').getcwd()}", ""),
        ("{'topic'", ""),
        ("['topic']", ""),
        ("", ""),
        (None, ""),
        ("(" * 100_000, ""),
    ],
)
def test_simpleqa_reads_its_topic_and_runs_nothing(
    load: Any, write_jsonl: Any, cell: Any, topic: str
) -> None:
    row = {"metadata": cell, "problem": "Who?", "answer": "She"}
    provider = load("simpleqa", write_jsonl([row]))
    (record,) = records(provider)
    assert (record.subject, record.reference) == (topic, "She")


# -- HLE: text only -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        ({"image": ""}, True),
        ({"image": None}, True),
        ({}, True),
        ({"image": "data:image/png;base64,xx"}, False),
        ({"image_path": "x.png"}, False),
        ({"images": []}, True),
        ({"images": ["x.png"]}, False),
    ],
)
def test_hle_leaves_out_questions_with_an_image_as_no_bad_rows(
    load: Any, write_jsonl: Any, extra: dict[str, Any], kept: bool
) -> None:
    plain = {"id": "plain", "question": "Why?", "answer": "42"}
    provider = load("hle", write_jsonl([plain, {"id": "x", "question": "What?", "answer": "1"} | extra]))
    assert provider.size() == 1 + kept
    assert provider.filtered_row_count == 1 - kept
    assert provider.bad_row_count == 0
    assert provider.warnings == ([] if kept else ["1 row is left out by the benchmark's filter"])


# -- WildChat -------------------------------------------------------------------------------------


def chat(*turns: tuple[str, str | None], language: str = "English", name: str = "c") -> dict[str, Any]:
    conversation = [{"role": role, "content": content} for role, content in turns]
    return {"conversation_hash": name, "language": language, "model": "m", "conversation": conversation}


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (chat(("user", "hi"), ("assistant", "ho")), True),
        (chat(("user", "hi"), ("assistant", "ho"), language="ENGLISH"), True),
        (chat(("user", "hi"), ("assistant", "ho"), language="French"), False),
        (chat(("user", "hi")), False),
        (chat(("user", "hi"), ("assistant", "ho"), ("user", "?"), ("assistant", "!")), False),
        (chat(("assistant", "hi"), ("user", "ho")), False),
        (chat(("user", "hi"), ("user", "ho")), False),
        (chat(("user", " \n"), ("assistant", "ho")), False),
        (chat(("user", "hi"), ("assistant", "")), False),
        (chat(("user", None), ("assistant", "ho")), False),
        (chat(), False),
    ],
)
def test_wildchat_keeps_english_conversations_of_one_turn(
    load: Any, write_jsonl: Any, row: dict[str, Any], kept: bool
) -> None:
    always = chat(("user", " ask "), ("assistant", " tell "), name="always")
    provider = load("wildchat", write_jsonl([always, row]))
    assert (provider.size(), provider.filtered_row_count, provider.bad_row_count) == (1 + kept, 1 - kept, 0)
    first = records(provider)[0]
    assert (first.record_id, first.problem, first.reference) == ("always", "ask", "tell")
    assert (first.category, first.subject, first.metadata["language"]) == ("chat", "conversation", "english")


def test_wildchat_streams_what_it_needs_and_says_so(load: Any, tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("datasets")
    rows = [
        chat(
            ("user", f"q{i}"), ("assistant", f"a{i}"), name=f"c{i}", language="English" if i % 3 else "Czech"
        )
        for i in range(300)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet", row_group_size=10)
    provider = load("wildchat", tmp_path / "x.parquet", max_samples=20)
    found = records(provider)
    assert len(found) == provider.size() == 20
    assert provider.filtered_row_count == 10
    assert "not a full permutation" in provider.warnings[0]
    assert load_benchmark(FOLDER / "wildchat").defaults["max_samples"] == 1000


# -- FRAMES ---------------------------------------------------------------------------------------

LINKS = ["https://en.wikipedia.org/wiki/Ada_Lovelace", "https://en.wikipedia.org/wiki/Paris,_Texas#History"]


@pytest.mark.parametrize(
    "cell",
    [LINKS, repr(LINKS), json.dumps(LINKS), "\n".join(LINKS), ", ".join(LINKS), f"{LINKS[0]},{LINKS[1]}\n"],
)
def test_frames_links_are_the_list_they_are(load: Any, write_jsonl: Any, cell: Any) -> None:
    row = {"Prompt": "Who?", "Answer": "Ada", "wiki_links": cell, "reasoning_types": "Tabular | Temporal"}
    (record,) = records(load("frames", write_jsonl([row])))
    assert record.metadata["wiki_links"] == LINKS
    assert record.subject == "Tabular, Temporal"
    for link in LINKS:
        assert f"\n- {link}\n" in record.problem


@pytest.mark.parametrize("cell", [None, "", [], "[]"])
def test_frames_without_links_asks_the_question_alone(load: Any, write_jsonl: Any, cell: Any) -> None:
    (record,) = records(
        load("frames", write_jsonl([{"Prompt": "Who?", "Answer": "Ada", "wiki_links": cell}]))
    )
    assert "articles:" not in record.problem
    assert record.problem.endswith("\n\nQuestion: Who?")


def test_frames_reads_the_hubs_own_file(load: Any, sample: Any, tmp_path: Path) -> None:
    """There the first column has no name, where the hub calls it Unnamed: 0."""
    rows = sample("frames")
    header = "\t".join(["", *list(rows[0])[1:]])
    lines = [
        "\t".join('"' + ("" if cell is None else str(cell)).replace('"', '""') + '"' for cell in row.values())
        for row in rows
    ]
    (tmp_path / "test.tsv").write_text("\n".join([header, *lines]) + "\n")
    assert records(load("frames", tmp_path / "test.tsv")) == records(load("frames"))


def test_frames_shows_the_articles_of_a_folder(load: Any, write_jsonl: Any, tmp_path: Path) -> None:
    articles = tmp_path / "articles"
    articles.mkdir()
    (articles / "Ada Lovelace.md").write_text("Ada wrote the first program. {{ not a template }}\n")
    row = {"Unnamed: 0": 5, "Prompt": "Who?", "Answer": "Ada", "wiki_links": LINKS}
    path = write_jsonl([row])
    plain = load("frames", path)
    shown = load("frames", path, benchmark_args={"articles": str(articles)})
    (record,) = records(shown)
    assert "Ada wrote the first program. {{ not a template }}" in record.problem
    assert "- https://" not in record.problem
    assert record.record_id == records(plain)[0].record_id == "frames-5"
    assert shown.digest() != plain.digest()
    (articles / "Paris,_Texas.txt").write_text("A town.")
    assert "A town." in records(load("frames", path, benchmark_args={"articles": str(articles)}))[0].problem


@pytest.mark.parametrize(
    ("args", "error", "told"),
    [
        ({"articles": "/no/such/folder"}, DatasetError, "no such folder: /no/such/folder"),
        ({"article": "x"}, ConfigError, "unknown argument .takes: articles"),
    ],
)
def test_wrong_arguments_of_frames_are_named(load: Any, args: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        load("frames", benchmark_args=args)


# -- GAIA -----------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path, sample: Any) -> Path:
    """The sample laid out as the repository on the hub."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    root = tmp_path / "GAIA"
    shutil.copytree(FOLDER / "gaia" / "2023", root / "2023")
    rows = sample("gaia")
    hidden = [row | {"Final answer": "?", "file_name": "", "file_path": ""} for row in rows]
    (root / "2023" / "test").mkdir()
    for split, table in (("validation", rows), ("test", hidden)):
        parquet.write_table(pa.Table.from_pylist(table), root / "2023" / split / "metadata.parquet")
        easy = [row for row in table if row["Level"] == "1"]
        parquet.write_table(pa.Table.from_pylist(easy), root / "2023" / split / "metadata.level1.parquet")
    return root


def test_gaia_reads_a_snapshot_with_its_files(load: Any, snapshot: Path) -> None:
    provider = load("gaia", snapshot)
    found = {
        record.metadata["file_type"]: record
        for record in provider.iter_records()
        if record.metadata.get("file_type")
    }
    assert provider.size() == 4
    assert set(found) == {"csv", "txt"}
    path = Path(found["csv"].metadata["file_path"])
    assert path.is_absolute()
    assert path.read_text().startswith("day,visitors")
    assert f"File path: {path}" in found["csv"].problem
    assert found["csv"].record_id == f"gaia-{found['csv'].metadata['task_id']}"
    assert {record.subject for record in provider.iter_records()} == {"level_1", "level_2", "level_3"}


def test_gaia_subsets_and_splits_of_a_snapshot(load: Any, snapshot: Path) -> None:
    assert load("gaia", snapshot, dataset_subset="2023_level1").size() == 2
    with pytest.raises(DatasetError, match="no subset '2024'; there are 2023_all, 2023_level1"):
        load("gaia", snapshot, dataset_subset="2024")
    with pytest.raises(DatasetError, match="no split 'train'; there are test, validation; set split"):
        load("gaia", snapshot, dataset_split="train")
    with pytest.raises(DatasetError, match="all 4 rows are left out by the benchmark's filter"):
        load("gaia", snapshot, dataset_split="test")


def test_gaia_reads_an_older_copy_of_json_lines(load: Any, sample: Any, snapshot: Path) -> None:
    folder = snapshot / "2023" / "validation"
    (folder / "metadata.parquet").unlink()
    rows = [
        {k: v for k, v in row.items() if k != "file_path"} | {"Level": int(row["Level"])}
        for row in sample("gaia")
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    provider = load("gaia", snapshot)
    assert provider.size() == 4
    assert sum(bool(record.metadata.get("file_type")) for record in provider.iter_records()) == 2


def test_gaia_finds_a_file_by_the_task_it_belongs_to(
    load: Any, sample: Any, write_jsonl: Any, tmp_path: Path
) -> None:
    row = sample("gaia")[0] | {"file_name": None, "file_path": None}
    path = write_jsonl([row])
    (tmp_path / f"{row['task_id']}.pdf").write_bytes(b"%PDF")
    (record,) = records(load("gaia", path))
    assert (record.metadata["file_name"], record.metadata["file_type"]) == (f"{row['task_id']}.pdf", "pdf")


@pytest.mark.parametrize("task", ["1", "a", "page"])
def test_gaia_question_is_not_given_a_file_whose_name_only_holds_its_id(
    load: Any, sample: Any, write_jsonl: Any, tmp_path: Path, task: str
) -> None:
    row = sample("gaia")[0] | {"file_name": None, "file_path": None, "task_id": task}
    path = write_jsonl([row])
    (tmp_path / "webpages10.png").write_bytes(b"")
    (record,) = records(load("gaia", path))
    assert not record.metadata["file_name"]


def test_gaia_question_whose_file_is_missing_is_a_bad_row_that_names_it(load: Any, snapshot: Path) -> None:
    next((snapshot / "2023" / "validation").glob("*.csv")).unlink()
    provider = load("gaia", snapshot)
    assert provider.size() == 3
    (bad,) = provider.bad_rows
    assert "attachment '5a3b0002-0000-4000-8000-000000000002.csv' is not in" in bad.reason


@pytest.mark.parametrize("path", ["../../secret.txt", "/etc/hostname", "2023/../../secret.txt"])
def test_gaia_rows_cannot_point_out_of_the_data(
    load: Any, sample: Any, write_jsonl: Any, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret.txt").write_text("x")
    good, row = sample("gaia")[0], sample("gaia")[1] | {"file_name": path, "file_path": path, "task_id": "zz"}
    provider = load("gaia", write_jsonl([good, row], "data/set/rows.jsonl"))
    assert provider.size() == 1
    assert "is not in" in provider.bad_rows[0].reason


def test_gaia_digest_does_not_depend_on_where_the_files_lie(
    load: Any, snapshot: Path, tmp_path: Path
) -> None:
    before = load("gaia", snapshot).digest()
    snapshot.rename(tmp_path / "moved")
    assert load("gaia", tmp_path / "moved").digest() == before


def test_gaia_downloads_only_the_files_of_its_split(monkeypatch: pytest.MonkeyPatch, snapshot: Path) -> None:
    from evalray.datasets import repository

    asked: list[Any] = []

    def fake(dataset: Any, patterns: list[str]) -> Path:
        asked.append((dataset.name, dataset.gated, patterns))
        return snapshot

    monkeypatch.setattr(repository, "snapshot", fake)
    provider = open_dataset(load_benchmark(FOLDER / "gaia"), RunConfig("gaia", "x", "m"))
    provider.load(seed=42)
    assert provider.size() == 4
    assert asked == [("gaia-benchmark/GAIA", True, ["2023/validation/*"])]
