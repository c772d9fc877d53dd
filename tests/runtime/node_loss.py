"""A program: a sweep on a cluster of two nodes, whose engine's node is lost on the way and replaced.

``argv``: a folder to work in; the outcomes are in its ``told.json`` then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
os.environ |= {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "PYTHONPATH": os.pathsep.join([str(_TESTS), str(_TESTS.parent)]),
}
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from runtime.conftest import Plans  # noqa: E402

from evalray.runtime import RuntimePolicy, SweepProgress, run_sweep  # noqa: E402


def main(folder: Path) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20})
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    plan = Plans(folder).one([f"say {i}" for i in range(150)], engine_args={"seconds": 0.1})
    plan.address = cluster.address
    progress, said = SweepProgress(), []

    policy = RuntimePolicy(unavailable_seconds=30.0)
    # Nodes can be started in the main thread only.
    with ThreadPoolExecutor(1) as sweep:
        running = sweep.submit(run_sweep, plan, progress=progress, on_message=said.append, policy=policy)
        while not running.done() and not (progress.runs and progress.runs[0].done >= 20):
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        result = running.result(120)
    summary = result.runs[0].summary
    outcomes = {name: count for name, count in summary.outcomes.items() if count} if summary else {}
    told = {"exit_code": result.exit_code, "outcomes": outcomes, "said": said}
    (folder / "told.json").write_text(json.dumps(told))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
