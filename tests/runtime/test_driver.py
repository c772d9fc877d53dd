"""Sweeps through ``run_sweep``: a real Ray, real actors, the journal and the summary."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalray.api import summarize_path
from evalray.errors import ConfigError
from evalray.runtime import RuntimePolicy, SweepProgress, SweepResult, run_sweep
from evalray.store import SweepStore
from evalray.store import journal as store_journal
from evalray.store import jsonlines as store_jsonlines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_QUICK = RuntimePolicy(hang_seconds=3.0, poll_seconds=1.0, restart_backoff_seconds=0.1, drain_seconds=5.0)


def numbers(count: int) -> list[str]:
    return [f"say {i}" for i in range(count)]


def go(plan: Any, **more: Any) -> SweepResult:
    return run_sweep(plan, policy=_QUICK, **more)


def outcomes(result: SweepResult, index: int = 0) -> dict[str, int]:
    summary = result.runs[index].summary
    assert summary is not None
    return {name: count for name, count in summary.outcomes.items() if count}


def test_every_record_is_journaled_once_scored_and_summed_up(plans: Any, journal: Any) -> None:
    progress = SweepProgress()
    result = go(plans.one(numbers(50)), progress=progress)
    assert (result.exit_code, result.errors) == (0, [])
    assert result.runs[0].status == "complete"
    assert outcomes(result) == {"correct": 50}
    assert Counter(line["position"] for line in journal()) == Counter(range(50))
    assert len(journal(name="scores")) == 50
    [run] = progress.runs
    assert (run.planned, run.done, run.generated, run.correct) == (50, 50, 50, 50)
    assert run.first_prompt is not None
    assert run.first_prompt.startswith("say ")
    assert run.first_answer is not None
    assert run.first_answer.startswith("ANSWER: ")
    sweep = json.loads((result.directory / "sweep.json").read_text())
    assert sweep["versions"]["ray"]


def test_the_same_command_again_does_nothing_twice_and_more_samples_continue(
    plans: Any, journal: Any
) -> None:
    first = go(plans.one(numbers(30), max_samples=10))
    again = go(plans.one(numbers(30), max_samples=10))
    assert again.exit_code == 0
    assert len(journal()) == 10
    assert outcomes(first) == outcomes(again) == {"correct": 10}
    more = go(plans.one(numbers(30), max_samples=30))
    assert outcomes(more) == {"correct": 30}
    assert Counter(line["position"] for line in journal()) == Counter(range(30))


def test_another_scorer_scores_again_and_generates_nothing(plans: Any, journal: Any) -> None:
    go(plans.one(numbers(12)))
    result = go(plans.one(numbers(12), scorer="exact"))
    assert len(journal()) == 12
    assert len(journal(name="scores")) == 24
    assert sum(outcomes(result).values()) == 12


def test_epochs_come_one_after_the_other(plans: Any, journal: Any) -> None:
    result = go(plans.one(numbers(6), epochs=3))
    assert outcomes(result) == {"correct": 18}
    assert {(line["position"], line["epoch"]) for line in journal()} == {
        (p, e) for p in range(6) for e in range(3)
    }


@pytest.mark.parametrize("prompts", [numbers(12), ["fail x", *numbers(11)]])
def test_the_first_prompt_and_answer_are_of_one_record(plans: Any, prompts: list[str]) -> None:
    progress = SweepProgress()
    go(plans.one(prompts, breaker_errors=100), progress=progress)
    [run] = progress.runs
    assert run.first_prompt in prompts
    assert run.first_answer is not None
    assert run.first_answer.split()[-1] == run.first_prompt.split()[-1]


def test_failures_over_the_threshold_fail_the_run_and_are_retried_on_resume(
    plans: Any, tmp_path: Path
) -> None:
    flags = [f"fail once={tmp_path / str(i)} {i}" for i in range(5)]
    result = go(plans.one(numbers(5) + flags, breaker_errors=100))
    assert result.exit_code == 1
    assert outcomes(result) == {"correct": 5, "engine_error": 5}
    assert "5 of 10 samples failed" in result.runs[0].reason
    assert re.search(
        r"5 engine_error; for example engine_error, as of record 'r\d': told to fail", result.runs[0].reason
    )
    again = go(plans.one(numbers(5) + flags, breaker_errors=100))
    assert again.exit_code == 0
    assert outcomes(again) == {"correct": 10}


def test_the_breaker_stops_the_deployment_and_its_run_can_be_continued(plans: Any, journal: Any) -> None:
    result = go(plans.one(["fail x"] * 200, breaker_errors=10))
    assert result.exit_code == 3
    assert result.runs[0].status == "partial"
    assert "10 requests in a row failed the same way" in result.runs[0].reason
    assert len(journal()) < 40
    summary = result.runs[0].summary
    assert summary is not None
    assert sum(summary.outcomes.values()) == 200


def test_an_engine_that_does_not_start_fails_its_runs_and_the_others_go_on(plans: Any) -> None:
    benchmark = plans.benchmark("b", numbers(5))
    bad = plans.deployment([plans.run(benchmark, "bad")], engine_args={"start": "fail"})
    good = plans.deployment([plans.run(benchmark, "good")])
    result = go(plans.plan(bad, good))
    assert result.exit_code == 1
    assert [run.status for run in result.runs] == ["failed", "complete"]
    assert "told not to start" in result.runs[0].reason
    assert outcomes(result) == {"skipped": 5}
    assert outcomes(result, 1) == {"correct": 5}


def test_a_run_that_failed_at_its_start_says_so_when_it_is_summarized_again(plans: Any) -> None:
    benchmark = plans.benchmark("b", numbers(5))
    result = go(plans.plan(plans.deployment([plans.run(benchmark, "bad")], engine_args={"start": "fail"})))
    again = summarize_path(result.directory)
    assert [run.status for run in again.runs] == ["failed"]
    assert again.runs[0].reason == result.runs[0].reason
    report = (result.directory / "report.md").read_text()
    assert "failed; 0/5 samples scored" in report
    assert "told not to start" in report


def test_missing_data_fails_its_cell_only(plans: Any) -> None:
    there = plans.run(plans.benchmark("b", numbers(5)))
    absent = plans.run(plans.benchmark("c", numbers(5)), data="no/such/file.jsonl")
    result = go(plans.plan(plans.deployment([absent, there])))
    assert result.exit_code == 1
    assert [run.status for run in result.runs] == ["failed", "complete"]
    assert "no/such/file.jsonl" in result.runs[0].reason


def test_a_scorer_that_cannot_be_built_stops_before_anything_is_written(plans: Any) -> None:
    plan = plans.one(numbers(5), scorer="no-such-scorer")
    with pytest.raises(ConfigError, match="no-such-scorer"):
        go(plan)
    assert not plan.directory.exists()


def test_a_scorer_that_raises_is_that_samples_outcome(plans: Any) -> None:
    result = go(plans.one(numbers(4), scorer="runtime.broken_scorer:BrokenScorer"))
    assert outcomes(result) == {"scorer_error": 4}
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ("JunkScorer", "returned a str"),
        ("ForgetfulScorer", "returned nothing"),
        ("LeavingScorer", "sys.exit(0)"),
        ("BlockingLeavingScorer", "sys.exit(0)"),
        ("MuteScorer", "MuteError"),
        ("WordScorer", "'no', which is not true, false or None"),
    ],
)
def test_whatever_a_scorer_does_instead_of_a_verdict_is_that_samples_outcome(
    plans: Any, journal: Any, scorer: str, said: str
) -> None:
    result = go(plans.one(numbers(2), scorer=f"runtime.broken_scorer:{scorer}"))
    assert outcomes(result) == {"scorer_error": 2}
    assert result.exit_code == 1
    assert all(said in line["metadata"]["error"] for line in journal(name="scores"))


def test_a_scorer_that_exits_while_it_is_built_is_a_mistake_of_the_configuration(plans: Any) -> None:
    with pytest.raises(ConfigError, match="SystemExit"):
        go(plans.one(numbers(1), scorer="runtime.broken_scorer:UnbuildableScorer"))


def test_runs_of_a_model_share_its_engines(plans: Any, tmp_path: Path) -> None:
    runs = [plans.run(plans.benchmark(name, numbers(20))) for name in ("b", "c")]
    log = tmp_path / "log"
    result = go(plans.plan(plans.deployment(runs, engine_args={"log": str(log)})))
    assert [run.status for run in result.runs] == ["complete", "complete"]
    assert len({line.split()[0] for line in log.read_text().splitlines()}) == 1


def test_a_run_never_has_more_in_flight_than_its_own_concurrency(plans: Any) -> None:
    progress = SweepProgress()
    peak = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            peak.append(max((replica.in_flight for replica in progress.replicas), default=0))

    thread = threading.Thread(target=watch)
    thread.start()
    plan = plans.one(numbers(30), engine_args={"seconds": 0.05}, concurrency=2)
    plan.deployments[0].in_flight = 16
    result = go(plan, progress=progress)
    stop.set()
    thread.join()
    assert outcomes(result) == {"correct": 30}
    assert max(peak) <= 2


def test_one_signal_drains_writes_the_summary_and_exits_130(plans: Any, journal: Any) -> None:
    progress = SweepProgress()

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (progress.runs and progress.runs[0].done >= 8):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    plan = plans.one(numbers(400), engine_args={"seconds": 0.1})
    result = go(plan, progress=progress)
    thread.join()
    assert result.exit_code == 130
    assert result.runs[0].status == "partial"
    done = len(journal())
    assert 8 <= done < 100
    assert outcomes(result) == {"correct": done, "skipped": 400 - done}
    finished = go(plans.one(numbers(400)))
    assert outcomes(finished) == {"correct": 400}
    assert len(journal()) == 400


def test_poison_is_an_error_of_its_own_sample(plans: Any, journal: Any) -> None:
    prompts = numbers(40)
    prompts[11] = "die 11"
    result = go(plans.one(prompts))
    assert outcomes(result) == {"correct": 39, "engine_error": 1}
    assert result.exit_code == 0
    [bad] = [line for line in journal() if not line["ok"]]
    assert "quarantined" in json.dumps(bad)


class FullDisk:
    """Stands for ``os`` where the store writes: takes so many writes to the journals, and then nothing at all."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes) -> int:
        self.room -= 1
        self._check()
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self._check()
        os.fsync(descriptor)

    def _check(self) -> None:
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_error_and_with_room_again_the_same_command_continues(
    plans: Any, journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan() -> Any:
        return plans.plan(
            *(
                plans.deployment(
                    [plans.run(plans.benchmark(name, numbers(60)), model=model) for name in ("b", "c")],
                    engine_args={"seconds": 0.02},
                )
                for model in ("one", "two")
            )
        )

    said: list[str] = []
    with monkeypatch.context() as patch:
        disk = FullDisk(30)
        for module in (store_journal, store_jsonlines):
            patch.setattr(module, "os", disk)
        result = go(plan(), on_message=said.append)
        assert disk.room < 0
    assert result.exit_code == 3
    assert result.disk_full
    [error] = result.errors
    assert "No space left on device; free some space and run the same command again" in error
    assert {(run.status, run.reason) for run in result.runs} == {("partial", error)}
    assert not any("No space" in line for line in said)
    kept = sum(len(journal(f"{b}_{m}")) for b in ("b", "c") for m in ("one", "two"))
    assert 0 < kept < 240
    again = go(plan())
    assert (again.exit_code, again.errors) == (0, [])
    for index, run in enumerate(again.runs):
        assert outcomes(again, index) == {"correct": 60}
        assert Counter(line["position"] for line in journal(f"{run.benchmark}_{run.model}")) == Counter(
            range(60)
        )


def test_a_disk_that_is_full_from_the_start_is_one_error_too(
    plans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(plans.one(numbers(2)))
    runs = [plans.run(plans.benchmark(name, numbers(3)), model="two") for name in ("c", "d")]
    monkeypatch.setattr(SweepStore, "write_sweep", lambda *_: None)
    for module in (store_journal, store_jsonlines):
        monkeypatch.setattr(module, "os", FullDisk(-1))
    result = go(plans.plan(plans.deployment(runs)))
    assert (result.exit_code, len(result.errors)) == (3, 1)
    assert {run.reason for run in result.runs} == set(result.errors)


def test_unsupported_cells_are_reported_and_exit_with_4(plans: Any) -> None:
    plan = plans.one(numbers(3))
    unsupported = plans.run(plans.benchmark("u", numbers(1)))
    unsupported.status, unsupported.reason = "unsupported", "not built yet"
    plan.skipped.append(unsupported)
    result = go(plan)
    assert result.exit_code == 4
    assert [(run.status, run.reason) for run in result.runs][1:] == [("unsupported", "not built yet")]


def test_the_rows_of_a_single_run_are_copied_where_asked(plans: Any, tmp_path: Path) -> None:
    plan = plans.one(numbers(3))
    plan.copy_results_to = tmp_path / "out" / "rows.jsonl"
    result = go(plan)
    assert plan.copy_results_to.read_bytes() == result.runs[0].results.read_bytes()  # type: ignore[union-attr]


def test_the_tracker_is_told_of_the_sweep_and_of_each_finished_run(plans: Any) -> None:
    told: list[tuple[str, str]] = []

    class Recorder:
        def sweep_started(self, directory: Path) -> None:
            told.append(("sweep", directory.name))

        def run_updated(self, run_dir: Path, metrics: Any) -> None:
            pass

        def run_finished(self, run_dir: Path, summary: Any = None) -> None:
            told.append(("run", run_dir.name))
            assert summary.total_samples == 3

    go(plans.one(numbers(3)), tracker=Recorder())
    assert told == [("sweep", "sweep"), ("run", "b_scripted")]
