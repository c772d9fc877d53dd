"""Sweeps on a Ray with GPUs, on a machine without any: the stub NVML is the driver.

The cluster is one process for all tests; each sweep is a process of its own that joins it, so that it can be
killed.  What the GPUs are is written before a sweep starts: its monitor's process reads it anew.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nvml_stub
import pytest

from evalray.plan import Plan
from evalray.store import iter_results, read_summary
from evalray.types import EvalResult, RunSummary

GPUS = 4
_TESTS = Path(__file__).parents[1]

_CLUSTER = """
import sys, ray
ray.init(num_cpus=16, num_gpus=int(sys.argv[1]), include_dashboard=False, log_to_driver=False,
         object_store_memory=80 << 20, logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""

_SWEEP = """
import json, pickle, sys, ray
from evalray.runtime import run_sweep
ray.init(address=sys.argv[2], log_to_driver=False, logging_level="ERROR")
said = []
with open(sys.argv[1], "rb") as file:
    plan = pickle.load(file)
result = run_sweep(plan, on_message=said.append)
print(json.dumps([result.exit_code, said]))
"""


@dataclass
class MeteredCluster:
    """A running cluster.  ``script`` says what its GPUs are."""

    script: Path
    environment: dict[str, str]
    address: str = ""
    pid: int = 0

    def kill(self, actor: str) -> int:
        """SIGKILL to the processes of actors of that class; how many there were."""
        killed = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(folder.name)
                named = (folder / "cmdline").read_bytes().startswith(f"ray::{actor}".encode())
                if named and _descends(pid, self.pid):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid == ancestor


@contextmanager
def metered_cluster(folder: Path) -> Iterator[MeteredCluster]:
    paths = os.pathsep.join(filter(None, [str(_TESTS), str(_TESTS.parent), os.environ.get("PYTHONPATH")]))
    if not nvml_stub.have_compiler():
        pytest.skip("gcc is needed to build the stub NVML")
    nvml_stub.build(folder)
    script = folder / "nvml.script"
    script.write_text(nvml_stub.script([{}] * GPUS))
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "EVALRAY_POWERCAP_ROOT": str(folder),
        nvml_stub.SCRIPT_VARIABLE: str(script),
        "LD_LIBRARY_PATH": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    cluster = MeteredCluster(script, environment)
    process = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER, str(GPUS)],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        cluster.pid, cluster.address = process.pid, process.stdout.readline().strip()
        assert cluster.address, "Ray did not start"
        yield cluster
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


@dataclass
class Sweeps:
    """Runs plans of one test; the sweep's directory is ``folder / "sweep"``."""

    folder: Path
    cluster: MeteredCluster
    said: list[str] = field(default_factory=list)

    def gpus(self, *devices: dict[str, Any]) -> None:
        """What the stub's GPUs are from now on; each draws besides what the working engines have it draw."""
        work = [{"work": self.power / f"gpu{index}", **device} for index, device in enumerate(devices)]
        self.cluster.script.write_text(nvml_stub.script(work, time.monotonic()))

    @property
    def power(self) -> Path:
        """The folder of the GPUs' power logs."""
        folder = self.folder / "power"
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, plan: Plan, *, meanwhile: Callable[[int], None] = lambda pid: None) -> RunSummary:
        """The first run's summary; ``meanwhile`` is called with the driver's process."""
        with self._driver(plan) as process:
            meanwhile(process.pid)
            out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        exit_code, self.said = json.loads(out.splitlines()[-1])
        assert exit_code == 0, self.said
        return self.summary(plan.runs[0].config.model)

    def kill_at(self, plan: Plan, lines: int, run: str = "b_scripted") -> None:
        """Run a plan and kill its driver once so many answers are journaled."""
        with self._driver(plan) as process:
            self.wait_for_lines(lines, run)
            process.send_signal(signal.SIGKILL)

    def wait_for_lines(self, lines: int, run: str = "b_scripted", seconds: float = 90.0) -> None:
        journal, deadline = self.folder / "sweep" / run / "generations.jsonl", time.monotonic() + seconds
        while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
            assert time.monotonic() < deadline, f"{run} has no {lines} answers"
            time.sleep(0.02)

    @contextmanager
    def _driver(self, plan: Plan) -> Iterator[subprocess.Popen[str]]:
        path = self.folder / "plan.pickle"
        path.write_bytes(pickle.dumps(plan))
        process = subprocess.Popen(
            [sys.executable, "-c", _SWEEP, str(path), self.cluster.address],
            env=self.cluster.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    # -- what came of it ------------------------------------------------------------------------

    def summary(self, model: str = "scripted") -> RunSummary:
        return read_summary(self.folder / "sweep" / f"b_{model}.summary.json")

    def rows(self, model: str = "scripted") -> list[EvalResult]:
        return list(iter_results(self.folder / "sweep" / f"b_{model}.parquet"))

    def figures(self, model: str = "scripted") -> dict[str, Any]:
        path = self.folder / "sweep" / f"b_{model}" / "telemetry" / "run.json"
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    def ledgers(self, model: str = "scripted") -> list[dict[str, Any]]:
        """The accounts of the devices that its engines used."""
        return [device for device in self.figures(model)["devices"] if device["engines"]]

    def check_conserved(self, model: str = "scripted") -> None:
        """Joules of the rows, of the judges and idle are what the devices used, to the last digits."""
        given = joules_of(self.rows(model))
        ledgers = self.ledgers(model)
        assert given > 0
        for ledger in ledgers:
            parts = ledger["attributed_joules"], ledger["judge_joules"], ledger["idle_joules"]
            assert math.fsum(parts) == close(ledger["measured_joules"])
            assert math.fsum(ledger["engine_joules"].values()) == close(math.fsum(parts[:2]))
        own = [
            joules
            for ledger in ledgers
            for engine, joules in ledger["engine_joules"].items()
            if engine.rpartition("/")[0] == model
        ]
        assert given == close(math.fsum(own))

    def true_joules(self, model: str = "scripted") -> dict[int, float]:
        """What the working engine says that each sample used, by position."""
        found: dict[int, float] = {}
        for line in (self.folder / f"joules_{model}").read_text().splitlines():
            request, joules = line.split()
            found[int(request.split(":")[1])] = float(joules)
        return found


def joules_of(rows: Sequence[EvalResult]) -> float:
    return math.fsum(row.energy_joules for row in rows if row.energy_joules is not None)


def close(value: float) -> Any:
    """Equal to 1e-9."""
    return pytest.approx(value, rel=1e-9)
