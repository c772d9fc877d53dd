from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalray.definition import Benchmark
from evalray.errors import ConfigError
from evalray.prompts import (
    Field,
    PromptTemplate,
    RowError,
    TextTemplate,
    after_last,
    fewshot_messages,
    letter,
    letter_in,
    lettered_options,
    prompt_hash,
    template_problems,
)
from evalray.types import RunConfig


def benchmark(**changes: Any) -> Benchmark:
    settings: dict[str, Any] = {
        "name": "b",
        "folder": Path("b"),
        "prompt_template": "Q: {{ question }}",
        "fields": {"reference": "answer"},
        "fewshot": tuple({"question": f"q{i}", "answer": f"a{i}"} for i in range(3)),
    }
    return Benchmark(**(settings | changes))


def run(**settings: Any) -> RunConfig:
    return RunConfig("b", "llamacpp", "m", **settings)


# -- templates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["{{ q }}", "a {{ q }} b {{ r }}\n", "{{ q -}}\n\n x", "{# note #}{{ q }}", "x"]
)
def test_plain_templates_render_as_jinja_does(source: str) -> None:
    from jinja2 import Environment

    row = {"q": "<b>{{ r }}</b>", "r": 7}
    template = TextTemplate(source, origin="t")
    assert template.plain
    assert template.render(row) == Environment().from_string(source).render(row)


@pytest.mark.parametrize(
    "source", ["{{ q | upper }}", "{% if q %}x{% endif %}", "{{ q.name }}", "{% set x = q %}{{ x }}"]
)
def test_templates_that_compute_are_not_plain(source: str) -> None:
    assert not TextTemplate(source, origin="t").plain


def test_templates_know_their_columns_and_which_must_not_be_empty() -> None:
    template = TextTemplate("{{ a }}{{ b | trim }}{% if c %}{{ d }}{% endif %}{{ range(2) }}", origin="t")
    assert template.columns == {"a", "b", "c", "d"}
    assert template.printed == {"a"}
    assert template.needed == {"a", "b"}


@pytest.mark.parametrize("source", ["{% if q %}{{ row.x }}{% endif %}", "{{ 'a' if q else x }}{{ x.y }}"])
def test_a_column_that_is_missing_is_named_as_one(source: str) -> None:
    with pytest.raises(RowError, match=r"^column 'x' is missing$"):
        TextTemplate(source, origin="t").render({"q": 1 if "if q %" in source else 0})


def test_null_is_never_printed_as_a_word() -> None:
    with pytest.raises(RowError, match="null"):
        TextTemplate("{% if q %}{{ q.name }}{% endif %}", origin="t").render({"q": {"name": None}})


@pytest.mark.parametrize(
    "source",
    [
        "{{ absent }}",
        "{{ absent | upper }}",
        "{{ q.__class__.__mro__ }}",
        "{{ q.append(1) }}",
        "{{ 1 // 0 }}",
        "{% for x in range(10 ** 9) %}{% endfor %}",
    ],
)
def test_what_a_row_lacks_or_the_sandbox_forbids_is_a_bad_row(source: str) -> None:
    with pytest.raises(RowError):
        TextTemplate(source, origin="t").render({"q": [1]})


@pytest.mark.parametrize("source", ["{{ q", "{% if %}", "{{ q | no_such_filter }}", "{% endfor %}"])
def test_broken_template_names_its_file(source: str) -> None:
    with pytest.raises(ConfigError, match=r"b[/\\]prompt\.jinja: line 1: "):
        PromptTemplate(benchmark(prompt_template=source))


def test_all_template_problems_come_at_once() -> None:
    broken = benchmark(
        prompt_template="{{", fields={"id": "{{ x | nope }}", "reference": "{{ }}", "subject": "s"}
    )
    assert sorted(problem.key for problem in template_problems(broken)) == [
        "",
        "fields.id",
        "fields.reference",
    ]
    assert template_problems(benchmark()) == []


@pytest.mark.parametrize(("problem", "text"), [("Final question", "why"), ("{{ question }}!", "q!")])
def test_without_prompt_file_the_problem_field_is_the_prompt(problem: str, text: str) -> None:
    template = PromptTemplate(benchmark(prompt_template="", fields={"problem": problem}))
    assert template.render({"Final question": "why", "question": "q"}) == (text, [], [])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (3, "3"),
        (1.5, "1.5"),
        (True, "true"),
        ([1, "é"], '[1, "é"]'),
        (None, ""),
        (float("nan"), ""),
        (" ", ""),
    ],
)
def test_cells_as_text(value: object, text: str) -> None:
    assert Field("c", origin="t", key="k").text({"c": value}) == text


# -- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("steps\n#### 18", "18"),
        ("#### 1\n#### 2 ", "2"),
        (" 18 ", "18"),
        (18, "18"),
        ("x ####", ""),
        (None, ""),
    ],
)
def test_after_last_marker_or_the_whole(text: object, found: str) -> None:
    assert after_last(text, "####") == found


@pytest.mark.parametrize(("value", "found"), [(0, "A"), ("3", "D"), (25, "Z"), ("b", "B"), (" C ", "C")])
def test_letter(value: object, found: str) -> None:
    assert letter(value) == found


@pytest.mark.parametrize("value", [26, -1, "", "AB", "é", None, 1.5])
def test_what_is_no_letter_raises(value: object) -> None:
    with pytest.raises(ValueError, match="neither an index"):
        letter(value)


def test_letter_in_needs_exactly_one_option_of_that_text() -> None:
    assert letter_in("y ", ["x", "y"]) == "B"
    for text, choices in (("z", ["x", "y"]), ("x", ["x", "x"])):
        with pytest.raises(ValueError, match="options, not of one"):
            letter_in(text, choices)


def test_options_are_lettered() -> None:
    assert lettered_options([1, "b"]) == [{"letter": "A", "text": "1"}, {"letter": "B", "text": "b"}]


# -- few-shot and fingerprint -------------------------------------------------------------------


def test_fewshot_turns_use_the_prompt_of_the_benchmark() -> None:
    fields = {"reference": "answer", "fewshot_answer": "So {{ answer }}."}
    assert fewshot_messages(benchmark(fields=fields), 2) == (
        {"role": "user", "content": "Q: q0"},
        {"role": "assistant", "content": "So a0."},
        {"role": "user", "content": "Q: q1"},
        {"role": "assistant", "content": "So a1."},
    )
    assert fewshot_messages(benchmark(), 1)[1]["content"] == "a0"
    assert fewshot_messages(benchmark(), 0) == ()


def test_more_examples_than_there_are_is_an_error() -> None:
    with pytest.raises(ConfigError, match="num_fewshot: 4 examples asked for, there are 3"):
        fewshot_messages(benchmark(), 4)


@pytest.mark.parametrize("row", [{"question": "q"}, {"answer": "a"}, {"question": "q", "answer": ""}])
def test_unusable_example_is_named_by_its_place(row: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"fewshot\.jsonl:2"):
        fewshot_messages(benchmark(fewshot=({"question": "q", "answer": "a"}, row)), 2)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"prompt_template": "Q: {{ question }}."}, {}),
        ({"choices": "options"}, {}),
        ({"fields": {"reference": "answer", "id": "id"}}, {}),
        ({}, {"num_fewshot": 1}),
        ({}, {"num_fewshot": 2}),
        ({}, {"system_prompt": "Be brief."}),
        ({"fewshot": ({"question": "other", "answer": "a0"},)}, {"num_fewshot": 1}),
        ({"fields": {"reference": "answer", "fewshot_answer": "{{ answer }}!"}}, {"num_fewshot": 1}),
    ],
)
def test_prompt_hash_sees_what_changes_a_request(changes: dict[str, Any], settings: dict[str, Any]) -> None:
    same_settings = {key: value for key, value in settings.items() if changes}
    assert prompt_hash(benchmark(**changes), run(**settings)) != prompt_hash(
        benchmark(), run(**same_settings)
    )


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"folder": Path("elsewhere"), "title": "T", "scorer": "mcq"}, {}),
        ({"fields": {"reference": "{{ answer }}"}}, {}),
        ({"fewshot": ()}, {}),
        ({}, {"temperature": 1.0, "concurrency": 3, "data": "x.jsonl"}),
    ],
)
def test_prompt_hash_ignores_what_does_not(changes: dict[str, Any], settings: dict[str, Any]) -> None:
    assert prompt_hash(benchmark(**changes), run(**settings)) == prompt_hash(benchmark(), run())
