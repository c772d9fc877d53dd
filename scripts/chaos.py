"""Kill a sweep at random instants and prove that nothing is lost and nothing is done twice.

    python scripts/chaos.py [--kills 50] [--seed 0] [--samples 600]

One undisturbed run is the reference. Then the same suite runs again in a fresh folder while the driver
or an engine actor is SIGKILLed at random instants; after a driver's death the same command continues.
At the end each record stands exactly once in the results, every non-timing field of the summary equals
the reference, and the server saw at most ``2.5 × in-flight`` requests more per kill.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))

from common import mock_server, mock_suite, reset, run_evalray, stats, write_benchmark

#: Fields of a summary that depend on when things happened, not on what.
TIMING = {
    "started_at",
    "ended_at",
    "wall_seconds",
    "generation_seconds",
    "samples_per_second",
    "output_tokens_per_second",
    "mean_latency_seconds",
    "latency_stats",
    "ttft_stats",
    "throughput_stats",
    "itl_stats",
    "queue_stats",
}
DEADLINE = 300.0


def timeless(summary_file: Path) -> dict:
    return {key: value for key, value in json.loads(summary_file.read_text()).items() if key not in TIMING}


def engine_actors(driver: int) -> list[psutil.Process]:
    """The engine actors of this driver's local Ray, oldest first."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(driver).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                title = " ".join(child.cmdline())
                if title.startswith("ray::") and "EngineActor" in title:
                    found.append(child)
    return found


def start(suite: Path, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "evalray", "run", "-c", str(suite), "--json", "--no-tracking"]
    command += ["--output-dir", str(folder / "results"), "--sweep-id", "chaos"]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "stderr.log").open("a"),
        env={**os.environ, "EVALRAY_BENCHMARKS": str(folder / "benchmarks")},
        cwd=folder,
        start_new_session=True,
    )


def wait_for_requests(port: int, count: int, process: subprocess.Popen) -> bool:
    """True once the server has answered ``count`` requests, False if the process ended before."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        if stats(port)["n"] >= count:
            return True
        time.sleep(0.02)
    raise TimeoutError(f"the sweep made no progress to {count} requests in {DEADLINE:.0f} s")


def chaos(kills: int, seed: int, samples: int, in_flight: int, latency_ms: float) -> dict:
    """Run the experiment; returns its figures.  Raises AssertionError where a promise is broken."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as temporary, mock_server(latency_ms) as port:
        folder = Path(temporary)
        write_benchmark(folder / "benchmarks", samples)
        suite = mock_suite(port, in_flight=in_flight)
        reference = run_evalray(suite, folder, "--sweep-id", "reference")
        assert reference.exit_code == 0, reference.report

        reset(port)
        done = {"driver": 0, "actor": 0}
        process = start(folder / "suite.toml", folder)
        try:
            for kill in range(kills):
                served = stats(port)["n"]
                step = max(1, (samples - served) // (kills - kill + 1))
                target = served + rng.randint(1, max(1, min(2 * step, samples - served - 1)))
                if not wait_for_requests(port, target, process):
                    break
                time.sleep(rng.random() * latency_ms / 1000)
                actors = engine_actors(process.pid)
                if rng.random() < 0.5 and actors:
                    rng.choice(actors).kill()
                    done["actor"] += 1
                else:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait(30)
                    done["driver"] += 1
                    process = start(folder / "suite.toml", folder)
            process.wait(DEADLINE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        served = stats(port)["n"]
        log = (folder / "stderr.log").read_text()
        assert process.returncode == 0, f"exit code {process.returncode}\n{log[-3000:]}"

        # One more time: everything is there, nothing is asked again, and the summary stands.
        results = folder / "results" / "chaos"
        again = start(folder / "suite.toml", folder)
        assert again.wait(DEADLINE) == 0
        assert stats(port)["n"] == served, "a finished sweep asked the engine again"

        rows = [json.loads(line) for line in (results / "qa_mock.jsonl").read_text().splitlines()]
        ids = [row["record_id"] for row in rows]
        assert len(ids) == len(set(ids)) == samples, f"{len(ids)} rows, {len(set(ids))} records of {samples}"
        expected = timeless(folder / "results" / "reference" / "qa_mock.summary.json")
        actual = timeless(results / "qa_mock.summary.json")
        assert actual == expected, {
            k: (actual.get(k), expected.get(k)) for k in expected if actual.get(k) != expected[k]
        }
        total = sum(done.values())
        redone = served - samples
        assert redone <= 2.5 * in_flight * total, f"{redone} requests redone for {total} kills"
        return {"kills": done, "samples": samples, "requests_redone": redone, "in_flight": in_flight}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    options = parser.parse_args()
    print(
        json.dumps(chaos(options.kills, options.seed, options.samples, options.in_flight, options.latency_ms))
    )


if __name__ == "__main__":
    main()
