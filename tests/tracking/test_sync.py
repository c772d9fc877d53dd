"""MLflow holds what the directory holds, once, however often it is told."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalray.api import sync_tracking
from evalray.errors import StoreError, TrackingError
from evalray.reports import collect, write_power, write_reports
from evalray.telemetry import PowerTimeline
from evalray.tracking import payload, samples, sync, sync_sweep
from evalray.types import Outcome, RunSummary

MakeSweep = Callable[..., Path]
MIXED = [Outcome.CORRECT, Outcome.INCORRECT, Outcome.UNPARSED, Outcome.CORRECT]


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test: the store is shared."""
    return str(request.node.name)


def test_a_sweep_is_a_parent_with_one_child_per_cell(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(cells=[("quickstart", "a"), ("gsm8k", "a"), ("gsm8k", "b")])
    done = sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert len(done.logged) == 3
    assert done.parent_run_id == seen.parent(experiment).info.run_id
    names = {run.info.run_name for run in seen.children(experiment)}
    assert names == {"a · quickstart", "a · gsm8k", "b · gsm8k"}


def test_a_second_sync_sends_nothing_and_adds_no_point(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(outcomes=MIXED)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    done = sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert (done.logged, done.unchanged) == ([], ["quickstart_smol"])
    child = seen.child(experiment)
    assert len(seen.client.get_metric_history(child.info.run_id, "accuracy")) == 1


def test_a_run_directory_stands_for_its_whole_sweep(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str
) -> None:
    sweep = make_sweep("by-run", cells=[("quickstart", "a"), ("quickstart", "b")], sweep={"name": "by-run"})
    [done] = sync_tracking(sweep / "quickstart_a", tracking_uri=sqlite_uri)
    assert "2 runs sent" in done.lines()[0]
    assert len(seen.children("by-run")) == 2


def test_a_folder_stands_for_every_sweep_in_it_and_a_broken_one_stops_no_other(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str
) -> None:
    folder = make_sweep("first", sweep={"name": "first"}).parent
    make_sweep("second", sweep={"name": "second"})
    (folder / "broken").mkdir()
    (folder / "broken" / "sweep.json").write_text("{")
    (folder / "mlartifacts").mkdir()
    done = {sweep.directory.name: sweep for sweep in sync_tracking(folder, tracking_uri=sqlite_uri)}
    assert list(done) == ["broken", "first", "second"]
    assert done["broken"].report is None
    assert "sweep.json" in str(done["broken"].error)
    for name in ("first", "second"):
        fields = json.loads(json.dumps(done[name].fields()))
        assert (fields["error"], fields["logged"], fields["unchanged"]) == (None, ["quickstart_smol"], [])
        assert fields["parent_run_id"] == seen.parent(name).info.run_id


def test_a_store_that_failed_is_not_tried_for_every_sweep(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def refused(directory: Path, uri: str | None = None) -> None:
        tried.append(directory)
        raise TrackingError("refused")

    monkeypatch.setattr("evalray.tracking.sync_path.sync_sweep", refused)
    folder = make_sweep("first").parent
    make_sweep("second")
    done = sync_tracking(folder, tracking_uri="http://127.0.0.1:9/")
    assert len(tried) == 1
    assert "refused" in str(done[0].error)
    assert "was not tried again" in str(done[1].error)


def test_a_resumed_sweep_updates_the_same_runs_and_shows_changed_settings(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    first = [Outcome.CORRECT, Outcome.INCORRECT]
    sweep = make_sweep(outcomes=first, config={"max_samples": 2})
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    before = {run.info.run_id for run in seen.runs(experiment)}
    make_sweep(
        cells=[("quickstart", "smol")], outcomes=[*first, *[Outcome.CORRECT] * 2], config={"max_samples": 4}
    )
    make_sweep(cells=[("quickstart", "second")], outcomes=first)
    done = sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert sorted(done.logged) == ["quickstart_second", "quickstart_smol"]
    after = {run.info.run_id for run in seen.runs(experiment)}
    assert before < after
    assert len(after) == 3
    (child,) = [run for run in seen.children(experiment) if run.info.run_id in before]
    assert child.data.metrics["accuracy"] == 0.75
    assert child.data.metrics["samples/planned"] == 4
    assert child.data.params["max_samples"] == "2"
    assert child.data.tags["evalray.now.max_samples"] == "4"


def test_two_sweeps_of_one_suite_share_the_experiment_and_nothing_else(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    for name in ("one", "two"):
        sync_sweep(make_sweep(name), uri=sqlite_uri, experiment=experiment)
    assert len(seen.parents(experiment)) == 2
    assert len(seen.runs(experiment)) == 4


def test_the_child_holds_the_summary_figures(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(outcomes=MIXED)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    summary = json.loads((sweep / "quickstart_smol.summary.json").read_text())
    metrics = seen.child(experiment).data.metrics
    assert metrics["accuracy"] == summary["accuracy"] == 0.5
    assert metrics["accuracy_ci95_low"] == summary["accuracy_ci95"][0]
    assert metrics["latency_seconds/p90"] == summary["latency_stats"]["p90"]
    assert metrics["outcomes/unparsed"] == 1
    assert metrics["tokens/output"] == summary["total_output_tokens"]
    assert "total_cost_usd" not in metrics
    assert len(metrics) <= 100
    assert sorted(metrics)[:4] == ["accuracy", "accuracy_ci95_high", "accuracy_ci95_low", "errors"]


def test_the_parent_holds_totals_and_a_table(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    make_sweep(cells=[("gsm8k", "a")], outcomes=[Outcome.CORRECT] * 3)
    sweep = make_sweep(cells=[("quickstart", "b")], outcomes=[Outcome.INCORRECT] * 2)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    parent = seen.parent(experiment)
    assert parent.data.metrics["samples/scored"] == 5
    assert parent.data.metrics["tokens/output"] == 25
    assert parent.data.metrics["sweep/best_accuracy"] == 1.0
    assert parent.data.metrics["sweep/runs"] == 2
    assert "| model | gsm8k | quickstart |" in parent.data.tags["mlflow.note.content"]
    assert "n=3/3" in parent.data.tags["mlflow.note.content"]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([Outcome.CORRECT, Outcome.INCORRECT], "FINISHED"),
        ([Outcome.ENGINE_ERROR, Outcome.ENGINE_ERROR], "FAILED"),
    ],
)
def test_the_status_is_that_of_the_summary(
    outcomes: list[Outcome], status: str, make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sync_sweep(make_sweep(outcomes=outcomes), uri=sqlite_uri, experiment=experiment)
    assert {run.info.status for run in seen.runs(experiment)} == {status}


def test_a_run_without_summary_is_killed_until_it_has_one(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(finalize=False)
    done = sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert "no summary yet" in done.warnings[0]
    run_id = seen.child(experiment).info.run_id
    assert seen.child(experiment).info.status == "KILLED"
    sync_sweep(make_sweep(), uri=sqlite_uri, experiment=experiment)
    assert seen.child(experiment).info.run_id == run_id
    assert {run.info.status for run in seen.runs(experiment)} == {"FINISHED"}


def test_a_sweep_that_is_sent_later_ended_when_it_did(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    began, ended = 1_700_000_000, 1_700_000_060
    about = {"started_at": float(began)}
    never_began = make_sweep("never-began", cells=[], sweep=about)
    no_engine = make_sweep("no-engine", sweep=about)
    (summary,) = no_engine.glob("*.summary.json")
    figures = json.loads(summary.read_text()) | {"started_at": None, "ended_at": None}
    summary.write_text(json.dumps(figures))
    unfinished = make_sweep("unfinished", sweep=about, finalize=False)
    for sweep in (never_began, no_engine, unfinished):
        for path in sweep.rglob("*"):
            os.utime(path, (ended, ended))
        sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    runs = seen.runs(experiment)
    assert {run.info.end_time for run in runs} == {ended * 1000}
    assert {run.info.start_time for run in seen.parents(experiment)} == {began * 1000}
    status = {run.info.run_name: run.info.status for run in seen.parents(experiment)}
    assert status["never-began"] == "FAILED"
    assert status["unfinished"] == "KILLED"


def test_artifacts_are_there_and_whole(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str, tmp_path: Path
) -> None:
    sweep = make_sweep(outcomes=MIXED, sweep={"suite": {"meta": {"name": "s"}}})
    write_reports(sweep)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    child, parent = seen.child(experiment), seen.parent(experiment)
    assert seen.artifacts(child) == {"config.json", "summary.json", "samples.json", "samples.parquet"}
    assert seen.artifacts(parent) == {"report.md", "report.html", "report.csv", "suite.json", "sweep.json"}
    rows = pq.read_table(seen.artifact(child, "samples.parquet", tmp_path / "got"))
    assert rows.num_rows == len(MIXED)
    assert rows.column("outcome").to_pylist() == [str(outcome) for outcome in MIXED]


def test_a_runs_power_over_time_is_among_its_artifacts_also_when_it_was_plotted_later(
    make_sweep: MakeSweep,
    make_timeline: Callable[..., PowerTimeline],
    seen: Any,
    sqlite_uri: str,
    experiment: str,
    tmp_path: Path,
) -> None:
    sweep = make_sweep()
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    write_power(sweep / "quickstart_smol", make_timeline(2))
    assert sync_sweep(sweep, uri=sqlite_uri, experiment=experiment).logged == ["quickstart_smol"]
    child = seen.child(experiment)
    names = {item.path for item in seen.client.list_artifacts(child.info.run_id, "telemetry")}
    assert names == {"telemetry/timeline.parquet", "telemetry/power.svg", "telemetry/power.png"}
    for name in names:
        there = seen.artifact(child, name, tmp_path / "got").read_bytes()
        assert there == (sweep / "quickstart_smol" / name).read_bytes()
    assert len(seen.client.get_metric_history(child.info.run_id, "accuracy")) == 1
    assert sync_sweep(sweep, uri=sqlite_uri, experiment=experiment).logged == []


def test_a_plot_beyond_the_limit_stays_on_disk(
    make_sweep: MakeSweep,
    make_timeline: Callable[..., PowerTimeline],
    seen: Any,
    sqlite_uri: str,
    experiment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep = make_sweep()
    write_power(sweep / "quickstart_smol", make_timeline(1))
    data = (sweep / "quickstart_smol" / "telemetry" / "timeline.parquet").stat().st_size
    monkeypatch.setattr(sync, "_MAX_POWER_BYTES", data)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    items = seen.client.list_artifacts(seen.child(experiment).info.run_id, "telemetry")
    assert [item.path for item in items] == ["telemetry/timeline.parquet"]


def test_the_dataset_is_an_input_of_the_child(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(config={"data": "my/rows.jsonl"}, info={"data_digest": "d" * 64})
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    (used,) = seen.child(experiment).inputs.dataset_inputs
    assert used.dataset.name == "quickstart"
    assert used.dataset.digest == "d" * 36
    assert json.loads(used.dataset.source)["data"] == "my/rows.jsonl"


def test_the_samples_table_is_capped_and_starts_with_what_one_reads(
    make_sweep: MakeSweep,
    seen: Any,
    sqlite_uri: str,
    experiment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "MAX_ROWS", 3)
    sync_sweep(make_sweep(outcomes=MIXED, answer="<b>" + "x" * 9000), uri=sqlite_uri, experiment=experiment)
    child = seen.child(experiment)
    table = json.loads(seen.artifact(child, "samples.json", tmp_path / "got").read_text())
    assert table["columns"][:4] == ["outcome", "model_answer", "reference", "prompt"]
    assert len(table["data"]) == 3
    assert {len(row[1]) for row in table["data"]} == {samples.MAX_CELL}
    assert json.loads(child.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": "samples.json", "type": "table"}
    ]


def test_long_keys_and_many_parameters_all_arrive(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    arguments = {f"argument_{i}": "v" * 300 for i in range(200)} | {"k" * 300: "long", "o@dd (key)%": "odd"}
    sync_sweep(
        make_sweep(config={"metadata": arguments, "system_prompt": "p" * 20_000}),
        uri=sqlite_uri,
        experiment=experiment,
    )
    params = seen.child(experiment).data.params
    assert sum(key.startswith("metadata.argument_") for key in params) == 200
    assert params["metadata.o_at_dd _key_pct"] == "odd"
    assert [value for key, value in params.items() if key.startswith("metadata.kkk")] == ["long"]
    assert len(params["system_prompt"]) == 6000


def test_a_run_says_how_its_energy_was_measured_and_of_what_peak_its_mfu_is(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep()
    path = sweep / "quickstart_smol.summary.json"
    figures = {
        "energy_method": "hw_counter",
        "energy_scope": "gpu",
        "total_energy_joules": 5.0,
        "device_joules": 9.0,
        "energy_invalid_seconds": 1.5,
        "utilization_peak": "989.4 TFLOP/s (bf16, table), 3350 GB/s (table)",
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | figures))
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    child = seen.child(experiment)
    tags = {name: child.data.tags.get(f"evalray.{name}") for name in figures}
    assert (tags["energy_method"], tags["energy_scope"]) == ("hw_counter", "gpu")
    assert tags["utilization_peak"] == figures["utilization_peak"]
    assert "evalray.energy_reason" not in child.data.tags
    assert child.data.metrics["energy/device_joules"] == 9.0
    assert child.data.metrics["energy/invalid_seconds"] == 1.5
    assert "energy by hw_counter" in child.data.tags["mlflow.note.content"].replace("\\_", "_")


def test_a_nonfinite_figure_is_tagged_and_stops_nothing(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep()
    path = sweep / "quickstart_smol.summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"wall_seconds": math.inf}))
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    child = seen.child(experiment)
    assert "wall_seconds" not in child.data.metrics
    assert child.data.tags["evalray.nonfinite.wall_seconds"] == "inf"


def test_no_secret_reaches_parameters_tags_or_artifacts(
    make_sweep: MakeSweep,
    seen: Any,
    sqlite_uri: str,
    experiment: str,
    tmp_path: Path,
) -> None:
    secrets = ["hunter2-by-name", "sk-bylook000000000000000", "hunter2-in-url"]
    metadata = {
        "client_secret": secrets[0],
        "note": f"use {secrets[1]}",
        "base_url": f"http://me:{secrets[2]}@host/v1",
    }
    sweep = make_sweep(
        config={"metadata": metadata, "system_prompt": f"the key is {secrets[1]}"},
        sweep={"suite": {"models": [metadata]}, "description": secrets[1]},
        info={"warnings": [f"could not reach http://me:{secrets[2]}@host"]},
    )
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    stored = ""
    for run in seen.runs(experiment):
        stored += json.dumps([run.data.params, run.data.tags])
        for name in seen.artifacts(run):
            stored += (
                seen.artifact(run, name, tmp_path / run.info.run_id).read_bytes().decode("utf-8", "replace")
            )
    assert "client_secret" in stored
    assert [secret for secret in secrets if secret in stored] == []


def test_hostile_names_and_texts_are_stored_as_text(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str, tmp_path: Path
) -> None:
    hostile = "</pre><script>alert(1)</script>' OR \"1\"='1 \ud800 \x00 \\"
    sweep = make_sweep(cells=[(f"b{hostile}", f"m{hostile}")], answer=hostile, prompt=hostile)
    write_reports(sweep)
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert sync_sweep(sweep, uri=sqlite_uri, experiment=experiment).logged == []
    page = seen.artifact(seen.parent(experiment), "report.html", tmp_path / "got").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in seen.child(experiment).data.tags["mlflow.note.content"]


def test_a_deleted_experiment_is_named_with_its_remedy(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep()
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    seen.client.delete_experiment(seen.client.get_experiment_by_name(experiment).experiment_id)
    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)


def test_a_sync_cut_short_is_finished_by_the_next(
    make_sweep: MakeSweep, seen: Any, sqlite_uri: str, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep()

    def full_disk(*_: object) -> int:
        raise TrackingError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("evalray.tracking.sync.write_samples_table", full_disk)
        with pytest.raises(TrackingError):
            sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert sync_sweep(sweep, uri=sqlite_uri, experiment=experiment).logged == ["quickstart_smol"]
    assert "samples.json" in seen.artifacts(seen.child(experiment))
    assert seen.child(experiment).info.status == "FINISHED"


def test_a_server_that_is_not_there_is_one_line_without_the_password(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError) as caught:
        sync_sweep(make_sweep(), uri="http://me:hunter22@127.0.0.1:9/")
    assert "127.0.0.1:9" in str(caught.value)
    assert "hunter22" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_no_sweep_touches_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        sync_sweep(tmp_path, uri=f"sqlite:///{tmp_path}/never.db")
    assert not (tmp_path / "never.db").exists()


def test_a_benchmark_of_many_subjects_adds_no_metric_per_subject() -> None:
    subjects = {f"s{i}": {"accuracy": 0.5, "total": 2, "scored": 2, "correct": 1} for i in range(57)}
    summary = RunSummary("b", "c", "d", "m", 114, 114, 57, 0.5, 0, None, None, per_subject=subjects)
    assert not [key for key in payload.run_metrics(summary) if key.startswith("subject/")]


def test_a_description_too_long_for_a_tag_is_cut_between_rows(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evalray.reports import collect

    monkeypatch.setattr(payload, "MAX_NOTE", 400)
    note = payload.sweep_note(collect(make_sweep(cells=[("gsm8k", f"model-{i}" * 5) for i in range(12)])))
    assert len(note) < 500
    rows = [line for line in note.splitlines() if line.startswith("|")]
    assert 2 < len(rows) < 14
    assert {row.count("|") for row in rows} == {3}
    assert "report.md" in note


def test_a_damaged_run_is_said_and_the_others_are_sent(
    make_sweep: MakeSweep, sqlite_uri: str, experiment: str
) -> None:
    sweep = make_sweep(cells=[("quickstart", "a"), ("quickstart", "b")])
    (sweep / "quickstart_a" / "run.json").write_text("")
    done = sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    assert done.logged == ["quickstart_b"]
    assert any("quickstart_a" in warning for warning in done.warnings)


def test_a_store_that_does_not_open_is_given_up(
    make_sweep: MakeSweep, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(sync, "OPEN_SECONDS", 0.05)
    monkeypatch.setattr(sync, "Store", lambda uri: ended.wait(30))
    with pytest.raises(TrackingError, match="did not open within"):
        sync_sweep(make_sweep(), uri=sqlite_uri)
    ended.set()


def test_emissions_are_a_metric_of_the_run_and_add_up_over_the_sweep(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=[("gsm8k", "a"), ("gsm8k", "b"), ("gsm8k", "c")])
    for model, gco2e in (("a", 2.0), ("b", 3.0)):
        path = sweep / f"gsm8k_{model}.summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gco2e": gco2e}))
    report = collect(sweep)
    found = [payload.run_metrics(run.summary)["energy/gco2e"] for run in report.runs]
    assert sorted(found, key=str) == [2.0, 3.0, None]
    assert payload.sweep_metrics(report)["energy/gco2e"] == 5.0
