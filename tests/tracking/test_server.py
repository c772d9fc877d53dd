"""Against a real ``mlflow server``: the structure, its artifacts, and a server that goes down midway."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.reports import write_reports
from evalray.tracking import MlflowTracker, sync_sweep
from evalray.types import Outcome

MakeSweep = Callable[..., Path]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as reply:
        content: bytes = reply.read()
    return content


def wait_until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.2)
    return False


def page_artifact(uri: str, run_id: str, path: str) -> bytes:
    """An artifact the way MLflow's page gets it."""
    return fetch(f"{uri}/get-artifact?{urllib.parse.urlencode({'path': path, 'run_uuid': run_id})}")


def test_a_sweep_is_found_again_on_a_server_and_sent_once(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    sweep = make_sweep(cells=[("quickstart", "a"), ("gsm8k", "a")])
    write_reports(sweep)
    first = sync_sweep(sweep, uri=mlflow_server.uri, experiment="once")
    again = sync_sweep(sweep, uri=mlflow_server.uri, experiment="once")
    assert (len(first.logged), len(again.logged)) == (2, 0)
    assert again.parent_run_id == first.parent_run_id
    assert again.url is not None
    assert again.url.endswith(first.parent_run_id)
    assert len(seen_on_server.children("once")) == 2
    assert {run.info.status for run in seen_on_server.runs("once")} == {"FINISHED"}


def test_the_page_of_a_server_shows_the_artifacts(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    sweep = make_sweep(answer="<script>alert(1)</script>")
    write_reports(sweep)
    sync_sweep(sweep, uri=mlflow_server.uri, experiment="artifacts")
    parent, child = seen_on_server.parent("artifacts"), seen_on_server.child("artifacts")
    page = page_artifact(mlflow_server.uri, parent.info.run_id, "report.html")
    assert page == (sweep / "report.html").read_bytes()
    assert b"<script" not in page
    table = json.loads(page_artifact(mlflow_server.uri, child.info.run_id, "samples.json"))
    assert [row[0] for row in table["data"]] == ["correct", "incorrect"]
    parquet = page_artifact(mlflow_server.uri, child.info.run_id, "samples.parquet")
    assert parquet == (sweep / "quickstart_smol.parquet").read_bytes()


def test_large_parameters_and_many_metrics_pass_the_server(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    metadata = {f"p{i}": "\N{SNOWMAN}" * 5000 for i in range(200)}
    sync_sweep(make_sweep(config={"metadata": metadata}), uri=mlflow_server.uri, experiment="large")
    params = seen_on_server.child("large").data.params
    assert sum(key.startswith("metadata.p") for key in params) == 200


def test_a_tracked_sweep_arrives_on_a_server(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    sweep = make_sweep(outcomes=[Outcome.CORRECT])
    tracker = MlflowTracker(mlflow_server.uri, experiment="tracked", interval_seconds=0.0)
    tracker.sweep_started(sweep)
    tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1, "accuracy": 1.0})
    tracker.run_finished(sweep / "quickstart_smol")
    tracker.sweep_finished()
    status = tracker.close(200.0)
    assert status.synced, status.message
    assert status.url is not None
    assert seen_on_server.child("tracked").data.metrics["accuracy"] == 1.0


def test_a_server_that_hangs_midway_is_said_and_the_next_sync_fills_it(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    sweep = make_sweep(cells=[("quickstart", "a")])
    sync_sweep(sweep, uri=mlflow_server.uri, experiment="hung")
    make_sweep(cells=[("quickstart", "b")])
    tracker = MlflowTracker(mlflow_server.uri, experiment="hung", interval_seconds=0.0)
    tracker.sweep_started(sweep)
    os.killpg(mlflow_server.process.pid, signal.SIGSTOP)
    try:
        for done in range(20_000):
            tracker.run_updated(sweep / "quickstart_b", {"samples_done": done})
        status = tracker.close(2.0)
    finally:
        os.killpg(mlflow_server.process.pid, signal.SIGCONT)
    assert not status.synced
    assert "evalray mlflow sync" in status.message
    assert sync_sweep(sweep, uri=mlflow_server.uri, experiment="hung").logged == ["quickstart_b"]
    assert len(seen_on_server.children("hung")) == 2


def test_a_dead_server_is_filled_by_a_later_sync_to_a_new_one(
    make_sweep: MakeSweep, mlflow_server: Any, seen_on_server: Any
) -> None:
    from evalray.errors import TrackingError

    sweep = make_sweep()
    dead = MlflowTracker("http://127.0.0.1:9", experiment="refilled", interval_seconds=0.0)
    dead.sweep_started(sweep)
    dead.run_updated(sweep / "quickstart_smol", {"samples_done": 2})
    status = dead.close(120.0)
    assert not status.synced
    assert "127.0.0.1:9" in status.message
    with pytest.raises(TrackingError):
        sync_sweep(sweep, uri="http://127.0.0.1:9")
    sync_sweep(sweep, uri=mlflow_server.uri, experiment="refilled")
    assert seen_on_server.child("refilled").data.metrics["accuracy"] == 0.5


def test_the_page_of_the_default_store_shows_runs_and_artifacts(
    make_sweep: MakeSweep, default_store: tuple[str, Any]
) -> None:
    store, page = default_store
    sweep = make_sweep()
    write_reports(sweep)
    done = sync_sweep(sweep, uri=store, experiment="page")
    assert page_artifact(page.uri, done.parent_run_id, "report.md") == (sweep / "report.md").read_bytes()
    assert b"<title>MLflow</title>" in fetch(page.uri + "/")


def test_a_server_killed_midway_keeps_its_runs_and_a_later_sync_completes_them(
    make_sweep: MakeSweep, default_store: tuple[str, Any], make_seen: Callable[[str], Any]
) -> None:
    store, server = default_store
    seen = make_seen(store)
    sweep = make_sweep()
    tracker = MlflowTracker(server.uri, experiment="midway", interval_seconds=0.0)
    tracker.sweep_started(sweep)
    tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1})
    assert wait_until(lambda: any(run.data.metrics for run in seen.runs("midway")))
    live = {run.info.run_id for run in seen.runs("midway")}
    server.stop()
    for done in range(20_000):
        tracker.run_updated(sweep / "quickstart_smol", {"samples_done": done})
    status = tracker.close(120.0)
    assert not status.synced
    assert "evalray mlflow sync" in status.message
    assert {run.info.status for run in seen.runs("midway")} == {"RUNNING"}
    sync_sweep(sweep, uri=store, experiment="midway")
    assert {run.info.run_id for run in seen.runs("midway")} == live
    assert {run.info.status for run in seen.runs("midway")} == {"FINISHED"}
    assert seen.child("midway").data.metrics["accuracy"] == 0.5
