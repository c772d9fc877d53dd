"""Isolated scoring: a hostile expression costs one sample and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evalray.errors import ConfigError
from evalray.scorers import Answer, IsolationPool, ScorerSpec
from evalray.types import Outcome

MATH = ScorerSpec("math")
HANGS = "$9^{9^{9^{9}}}$"

OWN = """
import os, signal, sys, time
from evalray.scorers import Scorer

class Obeys(Scorer):
    scorer_id = "obeys"
    isolated = True

    def score(self, record, model_answer):
        if model_answer == "hang":
            time.sleep(1000)
        if model_answer == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if model_answer == "raise":
            raise KeyError("no such thing")
        if model_answer == "exit":
            sys.exit(3)
        if model_answer == "print":
            print("x" * 100_000)
        if model_answer == "memory":
            bytearray(1 << 40)
        if model_answer == "die once" and not os.path.exists(record.reference):
            open(record.reference, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return True, {"pid": os.getpid(), "environment": dict(os.environ), "answer": model_answer}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScorerSpec:
    (tmp_path / "obeying_scorer.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return ScorerSpec("obeying_scorer:Obeys")


@pytest.fixture
async def pool() -> AsyncIterator[IsolationPool]:
    async with IsolationPool(workers=1) as pool:
        yield pool


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()


async def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return not is_alive(pid)


async def test_mathematics_is_compared_in_a_worker(pool: IsolationPool, record: Any) -> None:
    right = await pool.assess(MATH, record("\\dfrac{\\pi}{2}"), Answer("pi/2"))
    wrong = await pool.assess(MATH, record("\\dfrac{\\pi}{2}"), Answer("pi/3"))
    assert (right.outcome, wrong.outcome) == (Outcome.CORRECT, Outcome.INCORRECT)


async def test_an_expression_that_hangs_is_cut_short_and_the_next_is_scored(
    pool: IsolationPool, record: Any
) -> None:
    await pool.assess(MATH, record("x+1"), Answer("1+x"))
    hung = await pool.assess(MATH, record("x+1"), Answer(HANGS), timeout_seconds=1.0)
    assert hung.outcome is Outcome.SCORER_ERROR
    assert hung.score is None
    assert hung.metadata["reason"] == "timeout"
    assert (await pool.assess(MATH, record("x+1"), Answer("1+x"))).outcome is Outcome.CORRECT


async def test_the_cheap_verdict_starts_no_worker(pool: IsolationPool, record: Any) -> None:
    assert (await pool.assess(MATH, record("5"), Answer("\\boxed{5}"))).outcome is Outcome.CORRECT
    assert not pool._alive


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hang", "timeout"),
        ("die", "crash"),
        ("raise", "exception"),
        ("exit", "exception"),
        ("memory", "exception"),
    ],
)
async def test_whatever_happens_in_a_worker_is_a_scorer_error_of_one_sample(
    pool: IsolationPool, own: ScorerSpec, record: Any, text: str, reason: str
) -> None:
    score = await pool.assess(own, record("x"), Answer(text), timeout_seconds=2.0)
    assert score.outcome is Outcome.SCORER_ERROR
    assert score.metadata["reason"] == reason
    assert (await pool.assess(own, record("x"), Answer("fine"))).outcome is Outcome.CORRECT


async def test_a_hung_worker_is_dead_before_the_next_answer_is_asked(
    pool: IsolationPool, own: ScorerSpec, record: Any
) -> None:
    first = (await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"]
    await pool.assess(own, record("x"), Answer("hang"), timeout_seconds=0.3)
    assert not is_alive(first)
    assert (await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"] != first


async def test_a_worker_killed_from_outside_costs_no_sample_its_grade(
    pool: IsolationPool, own: ScorerSpec, record: Any, tmp_path: Path
) -> None:
    pid = (await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"]
    os.kill(pid, signal.SIGKILL)
    assert (await pool.assess(own, record("x"), Answer("fine"))).outcome is Outcome.CORRECT
    once = await pool.assess(own, record(str(tmp_path / "died")), Answer("die once"))
    assert once.outcome is Outcome.CORRECT


async def test_a_worker_is_used_again(pool: IsolationPool, own: ScorerSpec, record: Any) -> None:
    pids = {(await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"] for _ in range(5)}
    assert len(pids) == 1


async def test_output_of_a_library_does_not_disturb_the_protocol(
    pool: IsolationPool, own: ScorerSpec, record: Any
) -> None:
    assert (await pool.assess(own, record("x"), Answer("print"))).outcome is Outcome.CORRECT


async def test_large_answers_and_lone_surrogates_reach_the_worker_and_return(
    pool: IsolationPool, own: ScorerSpec, record: Any
) -> None:
    text = "\ud800\0\u2212" * 500_000
    score = await pool.assess(own, record("x"), Answer(text), timeout_seconds=60)
    assert score.metadata["answer"] == text


async def test_secrets_of_the_caller_do_not_reach_a_worker(
    pool: IsolationPool, own: ScorerSpec, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    score = await pool.assess(own, record("x"), Answer("fine"))
    assert "OPENAI_API_KEY" not in score.metadata["environment"]
    assert "PATH" in score.metadata["environment"]


async def test_no_more_workers_run_than_were_asked_for(own: ScorerSpec, record: Any) -> None:
    async with IsolationPool(workers=2) as pool:
        scores = await asyncio.gather(*(pool.assess(own, record("x"), Answer("fine")) for _ in range(12)))
    pids = {score.metadata["pid"] for score in scores}
    assert 1 <= len(pids) <= 2
    assert not any(is_alive(pid) for pid in pids)


async def test_closing_ends_idle_and_busy_workers(own: ScorerSpec, record: Any) -> None:
    pool = IsolationPool(workers=2)
    idle = (await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"]
    busy = asyncio.create_task(pool.assess(own, record("x"), Answer("hang"), timeout_seconds=60))
    await asyncio.sleep(0.3)
    await pool.close()
    score = (await asyncio.gather(busy, return_exceptions=True))[0]
    assert isinstance(score, RuntimeError) or score.outcome is Outcome.SCORER_ERROR
    assert not is_alive(idle)
    assert not pool._alive
    with pytest.raises(RuntimeError, match="closed"):
        await pool.assess(own, record("x"), Answer("fine"))


async def test_a_cancelled_assessment_leaves_no_busy_worker_behind(
    pool: IsolationPool, own: ScorerSpec, record: Any
) -> None:
    pid = (await pool.assess(own, record("x"), Answer("fine"))).metadata["pid"]
    task = asyncio.create_task(pool.assess(own, record("x"), Answer("hang"), timeout_seconds=60))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pid)
    assert (await pool.assess(own, record("x"), Answer("fine"))).outcome is Outcome.CORRECT


async def test_a_scorer_that_cannot_be_built_is_a_config_error(pool: IsolationPool, record: Any) -> None:
    with pytest.raises(ConfigError):
        await pool.assess(ScorerSpec("maths"), record("x"), Answer("x"))


DRIVER = """
import asyncio, sys
from evalray.scorers import Answer, IsolationPool, ScorerSpec
from evalray.types import EvalRecord

async def main():
    pool = IsolationPool()
    record = EvalRecord("r", "?", "x", "reasoning")
    score = await pool.assess(ScorerSpec("obeying_scorer:Obeys"), record, Answer("fine"))
    print(score.metadata["pid"], flush=True)
    await pool.assess(ScorerSpec("obeying_scorer:Obeys"), record, Answer(sys.argv[1]), timeout_seconds=1000)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.parametrize("doing", ["fine", "hang"])
async def test_workers_die_with_a_caller_that_is_killed(own: ScorerSpec, tmp_path: Path, doing: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, doing], stdout=subprocess.PIPE, text=True, env=environment
    ) as driver:
        assert driver.stdout is not None
        pid = int(await asyncio.to_thread(driver.stdout.readline))
        await asyncio.sleep(0.3)
        assert is_alive(pid)
        driver.kill()
        driver.wait()
    assert await gone(pid)
