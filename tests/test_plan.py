from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import BenchmarkListing
from evalray.cli.plan_text import plan_lines
from evalray.definition import Benchmark
from evalray.deployments import PROMPT_ALLOWANCE_TOKENS
from evalray.errors import ConfigError
from evalray.plan import Plan, make_plan, plan_to_dict
from evalray.suite import (
    BenchmarkEntry,
    ModelEntry,
    Overrides,
    Registry,
    Suite,
    load_suite,
    suite_from_flags,
)

Planned = Callable[..., Plan]

SERVER = 'engine = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'
MODEL = f'[[models]]\nname = "m"\n{SERVER}'
BENCHMARK = '[[benchmarks]]\nname = "own"\n'
VALID = MODEL + BENCHMARK


@pytest.fixture(autouse=True)
def no_ambient_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI", "CUDA_VISIBLE_DEVICES", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "sample.jsonl").write_text("{}\n")
    own = Benchmark(name="own", folder=folder, fewshot=({"question": "x" * 3000},), scorer="exact")
    hub = Benchmark(name="hub", folder=folder, data_path="org/name", gated=True, scorer="exact")
    return Registry(
        frozenset({"llamacpp", "openai-compatible", "vllm"}),
        frozenset({"exact"}),
        {b.name: BenchmarkListing(b.name, folder, "packaged", b) for b in (own, hub)},
    )


@pytest.fixture
def planned(registry: Registry, tmp_path: Path) -> Planned:
    def plan(text: str = VALID, **flags: Any) -> Plan:
        file = tmp_path / "my suite.toml"
        file.write_text(text)
        return make_plan(load_suite(file, registry), Overrides(**flags), registry=registry)

    return plan


def test_a_model_is_deployed_once_for_all_its_benchmarks(planned: Planned) -> None:
    plan = planned(VALID + BENCHMARK + 'split = "dev"\n')
    assert [len(deployment.runs) for deployment in plan.deployments] == [2]


def test_one_name_with_two_settings_is_two_deployments(planned: Planned) -> None:
    plan = planned(MODEL + MODEL + "temperature = 1\n" + BENCHMARK)
    assert [deployment.model for deployment in plan.deployments] == ["m", "m"]
    assert [run.config.temperature for run in plan.runs] == [0.0, 1.0]


def test_a_model_without_a_ready_cell_is_not_deployed(planned: Planned) -> None:
    plan = planned('[[models]]\nname = "n"\nengine = "ollama"\n' + VALID)
    assert [deployment.model for deployment in plan.deployments] == ["m"]
    assert [(run.config.model, run.status) for run in plan.skipped] == [("n", "unsupported")]
    assert "ollama" in plan.skipped[0].reason


# -- in flight, replicas, GPUs ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "run", "flags", "expected"),
    [
        ("", "", {}, None),
        ("", "[run]\nmax_workers = 4\n", {}, 4),
        ("", "[run]\nmax_workers = 4\n", {"max_workers": 9}, 9),
        ("max_concurrency = 16\n", "[run]\nmax_workers = 4\n", {"max_workers": 9}, 16),
    ],
)
def test_in_flight_is_the_models_else_an_explicit_max_workers_else_the_engines(
    planned: Planned, model: str, run: str, flags: dict[str, Any], expected: int | None
) -> None:
    deployment = planned(run + MODEL + model + BENCHMARK, **flags).deployments[0]
    assert deployment.in_flight == expected
    assert deployment.engine_config.max_concurrency == expected


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (SERVER, 32),
        (SERVER + "max_concurrency = 3\n", 3),
        ('engine = "llamacpp"\npath = "m.gguf"\n', 8),
        ('engine = "vllm"\n', None),
        ('engine = "vllm"\nengine_args = { max_num_seqs = 64 }\n', 64),
    ],
)
def test_a_plan_shows_how_many_requests_a_replica_will_have_in_flight(
    planned: Planned, model: str, shown: int | None
) -> None:
    plan = planned(f'[[models]]\nname = "m"\n{model}{BENCHMARK}')
    assert plan_to_dict(plan)["deployments"][0]["in_flight"] == shown
    said = "as the engine has room" if shown is None else f"{shown} in flight"
    assert any(said in line.plain for line in plan_lines(plan))


def test_a_plan_shows_the_examples_and_tries_of_a_run(planned: Planned) -> None:
    settings = "num_fewshot = 1\nepochs = 4\npass_k = [1, 4]\n"
    shown = [line.plain for line in plan_lines(planned(MODEL + BENCHMARK + settings))]
    assert any("× 4 epochs" in line and "1-shot" in line and "pass@1,4" in line for line in shown)


def test_a_benchmarks_concurrency_leaves_the_deployment_as_it_is(planned: Planned) -> None:
    plan = planned(MODEL + "max_concurrency = 8\n" + BENCHMARK + "concurrency = 2\n")
    assert plan.deployments[0].in_flight == 8
    assert plan.runs[0].config.concurrency == 2


@pytest.mark.parametrize(
    ("settings", "tensor_parallel", "gpus"),
    [
        ('engine = "vllm"\n', 1, 1),
        ('engine = "vllm"\nnum_gpus = 2\n', 2, 2),
        ('engine = "vllm"\nnum_gpus = 2\ntensor_parallel_size = 4\n', 4, 4),
        (SERVER + "num_gpus = 2\n", 2, 0),
    ],
)
def test_tensor_parallelism_books_gpus_for_local_engines(
    planned: Planned, settings: str, tensor_parallel: int, gpus: int
) -> None:
    deployment = planned('[[models]]\nname = "m"\n' + settings + BENCHMARK).deployments[0]
    assert deployment.engine_config.tensor_parallel_size == tensor_parallel
    assert deployment.gpus_per_replica == gpus


@pytest.mark.parametrize("engine", ["vllm", "json:JSONDecoder"])
def test_replicas_may_book_a_part_of_a_gpu(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    settings = f'engine = "{engine}"\nnum_gpus = 0.4\nreplicas = 3\n'
    plan = planned('[[models]]\nname = "m"\n' + settings + BENCHMARK)
    deployment = plan.deployments[0]
    assert (deployment.gpus_per_replica, deployment.gpus, deployment.tensor_parallel) == (0.4, 2, 1)
    assert deployment.computes_here
    assert plan_to_dict(plan)["deployments"][0]["gpus_per_replica"] == 0.4
    assert plan_to_dict(plan)["gpus_needed"] == 2
    assert any("3 replicas × 0.4 GPU" in line.plain for line in plan_lines(plan))
    assert "needs 2 GPUs, none known on this machine" in plan.runs[0].notes


def test_vllm_takes_of_a_gpus_memory_what_it_books(planned: Planned) -> None:
    model = '[[models]]\nname = "m"\nengine = "vllm"\nnum_gpus = 0.5\n'
    given = "engine_args = { gpu_memory_utilization = 0.3 }\n"
    taken = [
        planned(text + BENCHMARK).deployments[0].engine_config.engine_args.get("gpu_memory_utilization")
        for text in (model, model + given, model.replace("0.5", "1"))
    ]
    assert taken == [0.45, 0.3, None]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("num_gpus = 1.5\n", "a part of one GPU such as 0.5"),
        ("num_gpus = -0.5\n", "num_gpus"),
        ("num_gpus = true\n", "num_gpus"),
        ("num_gpus = 0.5\ntensor_parallel_size = 2\n", "spread over 2"),
        ("num_gpus = 0.5\nengine_args = { pipeline_parallel_size = 3 }\n", "spread over 3"),
    ],
)
def test_gpus_are_whole_or_a_part_of_one(planned: Planned, settings: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(f'[[models]]\nname = "m"\nengine = "vllm"\n{settings}{BENCHMARK}')


@pytest.mark.parametrize(("written", "gpus"), [("2.0", 2), ("1.0", 1), ("0", 0)])
def test_a_whole_number_of_gpus_is_one_however_it_is_written(
    planned: Planned, written: str, gpus: int
) -> None:
    deployment = planned(
        f'[[models]]\nname = "m"\nengine = "vllm"\nnum_gpus = {written}\n{BENCHMARK}'
    ).deployments[0]
    assert (deployment.gpus_per_replica, type(deployment.gpus_per_replica)) == (gpus, int)


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [
        ("tensor_parallel_size = 2\nengine_args = { pipeline_parallel_size = 2 }\n", 2),
        ("num_gpus = 4\n", 4),
        ("engine_args = { pipeline_parallel_size = 4 }\n", 1),
        ("num_gpus = 0.5\n", 1),
    ],
)
def test_pipeline_stages_are_no_tensor_parallel_ranks(planned: Planned, settings: str, ranks: int) -> None:
    plan = planned(f'[[models]]\nname = "m"\nengine = "vllm"\n{settings}{BENCHMARK}')
    assert plan.deployments[0].tensor_parallel == ranks


def test_llamacpp_has_the_cores_to_itself(planned: Planned) -> None:
    plan = planned('[[models]]\nname = "m"\npath = "m.gguf"\nreplicas = 2\n' + VALID)
    assert [(d.exclusive, d.replicas) for d in plan.deployments] == [(True, 2), (False, 1)]


# -- context ------------------------------------------------------------------------------------


def test_the_context_holds_the_longest_answer_of_any_run(planned: Planned) -> None:
    plan = planned(VALID + "max_tokens = 100\n" + BENCHMARK + "max_tokens = 900\n")
    assert plan.deployments[0].engine_config.context_tokens == 900 + PROMPT_ALLOWANCE_TOKENS


def test_worked_examples_and_a_system_prompt_widen_the_context(planned: Planned) -> None:
    plain = planned(VALID).deployments[0].engine_config.context_tokens or 0
    wide = planned(VALID + "num_fewshot = 1\n").deployments[0].engine_config.context_tokens or 0
    prompted = planned(VALID + f"system_prompt = '{'y' * 300}'\n").deployments[0].engine_config.context_tokens
    assert wide >= plain + 1000
    assert prompted == plain + 100


@pytest.mark.parametrize("key", ["context_tokens", "max_model_len"])
def test_a_context_given_to_the_engine_is_taken_as_it_is(planned: Planned, key: str) -> None:
    plan = planned(MODEL + f"engine_args = {{ {key} = 777 }}\n" + BENCHMARK)
    assert plan.deployments[0].engine_config.context_tokens == 777


# -- notes --------------------------------------------------------------------------------------


def test_a_gap_is_noted_and_leaves_the_cell_ready(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = (
        '[[models]]\nname = "gguf"\npath = "missing.gguf"\n'
        f'[[models]]\nname = "key"\napi_key_env = "SOME_KEY"\n{SERVER}'
        '[[models]]\nname = "big"\nengine = "vllm"\nnum_gpus = 2\nreplicas = 2\n'
        '[[benchmarks]]\nname = "hub"\n'
        '[[benchmarks]]\nname = "own"\ndata = "missing.jsonl"\n'
    )
    notes = {(run.config.model, run.config.benchmark): " ".join(run.notes) for run in planned(text).runs}
    assert "missing.gguf" in notes["gguf", "own"]
    assert "SOME_KEY" in notes["key", "own"]
    assert "needs 4 GPUs, none known" in notes["big", "own"]
    assert "org/name is gated" in notes["key", "hub"]
    assert "missing.jsonl is not there" in notes["key", "own"]


def test_what_is_there_is_not_noted(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("SOME_KEY", "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("evalray.plan_notes._is_installed", lambda package: True)
    text = (
        '[[models]]\nname = "gguf"\npath = "m.gguf"\nengine = "llamacpp"\n'
        f'[[models]]\nname = "key"\napi_key_env = "SOME_KEY"\n{SERVER}'
        '[[models]]\nname = "big"\nengine = "vllm"\nnum_gpus = 2\n' + BENCHMARK
    )
    assert [run.notes for run in planned(text).runs] == [[], [], []]


def test_a_benchmarks_own_sample_comes_from_no_hub(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sample").mkdir()  # a folder that happens to be called so is not what the word means
    monkeypatch.chdir(tmp_path)
    text = MODEL + '[[benchmarks]]\nname = "hub"\n'
    for plan in (planned(text + 'data = "sample"\n'), planned(text, data="sample")):
        assert (plan.runs[0].config.data, plan.runs[0].notes) == ("sample", [])
    (tmp_path / "own" / "sample.jsonl").unlink()
    assert "sample.jsonl is not there" in planned(text, data="sample").runs[0].notes[0]


@pytest.mark.parametrize("kept", ["datasets/org___name", "hub/datasets--org--name/snapshots"])
def test_data_that_was_downloaded_before_is_not_announced_as_a_download(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    text = MODEL + '[[benchmarks]]\nname = "hub"\n'
    assert "downloads it" in planned(text).runs[0].notes[0]
    (tmp_path / "home" / kept).mkdir(parents=True)
    assert planned(text).runs[0].notes == []


def test_data_that_is_streamed_is_not_said_to_be_downloaded(
    planned: Planned, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    listing = registry.benchmarks["hub"]
    assert listing.benchmark is not None
    registry.benchmarks["hub"] = replace(listing, benchmark=replace(listing.benchmark, streaming=True))
    note = planned(MODEL + '[[benchmarks]]\nname = "hub"\n').runs[0].notes[0]
    assert note == "data set org/name is streamed from the hub: records are read as they are needed"


def test_tools_of_an_agent_are_not_used_by_the_direct_backend(planned: Planned) -> None:
    run = planned(MODEL + BENCHMARK + 'agent = "simple"\ntools = ["calculator"]\n').runs[0]
    assert "agent, tools: not used by the backend jarvis-direct" in run.notes


def test_a_package_that_an_engine_needs_and_is_not_here_is_noted(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalray.plan_notes._is_installed", lambda package: package != "vllm")
    text = '[[models]]\nname = "m"\nengine = "vllm"\nnum_gpus = 0\n' + MODEL + BENCHMARK
    notes = {run.config.model: run.notes for run in planned(text).runs if run.notes}
    assert "engine vllm needs the package vllm: pip install vllm" in notes["m"]


def test_a_cluster_that_is_joined_may_have_the_gpus(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    text = '[[models]]\nname = "m"\nengine = "vllm"\n' + BENCHMARK
    assert planned(text).runs[0].notes != []
    assert planned(text, address="auto").runs[0].notes == []


# -- the sweep ----------------------------------------------------------------------------------


def test_the_sweep_directory_is_the_output_directory_and_the_suites_name(planned: Planned) -> None:
    plan = planned("[run]\noutput_dir = 'out'\n" + VALID)
    assert (plan.name, plan.sweep_id, plan.directory) == ("my-suite", "my-suite", Path("out/my-suite"))
    assert plan.experiment == "my-suite"


def test_flags_name_the_sweep_directory(planned: Planned, tmp_path: Path) -> None:
    plan = planned(VALID, sweep_id="again", output_dir=tmp_path)
    assert plan.directory == tmp_path / "again"


@pytest.mark.parametrize(
    ("flag", "suite", "environment", "expected"),
    [("f", "s", "e", "f"), (None, "s", "e", "s"), (None, None, "e", "e"), (None, None, None, None)],
)
def test_flag_before_suite_before_environment(
    planned: Planned,
    monkeypatch: pytest.MonkeyPatch,
    flag: str | None,
    suite: str | None,
    environment: str | None,
    expected: str | None,
) -> None:
    if environment:
        monkeypatch.setenv("RAY_ADDRESS", environment)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
    sections = f"[cluster]\naddress = '{suite}'\n[tracking]\nuri = '{suite}'\n" if suite else ""
    plan = planned(sections + VALID, address=flag, tracking_uri=flag)
    assert (plan.address, plan.tracking_uri) == (expected, expected)


def test_local_means_that_ray_starts_here(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert planned(VALID, address="local").address is None


def test_the_rows_of_several_runs_do_not_go_to_one_file(planned: Planned) -> None:
    assert planned(VALID, output="rows.jsonl").copy_results_to == Path("rows.jsonl")
    with pytest.raises(ConfigError, match="--output"):
        planned(VALID + BENCHMARK + 'split = "dev"\n', output="rows.jsonl")


def test_what_is_stored_has_every_merged_value_and_no_secret(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:hunter2@db/mlflow")
    monkeypatch.setenv("SOME_KEY", "hunter2")
    plan = planned(MODEL + "api_key_env = 'SOME_KEY'\n" + BENCHMARK, max_tokens=5)
    stored = json.dumps([plan.suite, plan_to_dict(plan)])
    assert "hunter2" not in stored
    assert plan.suite["runs"][0]["max_tokens"] == 5
    assert plan.suite["models"][0]["api_key_env"] == "SOME_KEY"
    assert plan.tracking_uri == "postgresql://me:hunter2@db/mlflow"


def test_stream_reaches_an_engine_on_the_network(planned: Planned) -> None:
    plan = planned(MODEL + "stream = false\n" + BENCHMARK)
    assert plan.deployments[0].engine_config.engine_args == {"stream": False}


def test_an_engine_is_not_given_arguments_that_are_ours(planned: Planned) -> None:
    entry = '[[models]]\nname = "m.gguf"\nstream = false\nengine_args = { context_tokens = 9, n_batch = 8 }\n'
    config = planned(entry + BENCHMARK).deployments[0].engine_config
    assert (config.engine_args, config.context_tokens) == ({"n_batch": 8}, 9)


NETWORKED = frozenset({"openai", "anthropic", "ollama", "lemonade"})


@pytest.mark.parametrize(
    ("model", "variable"), [("gpt-4o", "OPENAI_API_KEY"), ("claude-haiku-4-5", "ANTHROPIC_API_KEY")]
)
def test_a_vendors_model_needs_its_vendors_key(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    registry = replace(registry, engines=NETWORKED)
    suite = Suite(models=[ModelEntry(name=model, engine="cloud")], benchmarks=[BenchmarkEntry(name="own")])
    plan = make_plan(suite, registry=registry)
    assert plan.deployments[0].engine_config.api_key_env == variable
    assert any(variable in note for note in plan.runs[0].notes)
    assert (plan.deployments[0].gpus_per_replica, plan.deployments[0].cpus_per_replica) == (0, 0.25)
    monkeypatch.setenv(variable, "hunter2")
    plan = make_plan(suite, registry=registry)
    assert not any(variable in note for note in plan.runs[0].notes)
    assert "hunter2" not in json.dumps(plan_to_dict(plan))


@pytest.mark.parametrize(
    ("entry", "gpus", "cpus", "exclusive"),
    [
        ({}, 0, 0.25, False),
        ({"num_gpus": 1}, 0, 0.25, False),
        ({"engine_args": {"launch": True}}, 0, 1.0, True),
        ({"engine_args": {"launch": True}, "num_gpus": 1}, 1, 1.0, False),
    ],
)
@pytest.mark.parametrize("engine", ["ollama", "lemonade"])
def test_a_server_that_is_launched_computes_here(
    registry: Registry, engine: str, entry: dict[str, Any], gpus: int, cpus: float, exclusive: bool
) -> None:
    registry = replace(registry, engines=NETWORKED)
    model = ModelEntry(name="m", engine=engine, stream=False, **entry)
    suite = Suite(models=[model], benchmarks=[BenchmarkEntry(name="own")])
    deployment = make_plan(suite, registry=registry).deployments[0]
    assert (deployment.gpus_per_replica, deployment.cpus_per_replica) == (gpus, cpus)
    assert deployment.exclusive is exclusive
    assert deployment.engine_config.engine_args["stream"] is False


def test_a_single_run_is_planned_from_flags(registry: Registry) -> None:
    overrides = Overrides(benchmark=["own"], model=["org/m:1"], base_url="http://127.0.0.1:1/v1")
    plan = make_plan(suite_from_flags(overrides, registry), overrides, registry=registry)
    assert (plan.sweep_id, len(plan.runs)) == ("own_org-m-1", 1)


def test_the_same_input_gives_the_same_plan(planned: Planned) -> None:
    assert plan_to_dict(planned()) == plan_to_dict(planned())


# -- how it is shown ----------------------------------------------------------------------------


def _shown(plan: Plan) -> list[str]:
    return [line.plain for line in plan_lines(plan)]


def test_a_note_of_many_cells_is_said_once_with_the_cells_it_is_of(planned: Planned) -> None:
    text = (
        f'[[models]]\nname = "key"\napi_key_env = "SOME_KEY"\n{SERVER}'
        + MODEL
        + '[[benchmarks]]\nname = "hub"\n'
        + BENCHMARK
        + 'agent = "simple"\n'
    )
    lines = _shown(planned(text))
    for note, whose in (("SOME_KEY", "key"), ("downloads it", "hub"), ("agent: not used", "own")):
        [place] = [number for number, line in enumerate(lines) if note in line]
        assert lines[place + 1].strip() == f"for {whose}"


def test_a_note_of_every_cell_is_of_all_runs_and_one_of_a_single_cell_names_it(planned: Planned) -> None:
    server = MODEL.replace('engine = "openai-compatible"\n', "")
    lines = _shown(planned(server + BENCHMARK + '[[benchmarks]]\nname = "hub"\ndata = "sample"\n'))
    assert (
        lines[next(n for n, line in enumerate(lines) if "no engine given" in line) + 1].strip()
        == "for all 2 runs"
    )
    lines = _shown(planned(server + BENCHMARK))
    assert (
        lines[next(n for n, line in enumerate(lines) if "no engine given" in line) + 1].strip()
        == "for own · m"
    )


def test_cells_that_are_skipped_for_one_reason_are_named_by_what_they_share(planned: Planned) -> None:
    lines = _shown(
        planned(VALID + '[[models]]\nname = "n"\nengine = "sglang"\n' + '[[benchmarks]]\nname = "hub"\n')
    )
    [place] = [number for number, line in enumerate(lines) if "engine 'sglang' is not available" in line]
    assert lines[place + 1].strip() == "for n"
