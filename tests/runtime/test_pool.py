"""The pool against real actors that are killed, hang, or hold a record that kills."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.errors import EngineStartError, PlacementError
from evalray.runtime.placement import Need
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.pool import EnginePool
from evalray.runtime.queue import WorkItem
from evalray.runtime.replica import PoolSpec
from evalray.types import Generation, GenerationRequest, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_ENGINE = "runtime.scripted_engine:ScriptedEngine"
_QUICK = RuntimePolicy(hang_seconds=3.0, poll_seconds=1.0, restart_backoff_seconds=0.1, drain_seconds=5.0)


class Prompts:
    """A source of fixed prompts."""

    def __init__(self, prompts: list[str]) -> None:
        self.items = [
            WorkItem(GenerationRequest(str(i), ({"role": "user", "content": p},), SamplingParams()), i)
            for i, p in enumerate(prompts)
        ]

    def take(self, limit: int) -> list[WorkItem]:
        taken, self.items = self.items[:limit], self.items[limit:]
        return taken

    def remaining(self) -> int:
        return len(self.items)

    def exhausted(self) -> bool:
        return not self.items


class Results:
    def __init__(self) -> None:
        self.by_tag: dict[int, list[Generation]] = {}
        self.on_result: Any = lambda count: None

    async def __call__(self, finished: list[tuple[WorkItem, Generation]]) -> None:
        for item, generation in finished:
            self.by_tag.setdefault(item.tag, []).append(generation)
        self.on_result(len(self.by_tag))

    def kinds(self) -> Counter[str | None]:
        return Counter(generation.error_kind for each in self.by_tag.values() for generation in each)


def make_pool(
    prompts: list[str],
    *,
    replicas: int = 1,
    in_flight: int = 4,
    need: Need = Need(0.1),  # noqa: B008
    policy: RuntimePolicy = _QUICK,
    placement_seconds: float = 60.0,
    **engine_args: Any,
) -> tuple[EnginePool, Results]:
    results = Results()
    config = EngineConfig("scripted", _ENGINE, max_concurrency=in_flight, engine_args=engine_args)
    spec = PoolSpec("scripted", config, need, replicas, None, placement_seconds)
    return EnginePool(spec, Prompts(prompts), results, policy=policy), results


def assert_each_once(results: Results, count: int) -> None:
    assert sorted(results.by_tag) == list(range(count))
    assert all(len(generations) == 1 for generations in results.by_tag.values())


async def test_two_replicas_share_the_work_and_close_their_engines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool, results = make_pool([f"say {i}" for i in range(200)], replicas=2, seconds=0.02, log=str(log))
    await pool.run()
    assert_each_once(results, 200)
    assert results.by_tag[7][0].model_answer == "ANSWER: 7"
    lines = [line.split() for line in log.read_text().splitlines()]
    work = Counter(pid for pid, what in lines if what != "closed")
    assert len(work) == 2
    assert min(work.values()) >= 40
    assert {pid for pid, what in lines if what == "closed"} == set(work)


async def test_a_large_replica_is_filled_before_its_first_answer() -> None:
    patient = replace(_QUICK, poll_seconds=60.0, hang_seconds=60.0)
    pool, results = make_pool(["x 1"] * 100, in_flight=100, policy=patient, together=100)
    await asyncio.wait_for(pool.run(), 120)
    assert results.kinds() == {None: 100}


async def test_a_killed_actor_costs_nothing_but_time() -> None:
    pool, results = make_pool([f"say {i}" for i in range(80)], seconds=0.05)
    killed = []

    def kill_once(count: int) -> None:
        if count >= 20 and not killed:
            killed.append(pool.replicas[0].link.facts.pid)  # type: ignore[union-attr]
            os.kill(killed[0], signal.SIGKILL)

    results.on_result = kill_once
    await pool.run()
    assert killed
    assert_each_once(results, 80)
    assert results.kinds() == {None: 80}


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_record_that_kills_engines_is_quarantined_and_the_others_survive(replicas: int) -> None:
    prompts = [f"say {i}" for i in range(64)]
    prompts[20] = "die"
    pool, results = make_pool(prompts, replicas=replicas, in_flight=16, seconds=0.01)
    await pool.run()
    assert_each_once(results, 64)
    assert results.kinds() == {None: 63, "quarantined": 1}
    assert results.by_tag[20][0].error_kind == "quarantined"


async def test_an_engine_that_says_it_died_is_replaced(tmp_path: Path) -> None:
    prompts = [f"say {i}" for i in range(20)]
    prompts[5] = f"fatal once={tmp_path / 'flag'} ok"
    pool, results = make_pool(prompts)
    await pool.run()
    assert_each_once(results, 20)
    assert results.kinds() == {None: 20}


async def test_a_hung_actor_is_replaced(tmp_path: Path) -> None:
    prompts = [f"say {i}" for i in range(20)]
    prompts[5] = f"hang once={tmp_path / 'flag'} ok"
    pool, results = make_pool(prompts)
    await pool.run()
    assert_each_once(results, 20)
    assert results.kinds() == {None: 20}


async def test_stopping_finishes_what_is_in_flight_and_begins_nothing_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool, results = make_pool([f"say {i}" for i in range(500)], seconds=0.1, log=str(log))
    results.on_result = lambda count: pool.stop() if count >= 8 else None
    await pool.run()
    begun = {line.split()[1] for line in log.read_text().splitlines()} - {"closed"}
    assert begun == {str(tag) for tag in results.by_tag}
    assert len(begun) < 40


async def test_a_start_that_fails_says_why() -> None:
    pool, _ = make_pool(["say 1"], start="fail")
    with pytest.raises(EngineStartError, match="told not to start"):
        await pool.run()


async def test_what_cannot_be_placed_names_the_missing_resources() -> None:
    pool, _ = make_pool(["say 1"], need=Need(1.0, 64.0), placement_seconds=2.0)
    with pytest.raises(PlacementError, match=r"64 GPUs \(the largest node has 0\)"):
        await pool.run()


async def test_an_error_of_the_sink_ends_the_pool() -> None:
    pool, results = make_pool([f"say {i}" for i in range(20)])

    def fail(count: int) -> None:
        raise OSError("disk full")

    results.on_result = fail
    with pytest.raises(OSError, match="disk full"):
        await asyncio.wait_for(pool.run(), 30)
