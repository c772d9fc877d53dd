"""A program: sweeps on a cluster of two nodes with two GPUs each, whose engine needs more than one of them has.

``argv``: a folder to work in; what became of them is in its ``told.json`` then.  With an address besides, one
sweep on that cluster in the folder: the driver that is interrupted and killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parents[1]
os.environ |= {
    "PYTHONPATH": os.pathsep.join([str(_TESTS), str(_TESTS.parent)]),
    "RAY_AUTH_MODE": "disabled",  # whatever token lies in the home is not this cluster's
}
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

import psutil  # noqa: E402
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util import placement_group_table  # noqa: E402
from runtime.conftest import Plans  # noqa: E402

from evalray.plan import Plan  # noqa: E402
from evalray.runtime import run_sweep  # noqa: E402

_GPUS = 4


def plan_in(folder: Path, address: str, prompts: list[str], *, gpus: int, stage: int, seconds: float) -> Plan:
    plans = Plans(folder)
    args = {"seconds": seconds, "workers": str(folder / "workers")}
    run = plans.run(plans.benchmark("b", prompts), telemetry=True)
    deployment = plans.deployment([run], engine_args=args, gpus_per_replica=gpus)
    deployment.engine_config = replace(deployment.engine_config, tensor_parallel_size=stage)
    return plans.plan(deployment, address=address, placement_timeout_seconds=5.0)


def sweep(plan: Plan) -> dict[str, Any]:
    said: list[str] = []
    result = run_sweep(plan, on_message=said.append)
    told: dict[str, Any] = {"exit_code": result.exit_code, "reason": result.runs[0].reason, "said": said}
    if (summary := result.runs[0].summary) is not None:
        told["outcomes"] = {name: count for name, count in summary.outcomes.items() if count}
        told["energy"] = [summary.total_energy_joules, summary.energy_method, summary.energy_reason]
    return told


def lives(folder: Path) -> list[list[tuple[str, int]]]:
    """The workers of each life of the engine."""
    file = folder / "workers"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until(condition: Callable[[], bool], seconds: float = 40.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def after(folder: Path) -> dict[str, Any]:
    """What is left of a sweep once it has ended, or its driver has."""
    pids = [pid for life in lives(folder) for _, pid in life]
    return {
        "nodes": [len({node for node, _ in life}) for life in lives(folder)],
        "workers": [len(life) for life in lives(folder)],
        "gpus_free": until(lambda: ray.available_resources().get("GPU", 0.0) == _GPUS),
        "no_group": until(lambda: all(g["state"] == "REMOVED" for g in placement_group_table().values())),
        "no_worker": until(lambda: not any(map(psutil.pid_exists, pids))),
    }


def stopped(folder: Path, address: str, number: signal.Signals) -> dict[str, Any]:
    """A sweep whose driver gets a signal while its replica works."""
    folder.mkdir()
    driver = subprocess.Popen([sys.executable, __file__, str(folder), address])
    try:
        began = until(lambda: bool(lives(folder)), 90.0)
        driver.send_signal(number)
        return {"began": began, "exit_code": driver.wait(60), **after(folder)}
    finally:
        driver.kill()


def main(folder: Path) -> None:
    small = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0, **small})
    for _ in range(2):
        cluster.add_node(num_cpus=2, num_gpus=2, **small)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    numbers = [f"say {i}" for i in range(20)]
    dying, large, packed = folder / "dying", folder / "large", folder / "packed"
    prompts = [*numbers, f"die once={folder / 'died'} 7"]
    told = {
        "dying": sweep(plan_in(dying, cluster.address, prompts, gpus=4, stage=2, seconds=0.0)) | after(dying),
        "packed": sweep(plan_in(packed, cluster.address, numbers, gpus=3, stage=3, seconds=0.0))
        | after(packed),
        "large": sweep(plan_in(large, cluster.address, numbers, gpus=5, stage=5, seconds=0.0)) | after(large),
        "interrupted": stopped(folder / "interrupted", cluster.address, signal.SIGINT),
        "killed": stopped(folder / "killed", cluster.address, signal.SIGKILL),
    }
    (folder / "told.json").write_text(json.dumps(told))
    ray.shutdown()
    cluster.shutdown()


def drive(folder: Path, address: str) -> int:
    prompts = [f"say {i}" for i in range(2000)]
    return run_sweep(plan_in(folder, address, prompts, gpus=4, stage=2, seconds=0.5)).exit_code


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(drive(Path(sys.argv[1]), sys.argv[2]))
    main(Path(sys.argv[1]))
