"""Samples per second and CPU per sample through ``openai-compatible``, against a bare aiohttp client.

    python scripts/bench/throughput.py [--pairs 5] [--samples 2000] [--in-flight 64] [--latency-ms 50]

Each pair runs ``floor.py ... stream`` and ``evalray run`` against the same mock server; the rate is the
server's own, from the first request to the last answer.  CPU per sample is marginal: the difference
between a long and a short run, so that start-up is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import BENCH, mock_server, mock_suite, report, reset, run_evalray, stats, summary, write_benchmark


def floor(port: int, in_flight: int, folder: Path) -> float:
    reset(port)
    subprocess.run(
        [sys.executable, str(BENCH / "floor.py"), str(port), str(in_flight), "stream"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return stats(port)["rps"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    options = parser.parse_args()

    ratios, ours_rates, floor_rates, marginal = [], [], [], []
    with tempfile.TemporaryDirectory() as temporary, mock_server(options.latency_ms) as port:
        folder = Path(temporary)
        write_benchmark(folder / "benchmarks", options.samples)
        (folder / "qa2000.jsonl").symlink_to(folder / "benchmarks" / "qa" / "sample.jsonl")
        short = max(options.samples // 10, 1)
        for pair in range(options.pairs):
            floor_rate = floor(port, options.in_flight, folder)
            reset(port)
            suite = mock_suite(port, in_flight=options.in_flight)
            long_run = run_evalray(suite, folder, "--sweep-id", f"long-{pair}")
            served = stats(port)
            assert served["n"] == options.samples, f"{served['n']} requests for {options.samples} samples"
            assert long_run.report["runs"][0]["accuracy"] == 1.0, long_run.report
            short_suite = mock_suite(port, in_flight=options.in_flight, max_samples=short)
            short_run = run_evalray(short_suite, folder, "--sweep-id", f"short-{pair}")
            spent = sum(long_run.cpu_seconds.values()) - sum(short_run.cpu_seconds.values())
            marginal.append(1000 * spent / (options.samples - short))
            ratios.append(served["rps"] / floor_rate)
            ours_rates.append(served["rps"])
            floor_rates.append(floor_rate)
            print(
                f"pair {pair}: floor {floor_rate:.0f}/s, evalray {served['rps']:.0f}/s,"
                f" ratio {ratios[-1]:.3f}, CPU {marginal[-1]:.2f} ms/sample",
                flush=True,
            )
    report(
        "throughput",
        {
            "ratio_to_floor": statistics.median(ratios),
            "ratios": summary(ratios),
            "samples_per_second": summary(ours_rates),
            "floor_samples_per_second": summary(floor_rates),
            "cpu_ms_per_sample": summary(marginal),
            "target": {"ratio_to_floor": ">= 0.85", "cpu_ms_per_sample": "<= 1.2"},
        },
    )


if __name__ == "__main__":
    main()
