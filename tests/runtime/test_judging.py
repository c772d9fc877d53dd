"""Judges in a sweep: real actors, a judge over HTTP that can be told to fail."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.plan import Deployment, JudgeDeployment, Plan
from evalray.runtime import RuntimePolicy, SweepProgress, SweepResult, run_sweep
from evalray.store import finalize_run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_QUICK = RuntimePolicy(
    hang_seconds=5.0, poll_seconds=1.0, restart_backoff_seconds=0.1, drain_seconds=5.0, scoring_backlog=8
)


def judged(
    plans: Any,
    server: Any,
    prompts: list[str],
    *,
    engine_args: dict[str, Any] | None = None,
    base_url: str = "",
    at_once: int = 8,
    key: str | None = None,
    judge_engine_args: dict[str, Any] | None = None,
    **config: Any,
) -> Plan:
    """One benchmark whose every answer goes to the judge."""
    plan: Plan = plans.one(prompts, engine_args=engine_args or {}, **{"scorer": "frames", **config})
    address = base_url or (server.base_url if server else "")
    args = {"stream": False, **(judge_engine_args or {})}
    engine = EngineConfig(
        "judge",
        "openai-compatible",
        base_url=address,
        api_key_env=key,
        max_retries=0,
        max_concurrency=at_once,
        start_timeout_seconds=2.0,
        engine_args=args,
    )
    judge = JudgeDeployment(Deployment("judge", engine, cpus_per_replica=0.0, in_flight=at_once))
    plan.judges = [judge]
    for run in plan.runs:
        run.judge = judge
    return plan


def go(plan: Plan, **more: Any) -> SweepResult:
    return run_sweep(plan, policy=_QUICK, **more)


def outcomes(result: SweepResult) -> dict[str, int]:
    summary = result.runs[0].summary
    assert summary is not None
    return {name: count for name, count in summary.outcomes.items() if count}


def answers(count: int, *words: str) -> list[str]:
    return [f"{' '.join(words)} say {i}".strip() for i in range(count)]


def figures(result: SweepResult) -> dict[str, Any]:
    """A summary without times."""
    summary = asdict(result.runs[0].summary)  # type: ignore[arg-type]
    timed = ("_at", "seconds", "_per_second", "_stats")
    return {name: value for name, value in summary.items() if not name.endswith(timed)}


def run_directory(result: SweepResult) -> Path:
    """Of its only run."""
    assert result.runs[0].summary_path is not None
    return result.runs[0].summary_path.with_name(
        result.runs[0].summary_path.name.removesuffix(".summary.json")
    )


def test_every_answer_is_judged_once_and_its_cost_is_kept_apart(
    plans: Any, server: Any, journal: Any
) -> None:
    progress = SweepProgress()
    result = go(judged(plans, server, answers(40)), progress=progress)
    assert (result.exit_code, outcomes(result)) == (0, {"correct": 40})
    assert len(server.questions) == 40
    summary = result.runs[0].summary
    assert summary is not None
    assert (summary.judge_calls, summary.judge_input_tokens, summary.judge_output_tokens) == (40, 400, 120)
    assert summary.judge_cost_usd == pytest.approx(0.04)
    assert summary.judge_latency_stats is not None
    assert summary.judge_latency_stats.n == 40
    assert summary.total_output_tokens == 80, "the judge's tokens are not the model's"
    assert summary.total_cost_usd is None
    line = journal(name="scores")[0]
    assert line["judge"]["model"] == "judge"
    assert '"correct": "yes"' in line["judge"]["replies"][0]
    assert "judge:judge/0" in {replica.engine_id for replica in progress.replicas}
    assert progress.runs[0].judging == 0


def test_the_judge_is_held_to_the_schema_and_sampled_as_the_suite_says(plans: Any, server: Any) -> None:
    plan = judged(plans, server, answers(3))
    plan.judges[0].temperature, plan.judges[0].max_tokens = 0.3, 77
    go(plan)
    body = server.bodies[0]
    assert body["response_format"]["json_schema"]["schema"]["required"][-1] == "correct"
    assert (body["temperature"], body["max_tokens"]) == (0.3, 77)


def test_a_server_that_refuses_the_schema_is_asked_without(plans: Any, server: Any) -> None:
    server.refuses_schema = True
    assert outcomes(go(judged(plans, server, answers(12)))) == {"correct": 12}


def test_a_rule_only_sweep_needs_no_judge_and_no_key(plans: Any) -> None:
    plan = judged(
        plans, None, answers(5), base_url="http://127.0.0.1:1/v1", key="NO_SUCH_KEY", scorer="number"
    )
    progress = SweepProgress()
    assert outcomes(go(plan, progress=progress)) == {"correct": 5}
    assert [replica.engine_id for replica in progress.replicas] == ["scripted/0"]


def test_without_a_judge_samples_stay_unjudged(plans: Any) -> None:
    plan = plans.one(answers(4), scorer="frames")
    result = go(plan)
    assert (result.exit_code, outcomes(result)) == (1, {"judge_error": 4})


def test_resume_judges_exactly_the_failed_ones_and_ends_as_a_clean_run(
    plans: Any, server: Any, tmp_path: Path
) -> None:
    prompts = answers(20) + answers(3, "broken") + answers(2, "unclear")
    server.failing, server.garbled = {"broken"}, {"unclear"}
    first = go(judged(plans, server, prompts, max_error_rate=0.5))
    assert outcomes(first) == {"correct": 20, "judge_error": 5}
    server.failing.clear()
    server.garbled.clear()
    server.questions.clear()
    resumed = go(judged(plans, server, prompts, max_error_rate=0.5))
    assert Counter(q.split()[0] for q in server.questions) == {"broken": 3, "unclear": 2}
    clean_plan = judged(plans, server, prompts, max_error_rate=0.5)
    clean_plan.directory = tmp_path / "clean"
    clean = go(clean_plan)
    assert figures(resumed) == figures(clean)


def test_the_same_failure_again_and_again_stops_judging_and_not_generating(
    plans: Any, server: Any, journal: Any
) -> None:
    server.failing = {"broken"}
    prompts = answers(60, "broken")
    result = go(judged(plans, server, prompts, at_once=1, breaker_errors=5))
    assert result.exit_code == 3
    assert result.runs[0].status == "partial"
    assert result.runs[0].reason.startswith("judge judge: circuit breaker: 5 requests in a row")
    assert outcomes(result) == {"judge_error": 60}
    stored = finalize_run(run_directory(result))
    assert (stored.status, stored.reason) == ("partial", result.runs[0].reason)
    assert len(journal()) == 60
    assert len(server.questions) < 60
    server.failing.clear()
    again = go(judged(plans, server, prompts, at_once=8, breaker_errors=5))
    assert (again.exit_code, outcomes(again)) == (0, {"correct": 60})
    assert len(journal()) == 60


def test_a_judge_that_does_not_start_is_said_once_and_fails_the_run(plans: Any, server: Any) -> None:
    said: list[str] = []
    plan = judged(plans, server, answers(30), key="NO_SUCH_KEY")
    result = go(plan, on_message=said.append)
    assert result.exit_code == 1
    assert outcomes(result) == {"judge_error": 30}
    assert len([line for line in said if "NO_SUCH_KEY" in line]) == 1
    assert result.runs[0].reason.count("NO_SUCH_KEY") == 1


def test_a_judge_that_does_not_start_at_once_is_tried_again(plans: Any, server: Any) -> None:
    said: list[str] = []
    progress = SweepProgress()
    server.refused_starts = 2
    result = go(judged(plans, server, answers(30)), on_message=said.append, progress=progress)
    assert (result.exit_code, outcomes(result)) == (0, {"correct": 30})
    assert len([line for line in said if "it is tried again" in line]) == 1
    assert [r.engine_id for r in progress.replicas].count("judge:judge/0") == 1
    assert result.runs[0].summary is not None
    assert result.runs[0].summary.judge_problem == ""


def test_what_a_judge_that_never_started_left_is_asked_when_the_sweep_is_continued(
    plans: Any, server: Any
) -> None:
    server.refused_starts = 1_000
    first = go(judged(plans, server, answers(12)))
    assert (first.exit_code, outcomes(first)) == (1, {"judge_error": 12})
    summary = first.runs[0].summary
    assert summary is not None
    assert summary.judge_problem.startswith("judge judge: server ")
    assert summary.judge_problem.endswith("(tried 5 times)")
    assert server.refused_starts == 1_000 - 5
    server.refused_starts = 0
    again = go(judged(plans, server, answers(12)))
    assert (again.exit_code, outcomes(again)) == (0, {"correct": 12})
    assert again.runs[0].summary is not None
    assert again.runs[0].summary.judge_problem == ""


def test_a_slow_judge_holds_no_engine_up_and_the_journal_holds_what_waits(
    plans: Any, server: Any, journal: Any
) -> None:
    server.seconds = 0.05
    progress = SweepProgress()
    most, generated_at, stop = [0], [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            for run in progress.runs:
                most[0] = max(most[0], run.judging)
                if run.generated == 200 and not generated_at[0]:
                    generated_at[0] = time.monotonic()

    thread = threading.Thread(target=watch)
    thread.start()
    result = go(judged(plans, server, answers(200), at_once=2), progress=progress)
    ended = time.monotonic()
    stop.set()
    thread.join()
    assert outcomes(result) == {"correct": 200}
    assert Counter(server.questions) == Counter(dict.fromkeys(answers(200), 1))
    assert most[0] > 50, "what the queue has no room for waits in the journal"
    assert ended - generated_at[0] > 1.0, "generation was over long before judging"
    assert server.peak <= 2


def test_judging_overlaps_generation(plans: Any, server: Any) -> None:
    progress = SweepProgress()
    judged_meanwhile, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            for run in progress.runs:
                if run.generated < 80:
                    judged_meanwhile[0] = max(judged_meanwhile[0], run.done)

    thread = threading.Thread(target=watch)
    thread.start()
    result = go(judged(plans, server, answers(80), engine_args={"seconds": 0.5}), progress=progress)
    stop.set()
    thread.join()
    assert outcomes(result) == {"correct": 80}
    assert judged_meanwhile[0] > 5


def test_a_killed_judge_is_replaced_and_every_sample_judged(plans: Any, server: Any) -> None:
    server.seconds = 0.05
    killed: list[int] = []

    def kill_judge() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(server.questions) < 10:
            time.sleep(0.01)
        for pid in _actors_with_connections_to(server):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = threading.Thread(target=kill_judge)
    thread.start()
    result = go(judged(plans, server, answers(120), at_once=4))
    thread.join()
    assert killed
    assert outcomes(result) == {"correct": 120}


def _actors_with_connections_to(server: Any) -> list[int]:
    import psutil

    port = int(server.base_url.split(":")[2].split("/")[0])
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and any(
                c.raddr and c.raddr.port == port for c in process.net_connections("tcp")
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_a_scorer_that_asks_by_itself_reaches_the_judge_from_threads(
    plans: Any, server: Any, journal: Any
) -> None:
    plan = judged(plans, server, answers(20), scorer="runtime.own_judge:OwnJudge")
    result = go(plan)
    assert outcomes(result) == {"correct": 20}
    assert server.bodies[0]["messages"][0] == {"role": "system", "content": "Be fair."}
    assert journal(name="scores")[0]["judge"]["prompt_tokens"] == 10
    server.failing = {"say"}
    failed = go(judged(plans, server, answers(5), scorer="runtime.own_judge:OwnJudge", max_tokens=9))
    assert outcomes(failed) == {"judge_error": 5}


def test_an_interrupted_sweep_leaves_unjudged_what_was_not_asked(plans: Any, server: Any) -> None:
    server.seconds = 0.1
    # What found the queue full is in the journal already: waiting for it would outlast the test.
    policy = replace(_QUICK, scoring_seconds=3600.0)

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(server.questions) < 5:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    first = run_sweep(judged(plans, server, answers(100), at_once=2), policy=policy)
    thread.join()
    assert first.exit_code == 130
    assert "judge_error" not in outcomes(first)
    server.seconds = 0.0
    again = go(judged(plans, server, answers(100), at_once=2))
    assert outcomes(again) == {"correct": 100}
    assert max(Counter(server.questions).values()) == 1


def test_another_judge_judges_anew(plans: Any, server: Any) -> None:
    go(judged(plans, server, answers(6)))
    plan = judged(plans, server, answers(6))
    plan.judges[0].temperature = 1.0
    go(plan)
    assert len(server.questions) == 12
    sweep = json.loads((plan.directory / "b_scripted" / "run.json").read_text())
    assert sweep["info"]["judge"]["temperature"] == 1.0


def test_a_judge_without_work_gives_way_to_a_deployment_that_needs_its_cores(plans: Any, server: Any) -> None:
    import ray

    cores = ray.cluster_resources()["CPU"]
    plan = judged(plans, server, answers(10))
    plan.judges[0].deployment.cpus_per_replica = 1.0
    second = plans.run(plans.benchmark("c", answers(10)), "large", scorer="frames")
    second.judge = plan.judges[0]
    # Begins once the first is judged: then the judge still holds a core that it needs.
    large = plans.deployment([second])
    large.cpus_per_replica = cores
    plan.deployments.append(large)
    result = go(plan)
    assert [run.status for run in result.runs] == ["complete", "complete"]
    assert len(server.questions) == 20
