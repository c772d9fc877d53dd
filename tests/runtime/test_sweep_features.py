"""What a sweep can do besides running to its end: adapt, stop at a budget, answer from the cache, stream."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evalray.engines.base import EngineConfig
from evalray.plan import Deployment, Plan
from evalray.runtime import RuntimePolicy, SweepProgress, SweepResult, run_sweep

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


def wait_until(condition: Any, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


# -- adaptive concurrency ----------------------------------------------------------------------


class ThrottlingServer:
    """Refuses with 429 above so many requests at once.  A context manager, in a thread of its own."""

    def __init__(self, capacity: int, seconds: float = 0.02, retry_after: str | None = None) -> None:
        self.capacity = capacity
        self.seconds = seconds
        self.retry_after = retry_after
        self.active = 0
        self.served = 0
        self.refused = 0
        self.refusals_of: dict[str, int] = {}
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ThrottlingServer:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted"}]})

    async def _chat(self, request: web.Request) -> web.Response:
        question = json.loads(await request.read())["messages"][-1]["content"]
        if self.active >= self.capacity:
            self.refused += 1
            self.refusals_of[question] = self.refusals_of.get(question, 0) + 1
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers=headers)
        self.active += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.active -= 1
        self.served += 1
        message = {"role": "assistant", "content": f"ANSWER: {question.split()[-1]}"}
        usage = {"prompt_tokens": 8, "completion_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": usage})


def network_plan(plans: Any, url: str, prompts: list[str], in_flight: int = 32) -> Plan:
    run = plans.run(plans.benchmark("b", prompts))
    config = EngineConfig(
        "scripted",
        "openai-compatible",
        base_url=url,
        max_concurrency=in_flight,
        adaptive_concurrency=True,
        engine_args={"stream": False},
    )
    plan: Plan = plans.plan(Deployment("scripted", config, cpus_per_replica=0.1, runs=[run]))
    return plan


def test_a_server_that_refuses_above_some_requests_is_kept_just_below(plans: Any) -> None:
    progress, limits, stop = SweepProgress(), [], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            limits.extend(replica.limit for replica in progress.replicas if replica.state == "ready")

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThrottlingServer(capacity=6) as server:
        result = go(network_plan(plans, server.url, numbers(800)), progress=progress)
    stop.set()
    watcher.join()
    assert outcomes(result) == {"correct": 800}
    assert server.served == 800
    assert server.refused < 100
    assert max(server.refusals_of.values()) <= 5
    settled = limits[len(limits) // 2 :]
    assert settled
    assert all(1 <= limit <= 8 for limit in settled)
    assert sum(settled) / len(settled) >= 3


def test_retry_after_is_waited_for_by_all_that_have_not_been_sent(plans: Any) -> None:
    with ThrottlingServer(capacity=4, retry_after="1") as server:
        result = go(network_plan(plans, server.url, numbers(60)))
    assert outcomes(result) == {"correct": 60}
    # One burst of sixteen, then cuts to eight, four: each of them waited out.
    assert server.refused < 30


# -- budget ------------------------------------------------------------------------------------


def budget_plan(plans: Any, count: int, **limits: Any) -> Plan:
    run = plans.run(plans.benchmark("b", numbers(count)))
    other = plans.run(plans.benchmark("b", numbers(count)), "other")
    args = {"seconds": 0.01, "cost": 0.01}
    first, second = (plans.deployment([each], engine_args=args) for each in (run, other))
    plan: Plan = plans.plan(first, second)
    for name, value in limits.items():
        setattr(plan, name, value)
    return plan


def test_a_budget_stops_every_model_and_a_larger_one_continues(plans: Any, journal: Any) -> None:
    result = go(budget_plan(plans, 300, max_tokens_total=400))  # four tokens a sample
    assert result.exit_code == 4
    assert [run.status for run in result.runs] == ["partial", "partial"]
    assert all("budget reached" in run.reason for run in result.runs)
    assert all("max_tokens_total = 400" in run.reason for run in result.runs)
    done = len(journal()) + len(journal("b_other"))
    assert 100 <= done <= 100 + 4 * 12  # what was in flight
    assert sum(outcomes(result, 0).values()) == sum(outcomes(result, 1).values()) == 300
    assert outcomes(result, 0)["skipped"] == 300 - len(journal())

    again = go(budget_plan(plans, 300, max_tokens_total=400))
    assert again.exit_code == 4
    assert len(journal()) + len(journal("b_other")) == done  # spent is spent
    assert [run.status for run in again.runs] == ["partial", "partial"]

    rest = go(budget_plan(plans, 300, max_tokens_total=100_000))
    assert rest.exit_code == 0
    assert outcomes(rest, 0) == outcomes(rest, 1) == {"correct": 300}


def test_dollars_are_a_budget_too(plans: Any, journal: Any) -> None:
    result = go(budget_plan(plans, 200, max_cost_usd=0.5))
    assert result.exit_code == 4
    assert "max_cost_usd = 0.5" in result.runs[0].reason
    assert 50 <= len(journal()) + len(journal("b_other")) <= 50 + 4 * 12


def test_a_budget_that_suffices_exactly_leaves_nothing_to_say(plans: Any) -> None:
    plan = plans.one(numbers(10))
    plan.max_tokens_total = 40
    result = go(plan)
    assert (result.exit_code, result.runs[0].status) == (0, "complete")


# -- response cache ----------------------------------------------------------------------------


def cached_plan(plans: Any, sweep: str, log: Path, prompts: list[str], **config: Any) -> Plan:
    plan: Plan = plans.one(prompts, engine_args={"log": str(log)}, **config)
    plan.directory = plan.directory.with_name(sweep)
    plan.cache_directory = plan.directory.parent / ".cache"
    return plan


def asked(log: Path) -> int:
    return sum("closed" not in line for line in log.read_text().splitlines()) if log.exists() else 0


def test_a_second_sweep_answers_from_the_cache_and_measures_nothing(plans: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = go(cached_plan(plans, "one", log, numbers(30), epochs=2))
    assert asked(log) == 60
    progress = SweepProgress()
    again = go(cached_plan(plans, "two", log, numbers(40), epochs=2), progress=progress)
    assert asked(log) == 80
    assert outcomes(first) == {"correct": 60}
    assert outcomes(again) == {"correct": 80}
    [run] = progress.runs
    assert (run.cached, run.generated, run.correct) == (60, 20, 80)
    summary = again.runs[0].summary
    assert summary is not None
    assert summary.cached_samples == 60
    assert summary.latency_stats is not None
    assert summary.latency_stats.n == 20
    assert summary.samples_per_second is not None
    assert summary.generation_seconds is not None
    assert summary.samples_per_second == pytest.approx(20 / summary.generation_seconds)
    everything = go(cached_plan(plans, "three", log, numbers(40), epochs=2))
    assert asked(log) == 80
    summary = everything.runs[0].summary
    assert summary is not None
    assert everything.runs[0].status == "complete"
    assert (summary.cached_samples, summary.latency_stats, summary.samples_per_second) == (80, None, None)


def test_failures_and_other_settings_are_asked_again(plans: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    prompts = [*numbers(10), "fail 10"]
    go(cached_plan(plans, "one", log, prompts, max_error_rate=1.0))
    go(cached_plan(plans, "two", log, prompts, max_error_rate=1.0))
    assert asked(log) == 11 + 1
    go(cached_plan(plans, "three", log, prompts, max_error_rate=1.0, max_tokens=17))
    assert asked(log) == 12 + 11


def test_without_being_asked_for_there_is_no_cache(plans: Any, tmp_path: Path) -> None:
    plan = cached_plan(plans, "one", tmp_path / "log", numbers(3))
    plan.cache_directory = None
    go(plan)
    assert not (tmp_path / ".cache").exists()


# -- isolated scorers, streamed data --------------------------------------------------------------


def test_an_isolated_scorer_scores_in_a_sweep_and_again_on_resume(plans: Any, journal: Any) -> None:
    prompts = [f"say \\boxed{{{i}}}" for i in range(8)]
    benchmark = replace(plans.benchmark("b", prompts), scorer="math")
    plan = plans.plan(plans.deployment([plans.run(benchmark, scorer="math")]))
    result = go(plan)
    assert outcomes(result) == {"correct": 8}
    folder = plan.directory / "b_scripted"
    (folder / "scores.jsonl").unlink()
    again = go(plans.plan(plans.deployment([plans.run(benchmark, scorer="math")])))
    assert len(journal()) == 8
    assert outcomes(again) == {"correct": 8}


def test_streamed_data_is_run_to_its_bound_and_continued(plans: Any, journal: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {
        "id": [f"r{i}" for i in range(200)],
        "question": numbers(200),
        "answer": [str(i) for i in range(200)],
    }
    data = tmp_path / "rows.parquet"
    pq.write_table(pa.table(rows), data)

    def plan(samples: int) -> Plan:
        benchmark = replace(plans.benchmark("b", ["unused 0"]), streaming=True)
        run = plans.run(benchmark, data=str(data), max_samples=samples)
        made: Plan = plans.plan(plans.deployment([run]))
        made.cache_directory = tmp_path / ".cache"
        return made

    result = go(plan(60))
    assert outcomes(result) == {"correct": 60}
    more = go(plan(90))
    assert outcomes(more) == {"correct": 90}
    assert Counter(line["position"] for line in journal()) == Counter(range(90))
    assert all(not file.read_bytes() for file in (tmp_path / ".cache").iterdir())


# -- processes ---------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_an_engine_started_ends_with_its_killed_actor(plans: Any, tmp_path: Path) -> None:
    children = tmp_path / "children"
    progress = SweepProgress()
    killed: list[int] = []

    def kill_once() -> None:
        wait_until(lambda: progress.runs and progress.runs[0].done >= 8, 60)
        actor, _ = children.read_text().split()[:2]
        killed.append(int(actor))
        os.kill(int(actor), signal.SIGKILL)

    thread = threading.Thread(target=kill_once)
    thread.start()
    plan = plans.one(numbers(120), engine_args={"seconds": 0.1, "children": str(children)})
    result = go(plan, progress=progress)
    thread.join()
    assert outcomes(result) == {"correct": 120}
    lines = [line.split() for line in children.read_text().splitlines()]
    assert len(lines) == 2  # one child per life
    assert int(lines[0][0]) == killed[0]
    assert wait_until(lambda: not any(alive(int(child)) for _, child in lines)), lines
