"""What vLLM's engine core is to a replica that spans nodes: a process that joins Ray by ``RAY_ADDRESS`` and
starts a worker with a GPU in every bundle of the placement group it is given.

``argv``: the group, pickled, in hexadecimal.  Prints the nodes and pids of the workers, and ends with its stdin.
"""

from __future__ import annotations

import json
import os
import pickle
import sys

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class Worker:
    def where(self) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()


def main() -> None:
    ray.init(logging_level="ERROR", log_to_driver=False)
    group = pickle.loads(bytes.fromhex(sys.argv[1]))
    workers = [
        ray.remote(Worker)
        .options(num_cpus=0, num_gpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index))
        .remote()
        for index in range(len(group.bundle_specs))
    ]
    print(json.dumps(ray.get([worker.where.remote() for worker in workers], timeout=60)), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
