"""Start-up: ``evalray --help``, and the time to the first request above bare Ray.

    python scripts/bench/startup.py [--pairs 5]

Bare Ray is ``import ray``, ``ray.init`` of a local cluster and one actor that answers a call; ours is
``evalray run`` until the mock server sees its first request.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import mock_server, mock_suite, report, reset, run_evalray, stats, summary, write_benchmark

BARE = """
import ray
ray.init(address="local", include_dashboard=False, log_to_driver=False)
@ray.remote
class Actor:
    async def ping(self): return 1
ray.get(Actor.remote().ping.remote())
import time; print(time.time(), flush=True)
"""


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()

    help_seconds = [timed([sys.executable, "-m", "evalray", "--help"]) for _ in range(options.pairs + 1)][1:]
    above, bare_seconds = [], []
    with tempfile.TemporaryDirectory() as temporary, mock_server(0) as port:
        folder = Path(temporary)
        write_benchmark(folder / "benchmarks", 100)
        for pair in range(options.pairs):
            started = time.time()
            done = subprocess.run([sys.executable, "-c", BARE], check=True, capture_output=True, text=True)
            bare = float(done.stdout.split()[-1]) - started
            reset(port)
            started = time.time()
            run_evalray(mock_suite(port, in_flight=8), folder, "--sweep-id", f"s{pair}", track=True)
            ours = stats(port)["first"] - started
            bare_seconds.append(bare)
            above.append(ours - bare)
            print(f"pair {pair}: bare {bare:.1f} s, first request {ours:.1f} s", flush=True)
    report(
        "startup",
        {
            "help_seconds": summary(help_seconds),
            "bare_ray_seconds": summary(bare_seconds),
            "first_request_above_bare_seconds": statistics.median(above),
            "above": summary(above),
            "target": {"help_seconds": "<= 0.5", "first_request_above_bare_seconds": "<= 5"},
        },
    )


if __name__ == "__main__":
    main()
