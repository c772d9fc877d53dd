from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.runtime.queue import MICRO_BATCH, WorkItem, WorkQueue, prefetch_for
from evalray.types import GenerationRequest, SamplingParams


class Numbers:
    def __init__(self, count: int, *, known: bool = True) -> None:
        self.left = [
            WorkItem(GenerationRequest(str(i), ({"role": "user", "content": "x"},), SamplingParams()), i)
            for i in range(count)
        ]
        self.known = known

    def take(self, limit: int) -> list[WorkItem]:
        taken, self.left = self.left[:limit], self.left[limit:]
        return taken

    def remaining(self) -> int | None:
        return len(self.left) if self.known else None

    def exhausted(self) -> bool:
        return not self.left


def fill(queue: WorkQueue, replica: str) -> list[WorkItem]:
    items: list[WorkItem] = []
    while batch := queue.grant(replica):
        items += batch
    return items


def finish(queue: WorkQueue, replica: str) -> None:
    for item in queue.held_items(replica):
        queue.complete(replica, item.request.request_id)


@pytest.mark.parametrize("limit", [1, 2, 4, 32, 64, 256, 2048])
def test_what_a_replica_holds_is_never_over_two_and_a_half_times_its_limit(limit: int) -> None:
    queue = WorkQueue(Numbers(10_000))
    queue.add_replica("a", limit)
    held = len(fill(queue, "a"))
    assert held == limit + prefetch_for(limit)
    assert limit < held <= 2.5 * limit


def test_grants_are_micro_batches() -> None:
    queue = WorkQueue(Numbers(1000))
    queue.add_replica("a", 256)
    assert len(queue.grant("a")) == MICRO_BATCH


def test_the_last_items_are_spread_over_all_replicas() -> None:
    queue = WorkQueue(Numbers(10))
    queue.add_replica("a", 64)
    queue.add_replica("b", 64)
    assert len(fill(queue, "a")) == 5
    assert len(fill(queue, "b")) == 5


def test_a_replica_that_is_starting_finds_its_part_of_the_last_items() -> None:
    queue = WorkQueue(Numbers(14))
    for name in "abcd":
        queue.expect(name)
    given = {}
    for name in "abcd":
        queue.expect_no_more(name)
        queue.add_replica(name, 3)
        given[name] = len(fill(queue, name))
    assert given == {"a": 4, "b": 4, "c": 4, "d": 2}


@pytest.mark.parametrize("others", [1, 7])
def test_no_slot_stays_empty_for_a_replica_that_is_starting(others: int) -> None:
    queue = WorkQueue(Numbers(10))
    for number in range(others):
        queue.expect(f"starting {number}")
    queue.add_replica("a", 8)
    assert len(fill(queue, "a")) == 8


def test_a_larger_replica_gets_a_larger_share_of_the_last_items() -> None:
    queue = WorkQueue(Numbers(12))
    queue.add_replica("small", 4)
    queue.add_replica("large", 8)
    assert (len(fill(queue, "small")), len(fill(queue, "large"))) == (4, 8)


def test_what_a_lost_node_held_goes_to_the_others_without_blame() -> None:
    queue = WorkQueue(Numbers(6))
    queue.add_replica("a", 4)
    lost = fill(queue, "a")
    assert queue.lose_replica("a", blame=False) == []
    queue.add_replica("b", 4)
    assert fill(queue, "b") == lost
    assert {item.kills for item in lost} == {0}


def test_suspects_run_alone_after_the_innocent_and_only_the_guilty_is_convicted() -> None:
    queue = WorkQueue(Numbers(8))
    queue.add_replica("a", 2)
    suspects = fill(queue, "a")
    assert queue.lose_replica("a", blame=True) == []
    queue.add_replica("a", 2)
    innocent = fill(queue, "a")
    assert [item.kills for item in innocent] == [0] * len(innocent)
    finish(queue, "a")
    for suspect in suspects[:-1]:
        assert fill(queue, "a") == [suspect]
        finish(queue, "a")
    assert fill(queue, "a") == suspects[-1:]
    assert queue.lose_replica("a", blame=True) == suspects[-1:]
    assert queue.idle()


def test_with_several_replicas_one_is_set_aside_for_suspects_while_others_go_on() -> None:
    queue = WorkQueue(Numbers(1000))
    queue.add_replica("a", 2)
    fill(queue, "a")
    queue.lose_replica("a", blame=True)
    for name in ("a", "b"):
        queue.add_replica(name, 2)
    assert [item.kills for item in fill(queue, "a")] == [1]
    assert {item.kills for item in fill(queue, "b")} == {0}


def test_a_suspect_lost_with_its_node_is_tried_again() -> None:
    queue = WorkQueue(Numbers(1))
    queue.add_replica("a", 1)
    [item] = fill(queue, "a")
    queue.lose_replica("a", blame=True)
    queue.add_replica("a", 1)
    assert fill(queue, "a") == [item]
    assert queue.lose_replica("a", blame=False) == []
    queue.add_replica("a", 1)
    assert fill(queue, "a") == [item]


def test_an_answer_that_comes_twice_counts_once() -> None:
    queue = WorkQueue(Numbers(1))
    queue.add_replica("a", 1)
    [item] = fill(queue, "a")
    assert queue.complete("a", "0") is item
    assert queue.complete("a", "0") is None


def test_a_closed_queue_hands_out_nothing_and_is_idle_once_nothing_is_held() -> None:
    queue = WorkQueue(Numbers(100))
    queue.add_replica("a", 4)
    items = fill(queue, "a")
    queue.close()
    assert queue.grant("a") == []
    queue.give_back("a", [item.request.request_id for item in items[2:]])
    assert not queue.idle()
    finish(queue, "a")
    assert queue.idle()


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 120),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    poison=st.sets(st.integers(0, 119), max_size=3),
    known=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_whatever_dies_each_item_ends_once_and_only_poison_is_convicted(
    count: int, limits: list[int], poison: set[int], known: bool, seed: int
) -> None:
    """Replicas finish, die of poison, or go down with their node, in any order."""
    chance = random.Random(seed)
    queue = WorkQueue(Numbers(count, known=known))
    ended: Counter[int] = Counter()
    convicted: set[int] = set()
    for index, limit in enumerate(limits):
        queue.add_replica(str(index), limit)
    for _ in range(20_000):
        if queue.idle():
            break
        name = str(chance.randrange(len(limits)))
        queue.grant(name)
        held = queue.held_items(name)
        if not held:
            continue
        victim = chance.choice(held)
        blame = victim.tag in poison
        if blame or chance.random() < 0.05:
            found = queue.lose_replica(name, blame=blame)
            convicted |= {item.tag for item in found}
            ended.update(item.tag for item in found)
            queue.add_replica(name, limits[int(name)])
        else:
            queue.complete(name, victim.request.request_id)
            ended[victim.tag] += 1
    assert queue.idle()
    assert ended == Counter(range(count))
    assert convicted == {tag for tag in poison if tag < count}
