from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evalray.benchmarks import BenchmarkListing
from evalray.errors import ConfigError, Problem
from evalray.scorers import build_scorer
from evalray.suite import Registry, Suite, load_suite, suite_from_table

MODEL = '[[models]]\nname = "m"\nengine = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
BENCHMARK = '[[benchmarks]]\nname = "gsm8k"\n'
VALID = MODEL + BENCHMARK

Load = Callable[[str], Suite]


def problems_in(load: Load, text: str) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return {problem.key: problem for problem in caught.value.problems}


def test_a_suite_of_one_model_and_one_benchmark_needs_nothing_else(load: Load) -> None:
    suite = load(VALID)
    assert [entry.name for entry in suite.models] == ["m"]
    assert suite.warnings == []


def test_json_suites_load_by_their_extension(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({"models": [{"name": "m"}], "benchmarks": [{"name": "gsm8k"}]}))
    assert load_suite(file, registry).models[0].name == "m"


def test_a_byte_order_mark_is_no_mistake(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "suite.toml"
    file.write_bytes(b"\xef\xbb\xbf" + VALID.replace("\n", "\r\n").encode())
    assert load_suite(file, registry).benchmarks[0].name == "gsm8k"


@pytest.mark.parametrize(
    ("text", "key", "says", "hint"),
    [
        (VALID.replace("engine", "engin"), "models[0].engin", "unknown key", "engine"),
        (VALID + "max_sample = 3\n", "benchmarks[0].max_sample", "unknown key", "max_samples"),
        (
            MODEL + "quantisation = 'awq'\n" + BENCHMARK,
            "models[0].quantisation",
            "unknown key",
            "engine_args.quantization",
        ),
        (
            MODEL + "max_model_len = 8\n" + BENCHMARK,
            "models[0].max_model_len",
            "unknown",
            "engine_args.max_model_len",
        ),
        (MODEL + "num_ctx = 8\n" + BENCHMARK, "models[0].num_ctx", "unknown key", "engine_args.num_ctx"),
        (
            "[judge]\nreasoning_efort = 'low'\n" + VALID,
            "judge.reasoning_efort",
            "unknown",
            "engine_args.reasoning_effort",
        ),
        (MODEL + "replica = 2\n" + BENCHMARK, "models[0].replica", "unknown key", "did you mean 'replicas'"),
        (
            MODEL + "max-samples = 2\n" + BENCHMARK,
            "models[0].max-samples",
            "unknown",
            "[defaults] or [[benchmarks]]",
        ),
        ("[defaults]\nmax_workers = 2\n" + VALID, "defaults.max_workers", "unknown key", "belongs in [run]"),
        ("output_dir = 'x'\n" + VALID, "output_dir", "unknown key", "belongs in [run]"),
        ("[judg]\nmodel='x'\n" + VALID, "judg", "unknown key", "judge"),
        ("[run]\nmax_worker = 3\n" + VALID, "run.max_worker", "unknown key", "max_workers"),
        (VALID.replace("gsm8k", "gsmk8"), "benchmarks[0].name", "unknown benchmark 'gsmk8'", "gsm8k"),
        (VALID.replace("gsm8k", "mmlu_pro"), "benchmarks[0].name", "unknown benchmark", "mmlu-pro"),
        (VALID.replace("openai-compatible", "olama"), "models[0].engine", "unknown engine", "ollama"),
        ("[judge]\nengine = 'clowd'\n" + VALID, "judge.engine", "unknown engine", "cloud"),
        (VALID + "backend = 'jarvis-agnt'\n", "benchmarks[0].backend", "unknown backend", "jarvis-agent"),
        (VALID + "scorer = 'nubmer'\n", "benchmarks[0].scorer", "unknown scorer", "number"),
        (MODEL + "temperature = -0.5\n" + BENCHMARK, "models[0].temperature", "-0.5 must be greater", ""),
        (MODEL + "temperature = '0.5'\n" + BENCHMARK, "models[0].temperature", "'0.5' must be", ""),
        (MODEL + "temperature = nan\n" + BENCHMARK, "models[0].temperature", "finite", ""),
        (MODEL + "max_tokens = true\n" + BENCHMARK, "models[0].max_tokens", "True must be", ""),
        (MODEL + "max_tokens = 10.5\n" + BENCHMARK, "models[0].max_tokens", "10.5 must be", ""),
        (MODEL + "replicas = 0\n" + BENCHMARK, "models[0].replicas", "0 must be", ""),
        (MODEL + "top_p = 1.5\n" + BENCHMARK, "models[0].top_p", "1.5 must be", ""),
        (MODEL + "timeout_seconds = 0\n" + BENCHMARK, "models[0].timeout_seconds", "0 must be", ""),
        (VALID + "max_samples = 0\n", "benchmarks[0].max_samples", "0 must be", ""),
        (VALID + "max_samples = -1\n", "benchmarks[0].max_samples", "-1 must be", ""),
        (VALID + "epochs = 2\npass_k = [1, 3]\n", "benchmarks[0].pass_k", "3 is more than epochs = 2", "3"),
        (VALID + "num_fewshot = 4\n", "benchmarks[0].num_fewshot", "4 is more than the 1", "at most 1"),
        (
            MODEL + "[[benchmarks]]\nname = 'quickstart'\nnum_fewshot = 1\n",
            "benchmarks[0].num_fewshot",
            "1, but quickstart has no worked examples",
            "fewshot.jsonl",
        ),
        ("[run]\nmax_error_rate = 1.5\n" + VALID, "run.max_error_rate", "1.5 must be", ""),
        ("[telemetry]\nprometheus_prot = 1\n" + VALID, "telemetry.prometheus_prot", "unknown key", "port"),
        ("[telemetry]\nprometheus_port = -1\n" + VALID, "telemetry.prometheus_port", "-1 must be", ""),
        ("[telemetry]\nprometheus_port = true\n" + VALID, "telemetry.prometheus_port", "True must be", ""),
        ("[telemetry]\ngrid_gco2e_per_kwh = 0\n" + VALID, "telemetry.grid_gco2e_per_kwh", "0 must be", ""),
        ("[telemetry]\ngrid_gco2e_per_kwh = inf\n" + VALID, "telemetry.grid_gco2e_per_kwh", "finite", ""),
        ("[telemetry]\nestimate = 1\n" + VALID, "telemetry.estimate", "1 must be", ""),
        ("[telemetry]\nprometheus_host = '0.0.0.0:1'\n" + VALID, "telemetry.prometheus_host", "alone", ""),
        ("[telemetry]\nprometheus_host = ''\n" + VALID, "telemetry.prometheus_host", "host name", ""),
        ("telemetry = true\n" + VALID, "telemetry", "True must be", ""),
        ("[run]\nbreaker_errors = 0\n" + VALID, "run.breaker_errors", "0 must be", ""),
        (VALID.replace("http:", "ftp:"), "models[0].base_url", "must be an address", ""),
        (VALID.replace("127.0.0.1:1", "127.0.0.1:99999"), "models[0].base_url", "must be an address", ""),
        ("[[models]]\nengine = 'vllm'\n" + BENCHMARK, "models[0].name", "missing", ""),
        (MODEL + "[[benchmarks]]\nmax_samples = 1\n", "benchmarks[0].name", "missing", ""),
        (BENCHMARK, "models", "missing", ""),
        ("models = []\n" + BENCHMARK, "models", "at least 1", ""),
        ("[models]\nname = 'm'\n" + BENCHMARK, "models", "a table", "[[models]]"),
        ("[[run]]\nseed = 1\n" + VALID, "run", "a list of tables", "[run]"),
        ("[meta]\nname = '../../x'\n" + VALID, "meta.name", "not a path", ""),
        ("[meta]\nname = '..'\n" + VALID, "meta.name", "not a path", ""),
        ("[meta]\nname = ' '\n" + VALID, "meta.name", "printable", ""),
        ("[backend.extern]\nbase_url = 'http://x'\n" + VALID, "backend.extern", "unknown key", "external"),
        ("[backend.external]\nurl = 'x'\n" + VALID, "backend.external.url", "unknown key", "base_url"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_what_would_be_right(
    load: Load, text: str, key: str, says: str, hint: str
) -> None:
    problem = problems_in(load, text)[key]
    assert says in problem.message
    assert hint in problem.hint
    assert problem.source.endswith("suite.toml")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "localhost", "node-3.cluster_a"])
def test_a_host_to_serve_prometheus_at_may_be_a_name_or_an_address(load: Load, host: str) -> None:
    text = f"[telemetry]\nprometheus_host = '{host}'\nprometheus_port = 0\n"
    assert load(text + VALID).telemetry.prometheus_host == host


def test_all_mistakes_of_a_file_are_named_at_once(load: Load) -> None:
    text = """
[defaults]
temperature = -1
[run]
bogus = 1
[[models]]
engine = "vlm"
replicas = 0
[[benchmarks]]
name = "gsm8q"
backend = "x"
pass_k = 5
max_samples = "all"
"""
    assert set(problems_in(load, text)) == {
        "defaults.temperature",
        "run.bogus",
        "models[0].name",
        "models[0].engine",
        "models[0].replicas",
        "benchmarks[0].name",
        "benchmarks[0].backend",
        "benchmarks[0].pass_k",
        "benchmarks[0].max_samples",
    }


def test_pass_k_is_checked_against_the_epochs_that_apply(load: Load) -> None:
    assert load("[defaults]\nepochs = 4\n" + VALID + "pass_k = 4\n").benchmarks[0].pass_k == [4]
    problem = problems_in(load, "[defaults]\nepochs = 4\n" + VALID + "epochs = 1\npass_k = 4\n")
    assert "epochs = 1" in problem["benchmarks[0].pass_k"].message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00bad", "not UTF-8"),
        (b"[models\nname = 1", "not valid TOML"),
        (b"", "missing"),
        (b"a = 1\na = 2\n", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_config_error(
    registry: Registry, tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "suite.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        load_suite(file, registry)


def test_a_missing_file_suggests_the_one_beside_it(
    registry: Registry, write_suite: Callable[..., Path]
) -> None:
    file = write_suite(VALID)
    with pytest.raises(ConfigError, match=r"no such file.*suite\.toml"):
        load_suite(file.with_name("siute.toml"), registry)


def test_a_folder_is_no_suite(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_suite(tmp_path, registry)


@pytest.mark.parametrize("content", ["[1, 2]", '{"models": [', "null", "[" * 100_000])
def test_json_that_is_no_table_is_a_config_error(registry: Registry, tmp_path: Path, content: str) -> None:
    file = tmp_path / "suite.json"
    file.write_text(content)
    with pytest.raises(ConfigError):
        load_suite(file, registry)


def test_a_broken_benchmark_folder_is_reported_with_the_suite(
    registry: Registry, load: Load, tmp_path: Path
) -> None:
    wrong = Problem("x/benchmark.toml", "data.splt", "unknown key", "did you mean 'split'?")
    registry.benchmarks["broken"] = BenchmarkListing("broken", tmp_path, "./benchmarks", None, (wrong,))
    assert problems_in(load, VALID.replace("gsm8k", "broken"))["data.splt"] is wrong


def test_a_scorers_wrong_argument_is_named_where_it_stands(registry: Registry, load: Load) -> None:
    checked = replace(registry, build_scorer=build_scorer)
    listing = registry.benchmarks["quickstart"]
    assert listing.benchmark is not None
    own = replace(listing.benchmark, scorer_args={"stray": 1})
    checked.benchmarks["quickstart"] = replace(listing, benchmark=own)
    text = MODEL + '[[benchmarks]]\nname = "quickstart"\nscorer_args = { bogus = 2 }\n'
    with pytest.raises(ConfigError) as caught:
        suite_from_table(tomllib.loads(text), "suite.toml", checked)
    assert {(Path(p.source).name, p.key) for p in caught.value.problems} == {
        ("suite.toml", "benchmarks[0].scorer_args.bogus"),
        ("benchmark.toml", "scorer.stray"),
    }


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ("exct", "unknown scorer 'exct'"),
        ("no_such_module:Holds", "cannot import no_such_module"),
        ("json:Holds", "has no Scorer class 'Holds'"),
    ],
)
def test_a_benchmarks_own_scorer_that_is_wrong_is_named_in_its_definition_and_the_suites_in_the_suite(
    registry: Registry, scorer: str, message: str
) -> None:
    checked = replace(registry, build_scorer=build_scorer)
    listing = registry.benchmarks["quickstart"]
    assert listing.benchmark is not None
    suite = MODEL + '[[benchmarks]]\nname = "quickstart"\n'

    def found(text: str) -> tuple[str, str]:
        with pytest.raises(ConfigError, match=message) as caught:
            suite_from_table(tomllib.loads(text), "suite.toml", checked)
        (problem,) = caught.value.problems
        return Path(problem.source).name, problem.key

    assert found(f'{suite}scorer = "{scorer}"\n') == ("suite.toml", "benchmarks[0].scorer")
    checked.benchmarks["quickstart"] = replace(listing, benchmark=replace(listing.benchmark, scorer=scorer))
    assert found(suite) == ("benchmark.toml", "scorer.name")


# -- secrets ------------------------------------------------------------------------------------

SECRET = "sk-live-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        MODEL + f"api_key = '{SECRET}'\n" + BENCHMARK,
        MODEL + f"api_key_env = '{SECRET}'\n" + BENCHMARK,
        MODEL + f"engine_args = {{ api_key = '{SECRET}' }}\n" + BENCHMARK,
        MODEL + f"engine_args = {{ headers = {{ Authorization = '{SECRET}' }} }}\n" + BENCHMARK,
        VALID + f"scorer_args = {{ token = '{SECRET}' }}\n",
        VALID.replace("http://", f"http://user:{SECRET}@"),
        VALID.replace("/v1", f"/v1?api_key={SECRET}"),
        f"[tracking]\nuri = 'http://user:{SECRET}@host'\n" + VALID,
        MODEL + f"api_kye = '{SECRET[3:]}'\n" + BENCHMARK,
        MODEL + f"engin = '{SECRET}'\n" + BENCHMARK,
        f"[judge]\napi_key = '{SECRET}'\n" + VALID,
        f"[backend.external]\napi_key = '{SECRET}'\nbogus = 1\n" + VALID,
    ],
)
def test_a_secret_in_a_file_is_refused_and_never_repeated(load: Load, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert SECRET[3:] not in str(caught.value)


def test_a_literal_key_is_told_where_it_belongs(load: Load) -> None:
    problem = problems_in(load, MODEL + f"api_key = '{SECRET}'\n" + BENCHMARK)["models[0].api_key"]
    assert "api_key_env" in problem.hint


def test_the_key_of_an_external_backend_is_warned_about_and_dropped(load: Load) -> None:
    suite = load(f"[backend.external]\napi_key = '{SECRET}'\n" + VALID)
    assert "backend.external.api_key" in suite.warnings[0]
    assert SECRET not in str(suite.fields_given()) + str(suite.warnings)


# -- OpenJarvis ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "wandb_project",
        "wandb_anything",
        "sheets_spreadsheet_id",
        "energy_vendor",
        "max_turns",
        "global_agent_timeout_sec",
    ],
)
def test_a_key_of_openjarvis_that_has_no_effect_here_only_warns(load: Load, key: str) -> None:
    suite = load(f"[run]\n{key} = 'x'\n" + VALID)
    assert [key in warning for warning in suite.warnings] == [True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run]\ngpu_metrics = true\n", "run.gpu_metrics: ignored"),
        ("[run]\ntelemetry = false\n[telemetry]\nestimate = true\n", "telemetry.estimate: without effect"),
        ("[tracking]\nenabled = false\nexperiment = 'e'\n", "tracking.experiment: without effect"),
    ],
)
def test_a_setting_that_another_leaves_without_effect_is_said(load: Load, text: str, said: str) -> None:
    [warning] = load(text + VALID).warnings
    assert said in warning


def test_keys_that_are_ignored_for_one_reason_are_named_in_one_line(load: Load) -> None:
    agents = "global_agent_timeout_sec = 5\n"
    text = (
        "[run]\nwandb_project = 'a'\nwandb_entity = 'b'\n"
        + VALID
        + agents
        + BENCHMARK
        + agents
        + "split = 'x'\n"
    )
    tracking, limits = load(text).warnings
    assert "run.wandb_project, run.wandb_entity: ignored (use [tracking]" in tracking
    assert "benchmarks[0].global_agent_timeout_sec, benchmarks[1].global_agent_timeout_sec: ignored" in limits


def test_a_repeated_entry_is_left_out_with_a_warning(load: Load) -> None:
    suite = load(MODEL + MODEL + MODEL + "temperature = 1\n" + BENCHMARK + BENCHMARK)
    assert (len(suite.models), len(suite.benchmarks)) == (2, 1)
    assert len(suite.warnings) == 2


ABSURD = [
    ("[run]\nseed = 12345678901234567890123\n", "run.seed"),
    ("[defaults]\nepochs = 100_000_000\n", "defaults.epochs"),
    ('[defaults]\nstop = [""]\n', "defaults.stop[0]"),
    ("[defaults]\nmax_samples = 1_000_000_000_000\n", "defaults.max_samples"),
    ('[tracking]\nuri = "foo://bar"\n', "tracking.uri"),
]


@pytest.mark.parametrize(("text", "key"), ABSURD)
def test_a_value_beyond_all_sense_is_a_mistake(load: Load, text: str, key: str) -> None:
    assert list(problems_in(load, text + VALID)) == [key]


@pytest.mark.parametrize(
    ("line", "key"),
    [("replicas = 100_000\n", "replicas"), ("engine_args = {extra_body = {min_p = nan}}\n", "engine_args")],
)
def test_a_model_beyond_all_sense_is_a_mistake(load: Load, line: str, key: str) -> None:
    assert list(problems_in(load, MODEL + line + BENCHMARK)) == [f"models[0].{key}"]


@pytest.mark.timeout(20)
def test_a_suite_that_is_no_regular_file_is_refused_at_once(registry: Registry, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "suite.toml")
    with pytest.raises(ConfigError, match="no regular file"):
        load_suite(tmp_path / "suite.toml", registry)


def test_a_file_too_large_for_a_suite_is_not_read_whole(registry: Registry, tmp_path: Path) -> None:
    with (tmp_path / "suite.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        load_suite(tmp_path / "suite.json", registry)
