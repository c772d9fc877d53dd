from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from evalray.deployments import Deployment
from evalray.engines.base import Engine, EngineConfig
from evalray.runtime.admission import Admission, Claim
from evalray.runtime.placement import (
    Need,
    describe_missing,
    fitting_replicas,
    replica_need,
    settled,
    whole_stages,
)


class Own(Engine):
    can_span_nodes = True


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
        (Need(0.1, 0.4), [node(8, 2)], 4),
        (Need(0.1, 0.5), [node(8, 1), node(8)], 2),
        (Need(0.1), [node(2)], 20),
        (Need(1), [node(2), node(9, alive=False)], 2),
    ],
)
def test_a_replica_fits_on_one_node_or_not_at_all(
    need: Need, nodes: list[dict[str, Any]], count: int
) -> None:
    assert fitting_replicas(need, nodes) == count


@pytest.mark.parametrize(
    ("engine", "gpus", "tensor_parallel_size", "stage"),
    [
        ("vllm", 1, 1, 0),
        ("vllm", 8, 8, 8),
        ("vllm", 16, 8, 8),
        (f"{__name__}:Own", 3, 2, 3),
        ("ollama", 8, 8, 0),
    ],
)
def test_stages_are_those_of_engines_that_can_span_nodes(
    engine: str, gpus: int, tensor_parallel_size: int, stage: int
) -> None:
    config = EngineConfig("m", engine, tensor_parallel_size=tensor_parallel_size)
    need = replica_need(Deployment("m", config, gpus_per_replica=gpus))
    assert need == Need(1.0, gpus, stage)


@pytest.mark.parametrize(
    ("need", "nodes", "may_grow", "spread"),
    [
        (Need(1, 8, 8), [node(8, 8), node(8, 4)], False, False),
        (Need(1, 8, 8), [node(8, 4), node(8, 4)], False, True),
        (Need(1, 8), [node(8, 4), node(8, 4)], False, False),
        (Need(1, 8, 8), [node(8, 4), node(8, 2)], False, False),
        (Need(1, 8, 8), [node(8, 4), node(8, 2)], True, True),
        (Need(1, 8, 8), [node(8, 4), node(8, 4, alive=False)], False, False),
        (Need(1, 8, 8), [node(8)], True, False),
    ],
)
def test_a_replica_is_spread_only_where_no_node_has_its_gpus(
    need: Need, nodes: list[dict[str, Any]], may_grow: bool, spread: bool
) -> None:
    assert settled(need, nodes, may_grow=may_grow).spread is spread


@pytest.mark.parametrize(
    ("gpus", "stage", "free", "chosen"),
    [
        (4, 2, {"a": 2, "b": 2}, ["a", "a", "b", "b"]),
        (6, 2, {"a": 2, "b": 5}, ["b", "b", "b", "b", "a", "a"]),
        (16, 8, {"a": 3, "b": 8, "c": 8, "d": 8}, ["b"] * 8 + ["c"] * 8),
        (4, 1, {"a": 3, "b": 2}, ["a", "a", "a", "b"]),
        (4, 2, {"a": 3, "b": 1}, None),
        (4, 4, {"a": 2, "b": 2}, None),
        (4, 2, {}, None),
    ],
)
def test_pipeline_stages_are_whole_on_the_fewest_nodes(
    gpus: int, stage: int, free: dict[str, float], chosen: list[str] | None
) -> None:
    assert whole_stages(Need(1, gpus, stage, spread=True), free) == chosen


@pytest.mark.parametrize(
    ("need", "bundles"),
    [
        (Need(1, 3, 3, spread=True), [{"GPU": 1.0, "CPU": 1}, {"GPU": 1.0}, {"GPU": 1.0}]),
        (Need(0, 2, 1, spread=True), [{"GPU": 1.0}, {"GPU": 1.0}]),
    ],
)
def test_each_worker_has_a_bundle_and_the_actor_books_no_gpu(
    need: Need, bundles: list[dict[str, float]]
) -> None:
    assert need.bundles() == bundles
    assert need.actor_options()["num_gpus"] == 0


def test_what_is_missing_of_a_spread_replica_is_told_by_the_whole_cluster() -> None:
    nodes = [node(8, 4), node(8, 2)]
    assert describe_missing(Need(1, 8, 8, spread=True), nodes, {}) == (
        "a replica needs 8 GPUs (the cluster has 6) over several nodes"
    )
    assert "over several nodes; free in the cluster: 8 of 16 CPU, 1 of 6 GPU" in describe_missing(
        Need(1, 6, 6, spread=True), nodes, {"CPU": 8.0, "GPU": 1.0}
    )
    assert fitting_replicas(Need(1, 3, 3, spread=True), nodes) == 2


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
