from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from evalray.runtime.admission import Admission, Claim
from evalray.runtime.placement import Need, describe_missing, fitting_replicas


def node(cpus: float, gpus: float = 0.0, *, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}}


def test_what_no_node_has_is_named_with_the_most_there_is() -> None:
    nodes = [node(8, 4), node(16, 2)]
    assert (
        describe_missing(Need(1, 8), nodes, {})
        == "a replica needs 8 GPUs (the largest node has 4) on one node"
    )


def test_what_is_only_taken_is_told_by_what_is_free() -> None:
    text = describe_missing(Need(1, 2), [node(8, 4)], {"CPU": 0.5, "GPU": 1.0})
    assert (
        text == "a replica needs 1 CPU and 2 GPUs on one node; free in the cluster: 0.5 of 8 CPU, 1 of 4 GPU"
    )


@pytest.mark.parametrize(
    ("need", "nodes", "count"),
    [
        (Need(1, 2), [node(8, 4), node(8, 3)], 3),
        (Need(1, 2), [node(8, 1), node(8, 1)], 0),
        (Need(0.25), [node(2)], 8),
        (Need(0.1), [node(2)], 20),
        (Need(1), [node(2), node(9, alive=False)], 2),
    ],
)
def test_a_replica_fits_on_one_node_or_not_at_all(
    need: Need, nodes: list[dict[str, Any]], count: int
) -> None:
    assert fitting_replicas(need, nodes) == count


async def _running(admission: Admission, claims: list[Claim]) -> list[bool]:
    """Which of these claims, made in order and never given back, are admitted."""
    admitted = [False] * len(claims)

    async def hold(index: int) -> None:
        async with admission.admit(claims[index]):
            admitted[index] = True
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hold(index)) for index in range(len(claims))]
    for _ in range(10):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    return admitted


async def test_deployments_run_side_by_side_as_far_as_resources_go() -> None:
    claims = [Claim(Need(1, 2), 1, False), Claim(Need(1, 2), 2, False), Claim(Need(1, 1), 2, False)]
    assert await _running(Admission([node(16, 4)], 8), claims) == [True, False, True]


async def test_only_one_at_a_time_computes_on_these_cores() -> None:
    claims = [Claim(Need(0.1), 1, True), Claim(Need(0.1), 1, True), Claim(Need(0.1), 1, False)]
    assert await _running(Admission([node(16)], 8), claims) == [True, False, True]


async def test_more_than_there_is_waits_for_all_there_is_and_no_longer() -> None:
    admission = Admission([node(4)], 8)
    async with asyncio.timeout(5), admission.admit(Claim(Need(1), 100, False)):
        assert await _running(admission, [Claim(Need(1), 1, False)]) == [False]
    assert await _running(admission, [Claim(Need(1), 1, False)]) == [True]
