from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.concurrency import START, ConcurrencyController, Gate
from evalray.engines.failures import error_from_body
from evalray.errors import RequestError


@dataclass
class Outcome:
    sent: int
    refused: int
    seconds: float
    limits: list[int]


def serve(
    controller: ConcurrencyController,
    requests: int,
    *,
    capacity: float = float("inf"),
    slots: float = float("inf"),
    batching: bool = False,
    latency: float = 1.0,
    retry_after: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Discrete events: a server that refuses above ``capacity``, queues above ``slots``, or batches.

    Whatever is refused is sent again.
    """
    chance, number = random.Random(seed), count()
    now, active, served, done = 0.0, 0, 0, 0
    slot_free: list[float] = []
    events: list[tuple[float, int, float, bool]] = []
    outcome = Outcome(0, 0, 0.0, [])
    while done < requests:
        while active < controller.limit and now >= controller.paused_until and done + active < requests:
            active += 1
            outcome.sent += 1
            if served >= capacity:
                heapq.heappush(events, (now + 0.01, next(number), now, False))
                continue
            served += 1
            takes = latency * chance.uniform(0.95, 1.05)
            if batching:
                takes *= 1 + 0.1 * served
            begins = now
            if len(slot_free) >= slots:
                begins = max(now, heapq.heappop(slot_free))
            heapq.heappush(slot_free, begins + takes)
            heapq.heappush(events, (begins + takes, next(number), now, True))
        if not events:
            now = controller.paused_until
            continue
        now, _, sent_at, ok = heapq.heappop(events)
        if ok:
            controller.succeeded(now, now - sent_at, active)
            served -= 1
            done += 1
        else:
            controller.congested(now, sent_at, retry_after, active)
            outcome.refused += 1
        active -= 1
        outcome.limits.append(controller.limit)
    outcome.seconds = now
    return outcome


@pytest.mark.parametrize("ceiling", [1, 2, 16, 64, 500])
def test_a_server_that_never_refuses_gets_the_ceiling_within_as_many_requests(ceiling: int) -> None:
    controller = ConcurrencyController(ceiling)
    outcome = serve(controller, 2 * ceiling + 10)
    assert outcome.limits[min(ceiling, len(outcome.limits)) - 1] == ceiling
    assert not controller.throttled


def test_finding_the_ceiling_costs_at_most_two_round_trips() -> None:
    outcome = serve(ConcurrencyController(64), 2000)
    assert outcome.seconds < 2000 / 64 + 1 + 2


@pytest.mark.parametrize("capacity", [1, 3, 8, 20, 50])
def test_a_server_that_refuses_is_kept_near_what_it_takes(capacity: int) -> None:
    controller = ConcurrencyController(64)
    outcome = serve(controller, 3000, capacity=capacity)
    settled = outcome.limits[len(outcome.limits) // 2 :]
    assert max(settled) <= capacity + 1
    assert sum(settled) / len(settled) >= 0.75 * capacity
    assert outcome.refused < 0.05 * 3000 + 64
    assert controller.throttled


def test_what_was_lost_to_one_event_is_regained() -> None:
    controller = ConcurrencyController(32)
    serve(controller, 300)
    controller.congested(1000.0, 999.0, None, 32)
    assert controller.limit == 16
    outcome = serve(controller, 3000)
    assert outcome.limits[-1] == 32


def test_many_refusals_of_one_burst_halve_once() -> None:
    controller = ConcurrencyController(64, start=64)
    for late in range(40):
        controller.congested(10.0 + late, 9.0, None, 64 - late)
    assert (controller.limit, controller.events) == (32, 1)
    controller.congested(60.0, 55.0, None, 32)
    assert (controller.limit, controller.events) == (16, 2)


def test_retry_after_holds_back_everything_and_is_bounded() -> None:
    controller = ConcurrencyController(8)
    controller.congested(5.0, 4.0, 30.0, 8)
    assert controller.paused_until == 35.0
    controller.congested(6.0, 4.5, 40.0, 7)  # of the same event, and later all the same
    assert controller.paused_until == 46.0
    controller.congested(7.0, 6.5, 1e9, 1)
    assert controller.paused_until == 127.0


def test_refusals_without_a_success_between_pause_longer_and_longer() -> None:
    controller, pauses, now = ConcurrencyController(4), [], 0.0
    for _ in range(10):
        controller.congested(now, now, None, 1)
        pauses.append(max(0.0, controller.paused_until - now))
        now = max(now, controller.paused_until) + 1.0
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
    assert pauses[-1] == 30.0
    controller.succeeded(now, 1.0, 1)
    controller.congested(now + 1, now + 1, None, 1)
    assert controller.paused_until <= now + 1


def test_latency_that_buys_nothing_takes_requests_back() -> None:
    controller = ConcurrencyController(64)
    outcome = serve(controller, 4000, slots=4)
    assert outcome.limits[-1] < 64
    assert outcome.seconds < 1.03 * 4000 / 4
    assert controller.events == 0


def test_latency_of_a_server_that_batches_does_not() -> None:
    controller = ConcurrencyController(64)
    best = serve(ConcurrencyController(64, start=64), 4000, batching=True)
    outcome = serve(controller, 4000, batching=True)
    assert outcome.limits[-1] == 64
    assert outcome.seconds < 1.05 * best.seconds


def test_a_replica_without_work_is_not_given_more() -> None:
    controller = ConcurrencyController(64)
    for second in range(500):
        controller.succeeded(float(second), 1.0, 2)
    assert controller.limit == START


@given(
    st.integers(1, 100),
    st.lists(
        st.tuples(
            st.booleans(),
            st.floats(0, 10),
            st.floats(0, 100),
            st.one_of(st.none(), st.floats(0, 1e6)),
            st.integers(1, 100),
        ),
        max_size=200,
    ),
)
def test_the_limit_is_never_above_the_ceiling_nor_below_one(
    ceiling: int, events: list[tuple[bool, float, float, float | None, int]]
) -> None:
    controller, now = ConcurrencyController(ceiling), 0.0
    for ok, step, latency, retry_after, active in events:
        now += step
        if ok:
            controller.succeeded(now, latency, active)
        else:
            controller.congested(now, now - latency, retry_after, active)
        assert 1 <= controller.limit <= ceiling
        assert controller.paused_until <= now + 120.0


@given(st.integers(1, 40), st.integers(1, 64), st.integers(0, 5))
def test_whatever_was_in_the_way_the_ceiling_comes_back(capacity: int, ceiling: int, seed: int) -> None:
    controller = ConcurrencyController(ceiling)
    serve(controller, 300, capacity=capacity, seed=seed)
    controller.paused_until = 0.0
    controller._cut_at = -1.0
    rounds = ceiling * ceiling + 20 * ceiling
    assert serve(controller, rounds + 100, seed=seed).limits[-1] == ceiling


async def test_never_more_hold_a_slot_than_the_limit() -> None:
    gate = Gate(ConcurrencyController(3))
    peak = 0

    async def use() -> None:
        nonlocal peak
        slot = await gate.slot()
        peak = max(peak, gate.active)
        await asyncio.sleep(0)
        slot.release()
        slot.release()

    await asyncio.gather(*(use() for _ in range(50)))
    assert (peak, gate.active) == (3, 0)


async def test_who_was_refused_goes_before_who_has_not_been_sent() -> None:
    gate = Gate(ConcurrencyController(1))
    first, order = await gate.slot(), []

    async def wait(name: str, again: bool) -> None:
        await gate.enter(again=again)
        order.append(name)
        gate.leave()

    tasks = [asyncio.create_task(wait("new", False)), asyncio.create_task(wait("again", True))]
    await asyncio.sleep(0)
    first.release()
    await asyncio.gather(*tasks)
    assert order == ["again", "new"]


async def test_a_pause_ends_by_itself() -> None:
    gate = Gate(ConcurrencyController(2))
    slot = await gate.slot()
    slot.sent()
    slot.ended(RequestError("rate_limited", "429", retryable=True, retry_after_seconds=0.05), None)
    slot.release()
    began = gate.clock()
    await asyncio.wait_for(gate.slot(), 10)
    assert gate.clock() - began >= 0.05
    assert gate.limit == 1


async def test_a_waiter_that_is_cancelled_takes_no_slot_with_it() -> None:
    gate = Gate(ConcurrencyController(1))
    slot = await gate.slot()
    waiting = asyncio.create_task(gate.slot())
    await asyncio.sleep(0)
    slot.release()  # lets it in...
    waiting.cancel()  # ...at the moment it is cancelled
    await asyncio.gather(waiting, return_exceptions=True)
    assert gate.active == 0
    await asyncio.wait_for(gate.slot(), 10)


@pytest.mark.parametrize(
    ("status", "body", "overloaded"),
    [
        (429, "slow down", True),
        (529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, True),
        (503, "busy", True),
        (None, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, True),
        (500, "oops", False),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, False),
        (400, "bad", False),
    ],
)
def test_only_a_refusal_for_load_makes_fewer_requests(
    status: int | None, body: object, overloaded: bool
) -> None:
    assert error_from_body(status, body).overloaded is overloaded
