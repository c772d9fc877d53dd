"""What a replica asks of the cluster, whether it can be given it, and what is missing if not.

A replica is on one node.  Only where no node has its GPUs, and its engine can span nodes, is it
*spread*: a placement group then holds its GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evalray.deployments import Deployment, replicas_per_gpu
from evalray.engines import engine_class

#: Nodes, as ``ray.nodes()`` lists them.
Nodes = list[dict[str, Any]]

_NAMES = {"CPU": "CPU", "GPU": "GPU"}


@dataclass(slots=True, frozen=True)
class Need:
    """Resources of one replica; all on one node, unless it is spread."""

    cpus: float
    gpus: float = 0.0
    stage_gpus: int = 0
    """GPUs of one pipeline stage, where the engine can span nodes; 0 where it cannot."""
    spread: bool = False
    """Over several nodes."""

    def as_resources(self) -> dict[str, float]:
        return {name: value for name, value in (("CPU", self.cpus), ("GPU", self.gpus)) if value}

    def actor_options(self) -> dict[str, Any]:
        """Options of the Ray actor.  Ray must never restart or repeat on its own: the driver does.

        The GPUs of a spread replica are taken by what its engine starts in the placement group.
        """
        return {
            "num_cpus": self.cpus,
            "num_gpus": 0.0 if self.spread else self.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": 16,
        }

    def bundles(self) -> list[dict[str, float]]:
        """The placement group of a spread replica: a GPU each, as vLLM wants it; the actor is in the first."""
        first = {"GPU": 1.0} | ({"CPU": self.cpus} if self.cpus else {})
        return [first, *({"GPU": 1.0} for _ in range(round(self.gpus) - 1))]

    def __str__(self) -> str:
        return " and ".join(_amount(name, value) for name, value in self.as_resources().items()) or "nothing"


def replica_need(deployment: Deployment) -> Need:
    """What one replica of a deployment asks for, before the cluster is known."""
    gpus, config = deployment.gpus_per_replica, deployment.engine_config
    stage = 0
    if gpus > 1 and engine_class(config.engine).can_span_nodes:
        in_stages = gpus % config.tensor_parallel_size == 0
        stage = config.tensor_parallel_size if in_stages else round(gpus)
    return Need(deployment.cpus_per_replica, float(gpus), stage)


def settled(need: Need, nodes: Nodes, *, may_grow: bool) -> Need:
    """``need`` as these nodes can meet it: spread, where no node has its GPUs and all together do.

    Where the cluster ``may_grow``, what all together lack may still come.
    """
    largest = max((node["Resources"].get("GPU", 0.0) for node in alive(nodes)), default=0.0)
    enough = may_grow or total("GPU", nodes) >= need.gpus
    return replace(need, spread=bool(need.stage_gpus) and 0 < largest < need.gpus and enough)


def whole_stages(need: Need, free: Mapping[str, float]) -> list[str] | None:
    """For each bundle of a spread replica its node, so that every pipeline stage is whole on one.

    ``free`` has the free GPUs by node id; the fullest nodes are taken, so that they are few.  ``None``
    where there is not room for all stages, as for one that is larger than a node.
    """
    stage = need.stage_gpus
    missing = round(need.gpus) // stage
    chosen: list[str] = []
    for node_id, gpus in sorted(free.items(), key=lambda item: (-item[1], item[0])):
        here = min(missing, int((gpus + 1e-9) / stage))
        chosen += [node_id] * (here * stage)
        missing -= here
    return None if missing else chosen


def fitting_replicas(need: Need, nodes: Nodes) -> int:
    """How many replicas the living nodes can hold at once, were they all free."""
    wanted = need.as_resources()
    if not wanted:
        return len(alive(nodes)) * 1_000_000
    if need.spread:
        return min(int((total(name, nodes) + 1e-9) / value) for name, value in wanted.items())
    return sum(
        min(_times(name, node["Resources"].get(name, 0.0), value) for name, value in wanted.items())
        for node in alive(nodes)
    )


def _times(name: str, available: float, value: float) -> int:
    """How often ``value`` is there.  A part of a GPU lies on one of them: two cards hold four times 0.4, not five."""
    if name == "GPU" and value < 1:
        return int(available + 1e-9) * replicas_per_gpu(value)
    return int((available + 1e-9) / value)


def alive(nodes: Nodes) -> Nodes:
    return [node for node in nodes if node.get("Alive")]


def describe_missing(need: Need, nodes: Nodes, available: dict[str, float]) -> str:
    """Why a replica finds no place: what it needs, the most there is, and what is free now."""
    living = alive(nodes)
    if not living:
        return f"a replica needs {need}, and the cluster has no living node"
    where, short = ("over several nodes" if need.spread else "on one node"), []
    for name, value in need.as_resources().items():
        if need.spread:
            most, whose = total(name, living), "the cluster has"
        else:
            most, whose = max(node["Resources"].get(name, 0.0) for node in living), "the largest node has"
        if most < value:
            short.append(f"{_amount(name, value)} ({whose} {_number(most)})")
    if short:
        return f"a replica needs {' and '.join(short)} {where}"
    free = ", ".join(
        f"{_number(available.get(name, 0.0))} of {_number(total(name, living))} {_NAMES.get(name, name)}"
        for name in need.as_resources()
    )
    return f"a replica needs {need} {where}; free in the cluster: {free or 'nothing'}"


def total(name: str, nodes: Nodes) -> float:
    """Sum of one resource over the living nodes."""
    return float(sum(node["Resources"].get(name, 0.0) for node in alive(nodes)))


def _number(value: float) -> str:
    return f"{value:g}"


def _amount(name: str, value: float) -> str:
    label = _NAMES.get(name, name)
    return f"{_number(value)} {label}{'s' if value > 1 else ''}"
