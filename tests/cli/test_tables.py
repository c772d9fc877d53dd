from __future__ import annotations

from pathlib import Path

import pytest

from evalray.cli.plan_text import plan_lines
from evalray.engines.base import EngineConfig
from evalray.plan import Deployment, Plan


@pytest.mark.parametrize(
    ("engine", "gpus", "address", "said"),
    [
        ("vllm", 16, "ray-head:6379", True),
        ("vllm", 16, None, False),
        ("vllm", 1, "ray-head:6379", False),
        ("ollama", 16, "ray-head:6379", False),
    ],
)
def test_a_plan_says_where_a_replica_may_lie_on_several_nodes(
    engine: str, gpus: int, address: str | None, said: bool
) -> None:
    deployment = Deployment("m", EngineConfig("m", engine), gpus_per_replica=gpus)
    plan = Plan("n", "", "s", Path("s"), {}, [deployment], address=address)
    text = "\n".join(line.plain for line in plan_lines(plan))
    assert (f"{gpus} GPU, over several nodes where none has {gpus}" in text) is said
