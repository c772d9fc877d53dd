from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.errors import ConfigError
from evalray.settings import BUILT_IN, RunDefaults
from evalray.suite import (
    BenchmarkEntry,
    Cell,
    ModelEntry,
    Overrides,
    Registry,
    Suite,
    expand,
    merge_layers,
    suite_from_flags,
    suite_name,
)

Load = Callable[[str], Suite]

MATRIX = """
[[models]]
name = "a"
engine = "openai-compatible"
base_url = "http://127.0.0.1:1/v1"
[[models]]
name = "b/c"
engine = "openai-compatible"
base_url = "http://127.0.0.1:2/v1"
[[benchmarks]]
name = "gsm8k"
[[benchmarks]]
name = "quickstart"
"""


def cells_of(cells: list[Cell]) -> list[tuple[str, str]]:
    return [(cell.config.model, cell.config.benchmark) for cell in cells]


# -- precedence ---------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 2),
    "max_tokens": st.integers(1, 10_000),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(1, 100),
    "stop": st.lists(st.text(min_size=1), max_size=3),
    "seed": st.integers(0, 1000),
    "system_prompt": st.text(min_size=1),
}
FLAG_KEYS = {"temperature", "max_tokens"}
layers = st.fixed_dictionaries({}, optional=VALUES)
flag_layers = st.fixed_dictionaries({}, optional={key: VALUES[key] for key in FLAG_KEYS})


@given(flags=flag_layers, benchmark=layers, model=layers, defaults=layers, own=layers)
def test_the_highest_layer_that_gives_a_setting_wins(
    flags: dict[str, Any],
    benchmark: dict[str, Any],
    model: dict[str, Any],
    defaults: dict[str, Any],
    own: dict[str, Any],
) -> None:
    merged = merge_layers(
        Overrides(**flags),
        BenchmarkEntry(name="x", **benchmark),
        ModelEntry(name="m", **model),
        RunDefaults(**defaults),
        own,
    )
    for key in VALUES:
        giving = [layer[key] for layer in (flags, benchmark, model, defaults, own) if key in layer]
        assert merged.get(key) == (giving[0] if giving else BUILT_IN.get(key))


def test_precedence_holds_through_the_whole_expansion(load: Load, registry: Registry) -> None:
    text = "[defaults]\nmax_tokens = 4\n" + MATRIX.replace('"a"', '"a"\nmax_tokens = 3')
    suite = load(text.replace('"quickstart"', '"quickstart"\nmax_tokens = 2'))
    tokens = {
        (c.config.model, c.config.benchmark): c.config.max_tokens for c in expand(suite, None, registry)
    }
    assert tokens == {
        ("a", "gsm8k"): 3,
        ("a", "quickstart"): 2,
        ("b/c", "gsm8k"): 4,
        ("b/c", "quickstart"): 2,
    }
    flagged = expand(suite, Overrides(max_tokens=1), registry)
    assert {cell.config.max_tokens for cell in flagged} == {1}


def test_a_benchmarks_own_defaults_apply_where_the_suite_says_nothing(load: Load, registry: Registry) -> None:
    gsm8k, quickstart = expand(load(MATRIX), Overrides(model=["a"]), registry)
    assert (gsm8k.config.max_tokens, gsm8k.config.stop) == (300, ["Question:"])
    assert (quickstart.config.max_tokens, quickstart.config.stop) == (2048, [])


def test_an_empty_system_prompt_switches_a_lower_one_off(load: Load, registry: Registry) -> None:
    suite = load("[defaults]\nsystem_prompt = 'x'\n" + MATRIX.replace('"a"', '"a"\nsystem_prompt = ""'))
    prompts = [cell.config.system_prompt for cell in expand(suite, Overrides(benchmark=["gsm8k"]), registry)]
    assert prompts == [None, "x"]


def test_the_seed_flag_shuffles_and_leaves_the_sampling_seed_alone(load: Load, registry: Registry) -> None:
    suite = load(MATRIX.replace('"a"', '"a"\nseed = 7'))
    config = expand(suite, Overrides(seed=0), registry)[0].config
    assert (config.seed, config.sampling_seed) == (0, 7)


def test_zero_is_a_value_and_not_an_absence(load: Load, registry: Registry) -> None:
    suite = load("[run]\nseed = 5\n[defaults]\ntemperature = 0.9\n" + MATRIX)
    config = expand(suite, Overrides(temperature=0.0, seed=0), registry)[0].config
    assert (config.temperature, config.seed) == (0.0, 0)


def test_a_benchmarks_judge_overrides_the_suites_and_a_flag_both(load: Load, registry: Registry) -> None:
    suite = load("[judge]\nmodel = 'j'\n" + MATRIX.replace('"quickstart"', '"quickstart"\njudge_model = "k"'))
    judges = [cell.config.judge_model for cell in expand(suite, Overrides(model=["a"]), registry)]
    assert judges == ["j", "k"]
    flagged = expand(suite, Overrides(judge_model="f"), registry)
    assert {cell.config.judge_model for cell in flagged} == {"f"}


def test_scorer_arguments_of_the_suite_come_on_top_of_the_benchmarks(load: Load, registry: Registry) -> None:
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\nscorer_args = { strict = true }'))
    config = expand(suite, None, registry)[0].config
    assert (config.scorer, config.scorer_args) == ("number", {"tolerance": 0.01, "strict": True})


def test_another_scorer_does_not_inherit_the_benchmarks_arguments(load: Load, registry: Registry) -> None:
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\nscorer = "exact"'))
    config = expand(suite, None, registry)[0].config
    assert (config.scorer, config.scorer_args) == ("exact", {})


# -- selection ----------------------------------------------------------------------------------


def test_cells_come_model_by_model_in_the_order_of_the_suite(load: Load, registry: Registry) -> None:
    assert cells_of(expand(load(MATRIX), None, registry)) == [
        ("a", "gsm8k"),
        ("a", "quickstart"),
        ("b/c", "gsm8k"),
        ("b/c", "quickstart"),
    ]


def test_flags_beside_a_suite_select_its_cells(load: Load, registry: Registry) -> None:
    cells = expand(load(MATRIX), Overrides(benchmark=["quickstart"], model=["b/c"]), registry)
    assert cells_of(cells) == [("b/c", "quickstart")]


def test_a_selection_of_what_is_not_there_names_the_nearest(load: Load, registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(load(MATRIX), Overrides(benchmark=["gms8k"], model=["b/d"]), registry)
    assert [problem.key for problem in caught.value.problems] == ["--model", "--benchmark"]
    assert "did you mean 'b/c'" in str(caught.value)
    assert "did you mean 'gsm8k'" in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"temperature": -1.0}, "--temperature"),
        ({"temperature": float("nan")}, "--temperature"),
        ({"max_samples": 0}, "--max-samples"),
        ({"max_workers": 0}, "--max-workers"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"base_url": "localhost:8000"}, "--base-url"),
        ({"engine": "vlm"}, "--engine"),
        ({"backend": "direct"}, "--backend"),
        ({"sweep_id": "../../x"}, "--sweep-id"),
        ({"sweep_id": "a b"}, "--sweep-id"),
        ({"output_dir": ""}, "--output-dir"),
    ],
)
def test_an_impossible_flag_is_named(load: Load, registry: Registry, flags: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(load(MATRIX), Overrides(**flags), registry)
    assert [problem.key for problem in caught.value.problems] == [key]


# -- without a suite file -----------------------------------------------------------------------


def test_flags_alone_span_a_matrix(registry: Registry) -> None:
    overrides = Overrides(
        benchmark=["gsm8k", "quickstart"], model=["x", "y"], base_url="http://h/v1", tools="a, b,"
    )
    cells = expand(suite_from_flags(overrides, registry), overrides, registry)
    assert len(cells) == 4
    assert {cell.engine.name for cell in cells} == {"openai-compatible"}
    assert cells[0].config.tools == ["a", "b"]


def test_a_single_run_is_named_after_its_benchmark_and_model(registry: Registry) -> None:
    suite = suite_from_flags(Overrides(benchmark=["gsm8k"], model=["qwen3:8b"]), registry)
    assert suite_name(suite) == "gsm8k_qwen3-8b"


def test_a_matrix_of_flags_says_in_few_words_what_it_is(registry: Registry) -> None:
    suite = suite_from_flags(
        Overrides(benchmark=["gsm8k", "quickstart"], model=["x"]), registry, name="all_x"
    )
    assert (suite_name(suite), suite.meta.description) == ("all_x", "gsm8k, quickstart on x")
    many = Overrides(benchmark=["gsm8k"], model=[f"m{number}" for number in range(9)])
    assert suite_from_flags(many, registry).meta.description == "gsm8k on m0, m1, m2 and 6 more"


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({}, ["--benchmark", "--model"]),
        ({"model": ["m"]}, ["--benchmark"]),
        ({"benchmark": ["gsm8k"]}, ["--model"]),
    ],
)
def test_without_a_suite_both_flags_are_needed(
    registry: Registry, flags: dict[str, Any], missing: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        suite_from_flags(Overrides(**flags), registry)
    assert [problem.key for problem in caught.value.problems] == missing


def test_an_unknown_benchmark_flag_names_the_nearest(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"--benchmark: unknown benchmark 'gsm9k' \(did you mean 'gsm8k'"):
        suite_from_flags(Overrides(benchmark=["gsm9k"], model=["m"]), registry)


def test_a_suite_without_a_name_is_named_after_its_file(load: Load) -> None:
    assert suite_name(load(MATRIX)) == "suite"


# -- data ---------------------------------------------------------------------------------------


def test_data_is_looked_for_beside_the_suite_then_in_the_benchmarks_folder(
    load: Load, registry: Registry, tmp_path: Path
) -> None:
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\ndata = "sample.jsonl"'))
    benchmark = registry.benchmarks["gsm8k"].folder
    assert expand(suite, None, registry)[0].config.data == str(benchmark / "sample.jsonl")
    (tmp_path / "sample.jsonl").write_text("{}\n")
    assert expand(suite, None, registry)[0].config.data == str(tmp_path / "sample.jsonl")


@pytest.mark.parametrize(
    ("data", "is_path"),
    [("org/name", False), ("missing.jsonl", True), ("./name", True), ("*.parquet", True), ("part-*", True)],
)
def test_a_name_that_is_no_path_is_a_hub_name(
    load: Load, registry: Registry, tmp_path: Path, data: str, is_path: bool
) -> None:
    suite = load(MATRIX.replace('"gsm8k"', f'"gsm8k"\ndata = "{data}"'))
    resolved = expand(suite, None, registry)[0].config.data
    assert resolved == (str(tmp_path / data) if is_path else data)


def test_a_glob_that_matches_is_resolved(load: Load, registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "part-1.jsonl").write_text("{}\n")
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\ndata = "part-*.jsonl"'))
    assert expand(suite, None, registry)[0].config.data == str(tmp_path / "part-*.jsonl")


def test_a_data_flag_is_relative_to_the_working_directory(
    load: Load, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "rows.jsonl").write_text("{}\n")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    monkeypatch.chdir(here)
    cell = expand(load(MATRIX), Overrides(data="rows.jsonl"), registry)[0]
    assert cell.config.data == str(here / "rows.jsonl")


def test_the_benchmarks_split_belongs_to_its_own_data_only(
    load: Load, registry: Registry, tmp_path: Path
) -> None:
    assert expand(load(MATRIX), None, registry)[0].config.dataset_split == "test"
    (tmp_path / "rows.jsonl").write_text("{}\n")
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\ndata = "rows.jsonl"'))
    assert expand(suite, None, registry)[0].config.dataset_split is None


def test_a_hidden_benchmark_of_the_same_name_is_said(load: Load, registry: Registry, tmp_path: Path) -> None:
    listing = registry.benchmarks["gsm8k"]
    assert listing.benchmark is not None
    registry.benchmarks["gsm8k"] = replace(listing, shadows=(tmp_path / "other",))
    assert any("hides" in note for note in expand(load(MATRIX), None, registry)[0].notes)


# -- what is not there --------------------------------------------------------------------------


def test_a_benchmark_that_openjarvis_has_is_unsupported_and_no_error(load: Load, registry: Registry) -> None:
    suite = load(MATRIX.replace('"gsm8k"', '"taubench"\nbackend = "jarvis-agent"'))
    cell = expand(suite, None, registry)[0]
    assert len(cell.unsupported) == 2
    assert "taubench" in cell.unsupported[0]
    assert "jarvis-agent" in cell.unsupported[1]


def test_adding_an_engine_turns_its_cells_ready(load: Load, registry: Registry) -> None:
    suite = load('[[models]]\nname = "m"\nengine = "ollama"\n[[benchmarks]]\nname = "quickstart"\n')
    assert len(expand(suite, None, registry)[0].unsupported) == 1
    grown = replace(registry, engines=registry.engines | {"ollama"})
    assert expand(suite, None, grown)[0].unsupported == ()


def test_a_benchmarks_arguments_reach_its_run_and_paths_are_the_suites(
    load: Load, registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "articles").mkdir()
    suite = load(MATRIX.replace('"gsm8k"', '"gsm8k"\nargs = { articles = "articles", n = 2, s = "no path" }'))
    args = expand(suite, None, registry)[0].config.benchmark_args
    assert args == {"articles": str(tmp_path / "articles"), "n": 2, "s": "no path"}


TWICE = '[[models]]\nname = "m"\nengine = "openai-compatible"\nbase_url = "http://127.0.0.1:{port}/v1"\n'


def test_a_run_that_stands_twice_is_refused_with_the_key_that_differs(load: Load, registry: Registry) -> None:
    models = TWICE.format(port=1) + TWICE.format(port=2) + TWICE.format(port=3)
    suite = load(models + '[[benchmarks]]\nname = "gsm8k"\n[[benchmarks]]\nname = "quickstart"\n')
    with pytest.raises(ConfigError) as caught:
        expand(suite, registry=registry)
    assert [problem.key for problem in caught.value.problems] == ["models[1]", "models[2]"]
    problem = caught.value.problems[0]
    assert "base_url differs" in problem.message
    assert "gsm8k, quickstart" in problem.message
    assert "temperature" in problem.hint


def test_a_benchmark_that_stands_twice_is_refused(load: Load, registry: Registry) -> None:
    entries = '[[benchmarks]]\nname = "gsm8k"\n[[benchmarks]]\nname = "gsm8k"\nmax_samples = 3\n'
    with pytest.raises(ConfigError, match="gsm8k stands twice for m"):
        expand(load(TWICE.format(port=1) + entries), registry=registry)


@pytest.mark.parametrize(
    "setting", ["temperature = 0.5", "seed = 1", "engine_args = {extra_body = {min_p = 0.1}}"]
)
def test_a_setting_that_can_change_an_answer_tells_two_runs_apart(
    load: Load, registry: Registry, setting: str
) -> None:
    models = TWICE.format(port=1) + TWICE.format(port=1) + setting + "\n"
    assert len(expand(load(models + '[[benchmarks]]\nname = "gsm8k"\n'), registry=registry)) == 2
