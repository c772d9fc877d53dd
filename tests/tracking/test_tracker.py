"""Tracking runs beside the sweep: it never holds the driver up, and says when it did not get through."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalray.tracking import MlflowTracker, sync_sweep
from evalray.types import Outcome

MakeSweep = Callable[..., Path]
PATIENCE = 120.0


def wait_until(true: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.1)
    return False


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").is_dir() else True


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_nothing_is_started_before_there_is_progress(make_sweep: MakeSweep, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri)
    sweep = make_sweep()
    tracker.sweep_started(sweep)
    tracker.run_finished(sweep / "quickstart_smol")
    assert tracker._process is None
    assert tracker._writer is None
    tracker.close(0.0)
    assert tracker._process is None


@pytest.mark.slow
def test_a_live_run_shows_its_progress_and_ends_up_to_date(
    make_sweep: MakeSweep, sqlite_uri: str, seen: Any
) -> None:
    experiment = "live"
    sweep = make_sweep(outcomes=[Outcome.CORRECT, Outcome.INCORRECT], finalize=False)
    tracker = MlflowTracker(sqlite_uri, experiment=experiment, interval_seconds=0.0)
    tracker.sweep_started(sweep)
    tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1, "accuracy": 0.5, "eta": None})

    def progress() -> dict[str, float]:
        return {k: v for run in seen.runs(experiment) for k, v in run.data.metrics.items()}

    assert wait_until(lambda: progress() == {"progress/samples_done": 1.0, "progress/accuracy": 0.5})
    assert {run.info.status for run in seen.runs(experiment)} == {"RUNNING"}
    live = {run.info.run_id for run in seen.runs(experiment)}
    make_sweep(outcomes=[Outcome.CORRECT, Outcome.INCORRECT])
    tracker.run_finished(sweep / "quickstart_smol")
    status = tracker.close(PATIENCE)
    assert status.synced
    assert status.parent_run_id == seen.parent(experiment).info.run_id
    assert {run.info.run_id for run in seen.runs(experiment)} == live
    assert {run.info.status for run in seen.runs(experiment)} == {"FINISHED"}
    assert seen.child(experiment).data.metrics["accuracy"] == 0.5


@pytest.mark.slow
def test_a_complete_sweep_that_is_resumed_ends_as_it_was(
    make_sweep: MakeSweep, sqlite_uri: str, seen: Any
) -> None:
    experiment = "resumed"
    sweep = make_sweep()
    sync_sweep(sweep, uri=sqlite_uri, experiment=experiment)
    before = {run.info.run_id for run in seen.runs(experiment)}
    tracker = MlflowTracker(sqlite_uri, experiment=experiment)
    tracker.sweep_started(sweep)
    tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 2})
    assert tracker.close(PATIENCE).synced
    assert {run.info.run_id for run in seen.runs(experiment)} == before
    assert {run.info.status for run in seen.runs(experiment)} == {"FINISHED"}


def test_progress_is_taken_at_most_once_an_interval(make_sweep: MakeSweep) -> None:
    with silent_server() as uri:
        tracker = MlflowTracker(uri, interval_seconds=3600.0)
        tracker.sweep_started(sweep := make_sweep())
        tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1})
        due = dict(tracker._due)
        for done in range(1000):
            tracker.run_updated(sweep / "quickstart_smol", {"samples_done": done})
        assert tracker._due == due
        tracker.close(0.0)


def test_a_server_that_never_answers_holds_nothing_up_and_is_named(make_sweep: MakeSweep) -> None:
    with silent_server() as uri:
        tracker = MlflowTracker(uri, interval_seconds=0.0)
        tracker.sweep_started(sweep := make_sweep())
        for done in range(100_000):
            tracker.run_updated(sweep / "quickstart_smol", {"samples_done": done})
        assert len(tracker._progress) <= 1
        status = tracker.close(1.0)
    assert not status.synced
    assert uri in status.message
    assert f"evalray mlflow sync {sweep}" in status.message
    assert tracker._process is not None
    assert tracker._process.poll() is not None


def test_a_store_that_cannot_be_opened_is_said_without_its_password(
    make_sweep: MakeSweep, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    tracker = MlflowTracker(f"sqlite:///{tmp_path}/file/no.db")
    tracker.sweep_started(make_sweep())
    status = tracker.close(PATIENCE)
    assert not status.synced
    assert "refills it" in status.message
    assert len(status.message.splitlines()) == 1


def test_the_hint_names_the_store_only_where_it_is_not_the_default(make_sweep: MakeSweep) -> None:
    sweep = make_sweep()
    elsewhere = MlflowTracker("http://me:hunter22@127.0.0.1:9")
    elsewhere.sweep_started(sweep)
    assert "--tracking-uri http://***@127.0.0.1:9`" in elsewhere.close(0.0).message
    default = MlflowTracker(f"sqlite:///{sweep.parent}/mlflow.db")
    default.sweep_started(sweep)
    assert f"`evalray mlflow sync {sweep}`" in default.close(0.0).message


def test_a_worker_that_dies_is_said_not_raised(make_sweep: MakeSweep) -> None:
    with silent_server() as uri:
        tracker = MlflowTracker(uri)
        tracker.sweep_started(sweep := make_sweep())
        tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1})
        assert wait_until(lambda: tracker._process is not None)
        assert tracker._process is not None
        tracker._process.kill()
        status = tracker.close(PATIENCE)
    assert not status.synced
    assert "ended early" in status.message


def test_a_file_in_the_working_directory_shadows_nothing_of_the_worker(
    make_sweep: MakeSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "mlflow.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    tracker = MlflowTracker("http://127.0.0.1:9")
    tracker.sweep_started(make_sweep())
    assert "127.0.0.1:9 cannot be reached: " in tracker.close(PATIENCE).message


DRIVER = """
import sys, time
from pathlib import Path
from evalray.tracking import MlflowTracker
tracker = MlflowTracker(sys.argv[2])
sweep = Path(sys.argv[1])
tracker.sweep_started(sweep)
tracker.run_updated(sweep / "quickstart_smol", {"samples_done": 1})
while tracker._process is None:
    time.sleep(0.05)
print(tracker._process.pid, flush=True)
time.sleep(600)
"""


def test_the_worker_outlives_ctrl_c_and_dies_with_a_killed_driver(make_sweep: MakeSweep) -> None:
    with silent_server() as uri:
        root = Path(__file__).parents[2]
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(make_sweep()), uri], cwd=root, stdout=subprocess.PIPE
        )
        try:
            assert driver.stdout is not None
            worker = int(driver.stdout.readline())
            assert os.getpgid(worker) != os.getpgid(driver.pid)
            ignored = f"/proc/{worker}/status"
            if Path("/proc").is_dir():
                sigint = 1 << (signal.SIGINT - 1)
                assert wait_until(lambda: bool(int(_field(ignored, "SigIgn"), 16) & sigint))
            os.kill(worker, signal.SIGINT)
            time.sleep(0.5)
            assert is_alive(worker)
        finally:
            driver.kill()
            driver.wait(10)
            driver.stdout.close()
        assert wait_until(lambda: not is_alive(worker))


def _field(path: str, name: str) -> str:
    return next(line.split()[1] for line in Path(path).read_text().splitlines() if line.startswith(name))
