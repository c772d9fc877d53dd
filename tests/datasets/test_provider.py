from __future__ import annotations

import csv
import gzip
import json
import math
import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalray.datasets import files
from evalray.errors import DatasetError

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


def ids(provider) -> list[str]:
    return [record.record_id for record in provider.iter_records()]


# -- order --------------------------------------------------------------------------------------


@given(data=st.data(), count=st.integers(1, 40), seed=st.integers(-(2**31), 2**63))
@quick
def test_larger_max_samples_continues_a_smaller_one(
    load, write_rows, numbered_rows, data, count, seed
) -> None:
    rows = numbered_rows(count)
    for place in data.draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count - 1)):
        rows[place] = {"question": "no answer"}
    path = write_rows(rows)
    whole = ids(load(path, seed=seed))
    fewer = data.draw(st.integers(0, count))
    assert ids(load(path, seed=seed, max_samples=fewer)) == whole[:fewer]
    assert len(whole) == sum("answer" in row for row in rows)


def test_order_is_a_permutation_that_the_seed_decides(load, write_rows, numbered_rows) -> None:
    path = write_rows(numbered_rows(200))
    in_file_order = ids(load(path, seed=None))
    first, again, other = (ids(load(path, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert in_file_order not in (first, other)
    assert sorted(first) == sorted(other) == sorted(in_file_order)


def test_order_is_the_same_in_every_release(load, write_rows, numbered_rows) -> None:
    """A changed permutation would mix two samples of the data in one resumed run."""
    provider = load(write_rows(numbered_rows(12)), seed=42, fields={"id": "answer", "reference": "answer"})
    assert " ".join(ids(provider)) == "9 5 0 4 6 11 3 8 7 10 2 1"


def test_mending_a_row_moves_no_other(load, write_rows, numbered_rows) -> None:
    rows = numbered_rows(50)
    broken = ids(load(write_rows([*rows[:7], "not json", *rows[8:]]), seed=3))
    mended = ids(load(write_rows(rows), seed=3))
    assert [record_id for record_id in mended if record_id in set(broken)] == broken


def test_max_samples_counts_good_rows_only(load, write_rows, numbered_rows) -> None:
    provider = load(write_rows([*["{"] * 30, *numbered_rows(10)]), max_samples=10)
    assert provider.size() == len(ids(provider)) == 10
    assert provider.bad_row_count == 30


# -- bad rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"question": "x"', "not JSON"),
        ({"answer": "1"}, "column 'question' is missing"),
        ({"question": "  ", "answer": "1"}, "column 'question' is empty"),
        ({"question": None, "answer": "1"}, "column 'question' is empty"),
        ({"question": "x"}, "column 'answer' is missing"),
        ({"question": "x", "answer": ""}, "column 'answer' is empty"),
        ('{"question": "x", "answer": NaN}', "column 'answer' is empty"),
    ],
)
def test_bad_row_is_named_by_file_and_line(load, write_rows, numbered_rows, row, reason) -> None:
    good = numbered_rows(2)
    path = write_rows([good[0], row, good[1]])
    provider = load(path)
    assert provider.size() == 2
    (bad,) = provider.bad_rows
    assert bad.where == f"{path}:2"
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize(
    "reference",
    [
        "{{ answer | after_last('####') }}",
        "{{ answer }}",
        "{{ answer | trim | upper }}",
        "{{ 'x' ~ answer }}",
        "answer",
    ],
)
@pytest.mark.parametrize(
    ("cell", "state"), [({}, "missing"), ({"answer": None}, "empty"), ({"answer": math.nan}, "empty")]
)
def test_a_reference_that_is_an_expression_has_no_other_words_for_what_is_not_there(
    load, write_rows, numbered_rows, reference, cell, state
) -> None:
    path = write_rows([*numbered_rows(1), {"question": "x", **cell}])
    provider = load(path, fields={"reference": reference})
    (bad,) = provider.bad_rows
    assert (bad.where, bad.reason) == (f"{path}:2", f"column 'answer' is {state}")


def test_an_expression_may_deal_with_what_is_not_there(load, write_rows) -> None:
    reference = "{{ answer | default('none', true) }}"
    provider = load(
        write_rows([{"question": "x", "answer": None}, {"question": "y"}]), fields={"reference": reference}
    )
    assert [record.reference for record in provider.iter_records()] == ["none", "none"]


def test_an_id_of_a_null_is_no_id(load, write_rows) -> None:
    rows = [{"question": "x", "answer": "1", "n": None}, {"question": "y", "answer": "1", "n": 4}]
    provider = load(write_rows(rows), fields={"reference": "answer", "id": "row-{{ n }}"})
    ids = sorted(record.record_id for record in provider.iter_records())
    assert "row-4" in ids
    assert not any("None" in one for one in ids)


def test_template_that_fails_costs_its_row(load, write_rows) -> None:
    rows = [{"question": "a", "n": 4, "answer": 1}, {"question": "b", "n": 0, "answer": 1}]
    provider = load(write_rows(rows), prompt_template="{{ question }} {{ 8 // n }}")
    assert [record.problem for record in provider.iter_records()] == ["a 2"]
    assert "ZeroDivisionError" in provider.bad_rows[0].reason


def test_only_the_first_bad_rows_are_kept_and_all_are_counted(load, write_rows, numbered_rows) -> None:
    provider = load(write_rows(["[]"] * 500 + numbered_rows(1)))
    assert provider.bad_row_count == 500
    assert [bad.where.rpartition(":")[2] for bad in provider.bad_rows] == [str(i) for i in range(1, 21)]


@pytest.mark.parametrize(
    ("rows", "message"), [([], "no rows"), (["{"], r"its only row cannot .*:1: not JSON")]
)
def test_data_without_a_good_row_is_an_error(load, write_rows, rows, message) -> None:
    with pytest.raises(DatasetError, match=message):
        load(write_rows(rows))


# -- ids ----------------------------------------------------------------------------------------


@given(rows=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), min_size=1), seed=st.integers())
@quick
def test_content_ids_do_not_depend_on_the_order_of_rows_or_the_seed(load, write_rows, rows, seed) -> None:
    made = [{"question": question, "answer": answer} for question, answer in rows]
    shuffled = random.Random(seed).sample(made, len(made))

    def named(provider) -> set[tuple[str, str, str]]:
        return {(r.record_id, r.problem, r.reference) for r in provider.iter_records()}

    first = named(load(write_rows(made), seed=seed))
    second = named(load(write_rows(shuffled), seed=None))
    assert first == second
    assert len({record_id for record_id, _, _ in first}) == len(rows)


def test_content_id_ignores_columns_that_are_not_used(load, write_rows) -> None:
    plain, noted = {"question": "a", "answer": "1"}, {"note": "x", "answer": "1", "question": "a"}
    assert ids(load(write_rows([plain]))) == ids(load(write_rows([noted])))


def test_content_id_survives_a_mended_reference_expression(load, write_rows) -> None:
    path = write_rows([{"question": "a", "answer": "so #### 4"}])
    whole = load(path, fields={"reference": "answer"})
    mended = load(path, fields={"reference": "{{ answer | after_last('####') }}"})
    assert ids(whole) == ids(mended)
    assert next(iter(mended.iter_records())).reference == "4"


def test_repeated_ids_are_numbered_in_file_order_whatever_the_seed(load, write_rows) -> None:
    rows = [{"id": name, "question": f"{name}{i}", "answer": i} for i, name in enumerate("abacab")]
    fields = {"id": "id", "reference": "answer"}
    for seed in (None, 1, 2):
        provider = load(write_rows(rows), fields=fields, seed=seed)
        found = {record.record_id: record.reference for record in provider.iter_records()}
        assert found == {"a": "0", "b": "1", "a#2": "2", "c": "3", "a#3": "4", "b#2": "5"}
        assert provider.warnings == [
            "3 rows repeat an earlier record id and are told apart by #2, #3, ...; first: 'a'"
        ]


def test_numbered_id_never_takes_an_id_that_the_data_has(load, write_rows) -> None:
    rows = [
        {"id": name, "question": name, "answer": i} for i, name in enumerate(["a", "a", "a#2", "a", "a#2"])
    ]
    provider = load(write_rows(rows), fields={"id": "id", "reference": "answer"}, seed=None)
    assert ids(provider) == ["a", "a#3", "a#2", "a#4", "a#2#2"]


def test_row_without_its_id_gets_a_content_id(load, write_rows) -> None:
    rows = [{"id": "own", "question": "a", "answer": 1}, {"question": "b", "answer": 1}]
    own, content = ids(load(write_rows(rows), fields={"id": "id", "reference": "answer"}, seed=None))
    assert own == "own"
    assert len(content) == 16
    assert int(content, 16) >= 0


def test_id_may_be_an_expression(load, write_rows) -> None:
    rows = [{"n": 7, "question": "a", "answer": 1}]
    assert ids(load(write_rows(rows), fields={"id": "q-{{ n }}", "reference": "answer"})) == ["q-7"]


def test_record_ids_select_and_keep_the_order(load, write_rows, numbered_rows) -> None:
    path = write_rows(numbered_rows(20) + numbered_rows(2))
    fields = {"id": "answer", "reference": "answer"}
    wanted = {"3", "17", "1#2", "8"}
    whole = ids(load(path, fields=fields))
    assert ids(load(path, fields=fields, record_ids=sorted(wanted))) == [i for i in whole if i in wanted]


def test_record_ids_that_are_not_there_are_named(load, write_rows, numbered_rows) -> None:
    path = write_rows(numbered_rows(3))
    fields = {"id": "answer", "reference": "answer"}
    assert load(path, fields=fields, record_ids=["1", "x"]).warnings == [
        "1 of 2 record ids is not in the data: x"
    ]
    with pytest.raises(DatasetError, match="1 of 1 record id is not in the data: x"):
        load(path, fields=fields, record_ids=["x"])


# -- access -------------------------------------------------------------------------------------


def test_pending_positions_are_read_and_done_ones_are_not(
    load, write_rows, numbered_rows, monkeypatch
) -> None:
    provider = load(write_rows(numbered_rows(100)))
    everything = list(enumerate(provider.iter_records()))
    reads = []
    read = files.TextFiles._read
    monkeypatch.setattr(files.TextFiles, "_read", lambda self, key: reads.append(key) or read(self, key))
    pending = list(provider.iter_pending(lambda position: position not in (4, 90)))
    assert pending == [everything[4], everything[90]]
    assert len(reads) == 2


def test_many_files_are_one_data_set_with_few_of_them_open(load, write_rows, tmp_path) -> None:
    for i in range(30):
        write_rows([{"question": f"{i}-{j}", "answer": j} for j in range(3)], f"part{i:02d}.jsonl")
    provider = load(tmp_path / "part*.jsonl")
    assert {r.problem for r in provider.iter_records()} == {
        f"Question: {i}-{j}" for i in range(30) for j in range(3)
    }
    assert len(provider._source._open) <= 8


def test_file_that_changed_after_loading_is_noticed(load, write_rows, numbered_rows) -> None:
    provider = load(write_rows(numbered_rows(5)))
    write_rows(numbered_rows(7))
    with pytest.raises(DatasetError, match="changed while it was being read"):
        list(provider.iter_records())


def test_use_before_load_is_refused(make_benchmark, write_rows, numbered_rows) -> None:
    from evalray.datasets import open_dataset
    from evalray.types import RunConfig

    data = str(write_rows(numbered_rows(1)))
    provider = open_dataset(make_benchmark(), RunConfig("questions", "x", "m", data=data))
    for use in (provider.size, provider.digest, lambda: list(provider.iter_records())):
        with pytest.raises(DatasetError, match="call load"):
            use()


def test_rows_cost_a_few_bytes_each(load, write_rows) -> None:
    count = 50_000
    path = write_rows({"question": f"{i} {'padding ' * 20}", "answer": i} for i in range(count))
    tracemalloc.start()
    try:
        provider = load(path)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert provider.size() == count
    assert kept < 20 * count
    assert peak < 52 * count  # 200,000 rows within 10 MiB, sorting included


# -- records ------------------------------------------------------------------------------------


def test_fields_are_mapped(load, write_rows) -> None:
    rows = [{"q": "Why?", "gold": {"text": "because"}, "topic": "life", "level": 3, "other": 1}]
    provider = load(
        write_rows(rows),
        category="chat",
        prompt_template="{{ q }} ({{ topic | upper }})",
        fields={"reference": "{{ gold.text }}", "subject": "topic"},
        metadata_columns=("level", "absent"),
    )
    (record,) = provider.iter_records()
    assert (record.problem, record.reference, record.category) == ("Why? (LIFE)", "because", "chat")
    assert (record.subject, record.metadata) == ("life", {"level": 3})


@pytest.mark.parametrize(
    ("choices", "answer", "reference", "letter"),
    [
        (["x", "y", "z"], "B", "answer", "B"),
        (["x", "y", "z"], 2, "{{ answer | letter }}", "C"),
        (["x", "y", "z"], "0", "{{ answer | letter }}", "A"),
        (["x", "y", "z"], "y", "{{ answer | letter_in(choices) }}", "B"),
        ('["x", "y"]', "y", "{{ answer | letter_in(choices) }}", "B"),
        ({"text": ["x", "y"], "label": ["A", "B"]}, "a", "{{ answer | letter }}", "A"),
    ],
)
def test_reference_of_a_choice_becomes_a_letter(load, write_rows, choices, answer, reference, letter) -> None:
    provider = load(
        write_rows([{"question": "?", "choices": choices, "answer": answer}]),
        choices="choices",
        fields={"reference": reference},
        prompt_template="{{ question }}{% for o in options %} {{ o.letter }}={{ o.text }}{% endfor %}",
    )
    (record,) = provider.iter_records()
    assert record.reference == letter
    assert record.problem.startswith("? A=x B=y")
    assert record.metadata["options"][:2] == ["x", "y"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"choices": ["x", "y"], "answer": "C"}, "'C' is not a letter from A to B"),
        ({"choices": ["x", "y"], "answer": "AB"}, "'AB' is not a letter"),
        ({"choices": ["x"], "answer": "A"}, "1 options"),
        ({"choices": ["x", ""], "answer": "A"}, "an option is empty"),
        ({"choices": "x|y", "answer": "A"}, "not a JSON list"),
        ({"choices": 5, "answer": "A"}, "not a list"),
        ({"answer": "A"}, "column 'choices' is missing"),
    ],
)
def test_unusable_options_cost_their_row(load, write_rows, row, reason) -> None:
    good = {"question": "?", "choices": ["x", "y"], "answer": "A"}
    template = "{{ question }}{{ options | length }}"
    provider = load(write_rows([good, {"question": "?"} | row]), choices="choices", prompt_template=template)
    assert provider.size() == 1
    assert reason in provider.bad_rows[0].reason


# -- digest -------------------------------------------------------------------------------------


def test_digest_is_of_the_data_and_not_of_its_format_place_or_selection(load, write_rows, tmp_path) -> None:
    rows = [{"question": f"q, {i}\n", "answer": i} for i in range(9)]
    lines = write_rows(rows)
    array = tmp_path / "rows.json"
    array.write_text(json.dumps(rows, indent=2))
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["answer", "question"])
        writer.writeheader()
        writer.writerows(rows)
    digests = {
        load(path, seed=seed, max_samples=seed).digest() for path in (lines, array, table) for seed in (1, 5)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("place", [0, 4, 8])
def test_digest_covers_every_good_row(load, write_rows, numbered_rows, place) -> None:
    rows = numbered_rows(9)
    before = load(write_rows(rows), max_samples=1).digest()
    rows[place]["answer"] += "0"
    assert load(write_rows(rows), max_samples=1).digest() != before


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\U0001f600", "\u202e", "x" * 1_000_000])
def test_unusual_text_is_carried_unchanged(load, write_rows, text) -> None:
    fields = {"id": "question", "reference": "answer"}
    path = write_rows([{"question": text, "answer": text}, {"question": text, "answer": text}])
    first, second = load(path, fields=fields, seed=1, max_samples=2).iter_records()
    assert first.problem == f"Question: {text}"
    assert first.reference == text
    assert {first.record_id, second.record_id} == {text, f"{text}#2"}


# -- compressed files ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv"])
def test_compressed_files_give_the_records_and_digest_of_plain_ones(load, tmp_path, name) -> None:
    rows = [{"question": f"q {i}", "answer": str(i)} for i in range(50)]
    plain = tmp_path / name
    if name.endswith(".csv"):
        with plain.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["question", "answer"])
            writer.writeheader()
            writer.writerows(rows)
    elif name.endswith(".json"):
        plain.write_text(json.dumps(rows))
    else:
        plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    whole, unpacked = load(plain), load(packed)
    assert list(unpacked.iter_records()) == list(whole.iter_records())
    assert unpacked.digest() == whole.digest()


def test_bad_row_of_a_compressed_file_is_named_by_that_file(load, tmp_path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "a", "answer": 1}\n{\n'))
    assert load(path).bad_rows[0].where == f"{path}:2"


@pytest.mark.parametrize(
    "content", [b"plain text", gzip.compress(bytes(range(256)))[:40], b""], ids=["plain", "torn", "empty"]
)
def test_file_that_is_not_what_its_name_says_is_one_line(load, tmp_path, content) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"cannot be unpacked|the data has no rows") as caught:
        load(path)
    assert "\n" not in str(caught.value)


# -- filters ------------------------------------------------------------------------------------


def test_rows_that_do_not_belong_are_counted_and_take_no_place(load, write_rows, numbered_rows) -> None:
    path = write_rows(numbered_rows(20))
    whole, part = load(path), load(path, filter="answer | int is even")
    assert ids(part) == [r.record_id for r in whole.iter_records() if int(r.reference) % 2 == 0]
    assert (part.size(), part.filtered_row_count, part.bad_row_count) == (10, 10, 0)
    assert part.warnings == ["10 rows are left out by the benchmark's filter"]
    assert part.digest() != whole.digest()
    with pytest.raises(DatasetError, match="all 20 rows are left out by the benchmark's filter"):
        load(path, filter="false")
