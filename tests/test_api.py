from __future__ import annotations

from pathlib import Path

import pytest

import evalray
from evalray import api
from evalray.api import plan_suite, run_plan, summarize_path, sync_tracking, tracking_store
from evalray.compare.sources import find_runs
from evalray.errors import ConfigError, DiskFullError, EvalRayError, StoreError
from evalray.rescoring import RescoreOptions, plan_rescore
from evalray.store import SweepStore
from evalray.telemetry_report import telemetry_report
from evalray.types import EvalRecord, Generation, Outcome, RunConfig, Score

_SUITE = """
[[models]]
name = "a"
engine = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"

[[models]]
name = "b"
engine = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"

[[benchmarks]]
name = "gsm8k"

[[benchmarks]]
name = "quickstart"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.toml"
    path.write_text(_SUITE)
    return path


def test_the_package_offers_its_functions_and_nothing_it_lacks() -> None:
    assert evalray.plan_suite is plan_suite
    with pytest.raises(AttributeError, match="run_everything"):
        _ = evalray.run_everything


def test_overrides_select_and_override_like_flags(suite: Path, tmp_path: Path) -> None:
    plan = plan_suite(suite, model="b", benchmark=["gsm8k"], max_samples=3, output_dir=tmp_path / "out")
    [run] = plan.runs
    assert (run.config.model, run.config.benchmark, run.config.max_samples) == ("b", "gsm8k", 3)
    assert plan.directory == tmp_path / "out" / "suite"


def test_tools_may_be_one_comma_separated_text(suite: Path) -> None:
    plan = plan_suite(suite, model="b", benchmark="gsm8k", tools="calculator, file_read")
    assert plan.runs[0].config.tools == ["calculator", "file_read"]


def test_without_a_suite_a_benchmark_and_a_model_make_one() -> None:
    plan = plan_suite(
        benchmark="gsm8k", model="m", engine="openai-compatible", base_url="http://127.0.0.1:9/v1"
    )
    assert [(run.config.benchmark, run.config.model) for run in plan.runs] == [("gsm8k", "m")]


def test_an_override_that_does_not_exist_is_named(suite: Path) -> None:
    with pytest.raises(ConfigError, match="max_sample: no such override"):
        plan_suite(suite, max_sample=3)


def test_tracking_can_be_switched_off(suite: Path) -> None:
    assert plan_suite(suite).tracking_enabled
    assert not plan_suite(suite, tracking_enabled=False).tracking_enabled


def test_an_empty_folder_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no run"):
        summarize_path(tmp_path)


def test_a_folder_of_sweeps_names_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text("{}")
    named = r"holds sweeps and no run of its own: name one of them \(a, b\)"
    for reading in (
        summarize_path,
        telemetry_report,
        find_runs,
        lambda path: plan_rescore(path, None, RescoreOptions()),
    ):
        with pytest.raises(EvalRayError, match=named):
            reading(tmp_path)


@pytest.mark.parametrize("folder", ["/proc/x", "file/results"])
def test_a_folder_that_can_hold_no_sweep_is_a_wrong_flag(
    folder: str, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    plan = plan_suite(suite, output_dir=folder, tracking_enabled=False)
    with pytest.raises(ConfigError, match=r"--output-dir: .*cannot be made .*choose a folder"):
        run_plan(plan)


def test_what_is_no_sweep_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no sweep and no run"):
        sync_tracking(tmp_path)
    with pytest.raises(ConfigError, match="no such file or directory"):
        sync_tracking(tmp_path / "none")


@pytest.mark.parametrize("path", ["results", "results/sweep", "results/sweep/b_m"])
def test_the_store_is_found_from_the_results_a_sweep_or_a_run(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "results" / "sweep" / "b_m").mkdir(parents=True)
    (tmp_path / "results" / "mlflow.db").touch()
    assert tracking_store(tmp_path / path) == f"sqlite:///{tmp_path}/results/mlflow.db"


def test_without_a_store_the_configured_server_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking.example:5000")
    assert tracking_store(tmp_path) == "http://tracking.example:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="no MLflow store here"):
        tracking_store(tmp_path)


def test_a_copy_of_a_runs_rows_leads_to_its_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, rows = _sweep_of_one_run(tmp_path / "results" / "s")
    copy = tmp_path / "out.jsonl"
    copy.write_bytes(rows.read_bytes())
    monkeypatch.chdir(tmp_path)
    result = summarize_path(copy)
    assert (result.directory, [run.results for run in result.runs]) == (sweep, [rows])
    elsewhere = tmp_path / "elsewhere" / "deep" / "out.jsonl"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(rows.read_bytes())
    assert summarize_path(elsewhere).directory == sweep
    monkeypatch.chdir(elsewhere.parent)
    with pytest.raises(ConfigError, match=r"a copy of EvalRay's rows.*results/SWEEP") as caught:
        summarize_path(elsewhere)
    assert "import" not in str(caught.value)


def test_rows_of_others_without_a_journal_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text('{"record_id": "r1"}\n')
    with pytest.raises(ConfigError, match="`evalray import` makes one"):
        summarize_path(path)


def _sweep_of_one_run(directory: Path) -> tuple[Path, Path]:
    with SweepStore.open(directory) as store:
        store.write_sweep({"sweep_id": "s"})
        config = RunConfig("b", "jarvis-direct", "m")
        run = store.open_run(config, fingerprint="f" * 32, scorer_fingerprint="s", num_records=1, info={})
        record = EvalRecord("r0", "p", "a", "c")
        run.append_generation(0, 0, 1, record, Generation(raw_text="a", model_answer="a"))
        run.append_score(0, 0, "r0", Score(Outcome.CORRECT))
        run.finalize()
    return directory, run.results_path


def test_a_disk_that_is_full_when_reports_are_written_is_said_with_one_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise DiskFullError("x: No space left on device; free some space and run the same command again")

    monkeypatch.setattr("evalray.reports.write_reports", full)
    said: list[str] = []
    api._write_reports(tmp_path, said.append)
    assert said == [
        "no report was written: x: No space left on device; free some space and run the same command again"
    ]
