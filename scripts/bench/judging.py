#!/usr/bin/env python3
"""How fast stored generations are judged, against what the judge's latency allows.

    python scripts/bench/judging.py [--samples 1000] [--at-once 64] [--latency-ms 50] [--repeats 3]

Generates once, with an instant mock model.  Then ``evalray rescore --reask`` puts every answer to a
mock judge that takes a fixed time; the judge's own clock, from its first question to its last reply,
is compared with samples / at_once * latency.  Starting Ray and the judge's actor is not in it.

In turn, ``floor.py`` asks the same server with nothing but aiohttp: what a machine whose cores are
busy keeps even that from reaching is no fault of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import BENCH, mock_server, mock_suite, report, reset, run_evalray, stats, summary, write_benchmark


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    bound = options.samples / options.at_once * options.latency_ms / 1000
    seconds, floors = [], []
    with (
        tempfile.TemporaryDirectory() as place,
        mock_server(0) as model,
        mock_server(options.latency_ms) as judge,
    ):
        folder = Path(place)
        write_benchmark(folder / "benchmarks", options.samples)
        section = (
            f'[judge]\nmodel = "mock-judge"\nengine = "openai-compatible"\nbase_url = "http://127.0.0.1:{judge}/v1"\n'
            f"max_concurrency = {options.at_once}\n"
        )
        done = run_evalray(section + mock_suite(model, in_flight=64), folder)
        assert done.exit_code == 0, done.stderr[-2000:]
        subprocess.run([sys.executable, str(BENCH / "gen_qa.py"), "2000"], cwd=folder, check=True)
        for _ in range(options.repeats):
            reset(judge)
            floor = [sys.executable, str(BENCH / "floor.py"), str(judge), str(options.at_once), "plain"]
            subprocess.run(floor, cwd=folder, check=True, capture_output=True)
            figures = stats(judge)
            floors.append((figures["last"] - figures["first"]) * options.samples / figures["n"])
            reset(judge)
            outcome = rescore(folder, Path(done.report["dir"]))
            assert outcome["runs"][0]["outcomes"]["correct"] == options.samples, outcome
            figures = stats(judge)
            assert figures["n"] == options.samples, figures
            seconds.append(figures["last"] - figures["first"])
    report(
        "judging",
        {
            "samples": options.samples,
            "at_once": options.at_once,
            "bound_seconds": bound,
            "seconds": summary(seconds),
            "of_the_bound": bound / summary(seconds)["median"],
            "floor_of_the_bound": bound / summary(floors)["median"],
            "target": 0.9,
            "peak_in_flight": figures["peak"],
        },
    )


def rescore(folder: Path, sweep: Path) -> dict:
    command = [sys.executable, "-m", "evalray", "rescore", str(sweep), "--scorer", "frames", "--reask"]
    environment = {**os.environ, "EVALRAY_BENCHMARKS": str(folder / "benchmarks")}
    done = subprocess.run(
        [*command, "--no-tracking", "--json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
