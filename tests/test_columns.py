from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.articles import article, articles
from evalray.benchmarks import load_benchmark
from evalray.columns import Columns, RowFiltered
from evalray.definition import Benchmark
from evalray.errors import ConfigError
from evalray.prompts import choice_order, prompt_hash
from evalray.templates import Expression, RowError, TextTemplate, as_list, parsed
from evalray.types import RunConfig


def columns(derived: dict[str, Any] | None = None, **settings: Any) -> Columns:
    return Columns(Benchmark("b", Path("b"), columns=derived or {}, **settings))


# -- derived columns ----------------------------------------------------------------------------


def test_the_first_column_that_has_something_counts() -> None:
    made = columns({"q": ("Question", "question", "prompt")})
    assert made.derive({"Question": " ", "question": None, "prompt": "p"})["q"] == "p"
    assert made.derive({"Question": 0, "prompt": "p"})["q"] == 0
    assert "q" not in made.derive({"other": 1})


def test_an_expression_keeps_the_kind_of_its_value() -> None:
    made = columns({"meta": "cell | parsed", "topic": "meta.topic", "options": "[a, b]"})
    row = made.derive({"cell": "{'topic': 'x', 'n': [1]}", "a": 1, "b": None})
    assert row["meta"] == {"topic": "x", "n": [1]}
    assert row["topic"] == "x"
    assert row["options"] == [1, None]


def test_names_see_those_above_them_and_a_name_may_take_a_columns_place() -> None:
    made = columns({"language": "language | lower", "tag": "language ~ '!'"})
    assert made.derive({"language": "English"})["tag"] == "english!"
    assert made.sources({"tag"}) == {"language"}


def test_a_name_that_is_not_there_is_left_out_and_no_error() -> None:
    assert "x" not in columns({"x": "facts.topic"}).derive({"facts": {}})


@pytest.mark.parametrize(
    ("derived", "row", "told"),
    [
        ({"x": "a[0].b"}, {"a": []}, "column 'x': "),
        ({"x": "1 // n"}, {"n": 0}, "column 'x': ZeroDivisionError"),
        ({"x": "a | parsed"}, {"a": "{"}, "column 'x': ValueError: '{' is neither JSON nor"),
        ({"c": ("A", "a"), "x": "c | lower"}, {"b": 1}, "column 'A' or 'a' is missing"),
        ({"x": "a.__class__.__mro__[1]"}, {"a": 1}, "column 'x': SecurityError"),
    ],
)
def test_a_column_that_cannot_be_computed_costs_the_row(derived: Any, row: Any, told: str) -> None:
    with pytest.raises(RowError) as caught:
        columns(derived).derive(row)
    assert str(caught.value).startswith(told)


def test_sources_are_the_datas_own_columns() -> None:
    made = columns(
        {"q": ("Question", "question"), "links": "wiki | as_list", "texts": "links | articles(args.folder)"},
        filter="row['Final answer'] != '?' and kind == 'x'",
        args={"folder": ""},
    )
    assert made.behind({"q", "texts"}) == {"Question", "question", "wiki"}
    assert made.sources({"q"}) == {"Question", "question", "Final answer", "kind"}
    assert made.names_behind("q") == ("Question", "question")
    assert made.names_behind("other") == ("other",)


def test_arguments_are_seen_by_expressions() -> None:
    assert columns({"x": "args.n + 1"}, args={"n": 2}).derive({})["x"] == 3


# -- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "kept"),
    [("n > 1", True), ("n > 5", False), ("missing is defined", False), ("''", False), ("doubled == 4", True)],
)
def test_the_filter_says_which_rows_belong(condition: str, kept: bool) -> None:
    made = columns({"doubled": "n * 2"}, filter=condition)
    if kept:
        assert made.derive({"n": 2})["doubled"] == 4
    else:
        with pytest.raises(RowFiltered):
            made.derive({"n": 2})
        assert made.derive({"n": 2}, filtered=False)["doubled"] == 4


def test_a_row_that_is_filtered_need_not_have_its_columns() -> None:
    made = columns({"first": "turns[0].text"}, filter="turns | length == 2")
    with pytest.raises(RowFiltered):
        made.derive({"turns": []})
    with pytest.raises(RowError, match="column 'turns' is missing"):
        made.derive({})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"derived": {"x": "a |"}}, "columns.x"),
        ({"derived": {"x": "a | nope"}}, "columns.x"),
        ({"filter": "a =="}, "data.filter"),
        ({"derived": {"x": "row"}}, "columns.x"),
        ({"derived": {"x": "row.get('a')"}}, "columns.x"),
        ({"derived": {"x": "row[name]"}}, "columns.x"),
    ],
)
def test_a_wrong_expression_names_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        columns(**changes)
    assert [problem.key for problem in caught.value.problems] == [key]


# -- the whole row ------------------------------------------------------------------------------


def test_row_reads_columns_that_are_no_identifiers() -> None:
    template = TextTemplate('{{ row["Final answer"] }} {{ row.level }}', origin="t")
    assert template.columns == template.printed == {"Final answer", "level"}
    assert template.plain
    assert template.render({"Final answer": 7, "level": 1}) == "7 1"
    computed = TextTemplate('{% if row["a b"] %}{{ row["a b"] | upper }}{% endif %}', origin="t")
    assert computed.columns == {"a b"}
    assert computed.render({"a b": "x"}) == "X"


def test_an_expression_of_several_columns_knows_them() -> None:
    expression = Expression("a ~ row['b c'] ~ d.e", origin="o", key="k")
    assert expression.columns == {"a", "b c", "d"}
    assert expression.value({"a": 1, "b c": 2, "d": {"e": 3}}) == "123"


# -- filters for cells ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (None, []),
        ("", []),
        (["a", None, "b"], ["a", "b"]),
        ("['a', \"b\"]", ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("a\nb\r\nc", ["a", "b", "c"]),
        ("one", ["one"]),
        ("[not a list", ["[not a list"]),
        ("https://x/Paris,_Texas, https://y/z", ["https://x/Paris,_Texas", "https://y/z"]),
        (5, [5]),
    ],
)
def test_cells_of_several_values(cell: object, found: list[Any]) -> None:
    assert as_list(cell) == found


@given(st.text())
@settings(deadline=None)
def test_no_text_makes_a_cell_parse_to_more_than_a_value_or_an_error(text: str) -> None:
    assert parsed(text, "default") is not None or text.strip() in ("null", "None")
    assert isinstance(as_list(text), list)


# -- options ------------------------------------------------------------------------------------


@given(st.text(), st.integers(2, 26))
@settings(deadline=None)
def test_choice_order_is_a_permutation_of_the_key_alone(key: str, count: int) -> None:
    order = choice_order(key, count)
    assert sorted(order) == list(range(count))
    assert choice_order(key, count) == order


def test_prompt_hash_sees_columns_and_shuffling() -> None:
    def hashed(**changes: Any) -> str:
        return prompt_hash(
            Benchmark("b", Path("b"), prompt_template="{{ q }}", **changes), RunConfig("b", "x", "m")
        )

    hashes = {
        hashed(),
        hashed(shuffle_choices=True),
        hashed(columns={"q": ("a",)}),
        hashed(columns={"q": "b"}),
    }
    assert len(hashes) == 4


# -- articles -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "file"),
    [
        ("https://en.wikipedia.org/wiki/Alan_Turing", "Alan_Turing.txt"),
        ("https://en.wikipedia.org/wiki/Alan_Turing#Death", "Alan Turing.md"),
        ("https://en.wikipedia.org/wiki/Erd%C5%91s_number?x=1", "Erdős_number.txt"),
        ("https://en.wikipedia.org/wiki/AC/DC", "AC_DC.txt"),
        ("https://other.org/a/b/Topic", "Topic.txt"),
        ("https://en.wikipedia.org/wiki/%2e%2e%2Fsecret", ".._secret.txt"),
    ],
)
def test_an_article_is_found_by_the_end_of_its_address(tmp_path: Path, link: str, file: str) -> None:
    (tmp_path / file).write_text(" text \n")
    assert article(link, str(tmp_path)) == "text"


@pytest.mark.parametrize("link", ["http://[wiki/Rome", "https://x/wiki/" + "y" * 400])
def test_a_link_that_can_have_no_article_costs_no_row(tmp_path: Path, link: str) -> None:
    assert article(link, str(tmp_path)) == ""


def test_articles_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "B.txt").write_text("b")
    links = ["https://x/wiki/A", "https://x/wiki/B", "https://x/", ""]
    assert articles(links, str(tmp_path)) == [{"link": "https://x/wiki/B", "text": "b"}]
    assert articles(links, "") == []


def test_articles_come_from_their_folder_only(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("s")
    folder = tmp_path / "inside"
    folder.mkdir()
    assert article("https://x/wiki/../secret", str(folder)) == ""
    assert article("https://x/wiki/..%2Fsecret", str(folder)) == ""


# -- benchmark.toml -----------------------------------------------------------------------------


def test_a_folder_declares_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "benchmark.toml").write_text(
        """
[data]
path = "a/b"
revision = "v1"
filter = "n > 1"
[data.files]
main = "{split}/x.parquet"
more = ["{split}/y.parquet", "{split}/y.jsonl"]
[data.attachments]
name = "file"
[args]
folder = ""
[columns]
doubled = "n * 2"
question = ["Question", "q"]
[fields]
problem = ["Prompt text", "question"]
reference = ["Final answer", "answer"]
choices = ["options", "choices"]
shuffle_choices = true
"""
    )
    made = load_benchmark(folder)
    assert (made.revision, made.filter, made.args) == ("v1", "n > 1", {"folder": ""})
    assert made.files == {"main": ("{split}/x.parquet",), "more": ("{split}/y.parquet", "{split}/y.jsonl")}
    assert made.attachments is not None
    assert (made.attachments.name, made.attachments.path) == ("file", None)
    assert made.columns["question"] == ("Question", "q")
    assert made.columns[made.fields["reference"]] == ("Final answer", "answer")
    assert made.choices is not None
    assert made.columns[made.choices] == ("options", "choices")
    assert made.shuffle_choices
    assert made.prompt_template == '{{ row["fields.problem"] }}'


def test_worked_examples_and_shuffled_options_exclude_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    text = "[data]\npath = 'a/b'\n[fields]\nproblem = 'q'\nreference = 'a'\nshuffle_choices = true\n"
    (folder / "benchmark.toml").write_text(text)
    (folder / "fewshot.jsonl").write_text('{"q": "?", "a": "A"}\n')
    with pytest.raises(ConfigError, match="shuffle_choices"):
        load_benchmark(folder)
