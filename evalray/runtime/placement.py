"""What a replica asks of the cluster, whether any node can give it, and what is missing if not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Nodes, as ``ray.nodes()`` lists them.
Nodes = list[dict[str, Any]]

_NAMES = {"CPU": "CPU", "GPU": "GPU"}


@dataclass(slots=True, frozen=True)
class Need:
    """Resources of one replica; all on one node."""

    cpus: float
    gpus: float = 0.0

    def as_resources(self) -> dict[str, float]:
        return {name: value for name, value in (("CPU", self.cpus), ("GPU", self.gpus)) if value}

    def actor_options(self) -> dict[str, Any]:
        """Options of the Ray actor.  Ray must never restart or repeat on its own: the driver does."""
        return {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": 16,
        }

    def __str__(self) -> str:
        return " and ".join(_amount(name, value) for name, value in self.as_resources().items()) or "nothing"


def fitting_replicas(need: Need, nodes: Nodes) -> int:
    """How many replicas the living nodes can hold at once, were they all free."""
    wanted = need.as_resources()
    if not wanted:
        return len(alive(nodes)) * 1_000_000
    return sum(
        min(int((node["Resources"].get(name, 0.0) + 1e-9) / value) for name, value in wanted.items())
        for node in alive(nodes)
    )


def alive(nodes: Nodes) -> Nodes:
    return [node for node in nodes if node.get("Alive")]


def describe_missing(need: Need, nodes: Nodes, available: dict[str, float]) -> str:
    """Why a replica finds no place: what it needs, the most one node has, and what is free now."""
    living = alive(nodes)
    if not living:
        return f"a replica needs {need}, and the cluster has no living node"
    short = []
    for name, value in need.as_resources().items():
        most = max(node["Resources"].get(name, 0.0) for node in living)
        if most < value:
            short.append(f"{_amount(name, value)} (the largest node has {_number(most)})")
    if short:
        return f"a replica needs {' and '.join(short)} on one node"
    free = ", ".join(
        f"{_number(available.get(name, 0.0))} of {_number(total(name, living))} {_NAMES.get(name, name)}"
        for name in need.as_resources()
    )
    return f"a replica needs {need} on one node; free in the cluster: {free or 'nothing'}"


def total(name: str, nodes: Nodes) -> float:
    """Sum of one resource over the living nodes."""
    return float(sum(node["Resources"].get(name, 0.0) for node in alive(nodes)))


def _number(value: float) -> str:
    return f"{value:g}"


def _amount(name: str, value: float) -> str:
    label = _NAMES.get(name, name)
    return f"{_number(value)} {label}{'s' if value > 1 else ''}"
