"""Energy and utilisation of real sweeps: real Ray, real pynvml, and a stub in place of the driver's library."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalray.plan import Plan
from evalray.reports import PowerFiles, read_timeline
from evalray.runtime.telemetry_figures import figures_of_runs
from evalray.store import iter_results, read_summary
from evalray.suite.models import Telemetry
from evalray.telemetry import find_device
from evalray.telemetry_report import telemetry_report
from evalray.types import EvalResult, RunSummary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_WORDS = [f"what is {n} {n}" for n in range(8)]


def _stub() -> Any:
    path = Path(__file__).parents[1] / "telemetry" / "stub_nvml" / "nvml_stub.py"
    spec = importlib.util.spec_from_file_location("nvml_stub", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: A sweep in a process of its own, whose Ray is started with the meters that the environment describes.
_PROGRAM = """
import json, pickle, sys
from evalray.api import run_plan
from evalray.runtime import run_sweep
if gpus := int(sys.argv[2]):
    import ray
    ray.init("local", num_cpus=2, num_gpus=gpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
said = []
with open(sys.argv[1], "rb") as file:
    plan = pickle.load(file)
run = run_sweep if plan.telemetry.prometheus_port is None else run_plan
result = run(plan, on_message=said.append)
print(json.dumps([result.exit_code, said]))
"""


class Sweeps:
    """Runs plans; ``environment`` says what they find."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus = 0
        self.said: list[str] = []
        (folder / "no_powercap").mkdir()
        self.environment = {"EVALRAY_POWERCAP_ROOT": str(folder / "no_powercap")}

    def run(self, plan: Plan, *, meanwhile: Callable[[int], None] = lambda pid: None) -> RunSummary:
        (self.folder / "plan.pickle").write_bytes(pickle.dumps(plan))
        tests = str(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, [tests, str(Path(tests).parent), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(self.folder / "plan.pickle"), str(self.gpus)],
            env={**os.environ, "PYTHONPATH": paths, **self.environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            meanwhile(process.pid)
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 0
        exit_code, self.said = json.loads(out.splitlines()[-1])
        assert exit_code == 0
        return read_summary(self.folder / "sweep" / "b_scripted.summary.json")

    def rows(self) -> list[EvalResult]:
        return list(iter_results(self.folder / "sweep" / "b_scripted.parquet"))

    def figures(self) -> dict[str, Any]:
        path = self.folder / "sweep" / "b_scripted" / "telemetry" / "run.json"
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    def check_conserved(self) -> None:
        """Joules of the rows and idle are what the devices of the engines used, to the last digits."""
        given = math.fsum(row.energy_joules for row in self.rows() if row.energy_joules is not None)
        used = [device for device in self.figures()["devices"] if device["engines"]]
        idle = math.fsum(device["idle_joules"] for device in used)
        assert given > 0
        assert given + idle == pytest.approx(
            math.fsum(device["measured_joules"] for device in used), rel=1e-9
        )


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    return Sweeps(tmp_path)


def _give_gpus(sweeps: Sweeps, tmp_path: Path, devices: list[dict[str, Any]]) -> None:
    """Let sweeps find these GPUs, by the stub's keys."""
    stub = _stub()
    if not stub.have_compiler():
        pytest.skip("gcc is needed to build the stub NVML")
    (tmp_path / "nvml").mkdir()
    library = stub.build(tmp_path / "nvml")
    script = tmp_path / "nvml.script"
    script.write_text(stub.script(devices, time.monotonic()))
    sweeps.gpus = len(devices)
    sweeps.environment |= {stub.SCRIPT_VARIABLE: str(script), "LD_LIBRARY_PATH": str(library.parent)}


@pytest.fixture
def two_gpus(sweeps: Sweeps, tmp_path: Path) -> None:
    """The stub's GPUs draw 200 W and 100 W."""
    powers = (200.0, 100.0)
    _give_gpus(sweeps, tmp_path, [{"power": [(0, watts)], "period": 0.05} for watts in powers])


@pytest.fixture
def package(sweeps: Sweeps, tmp_path: Path) -> Iterator[None]:
    """A processor with RAPL that draws 50 W: a thread counts in place of the kernel."""
    zone = tmp_path / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (zone / "energy_uj").write_text("1000000000000\n")
    sweeps.environment["EVALRAY_POWERCAP_ROOT"] = str(tmp_path / "powercap")
    ended = threading.Event()

    def count() -> None:
        began = time.monotonic()
        with (zone / "energy_uj").open("r+") as file:
            while not ended.wait(0.01):
                file.seek(0)
                file.write(f"{int((time.monotonic() - began) * 50e6) + 10**10:015d}\n")
                file.flush()

    thread = threading.Thread(target=count)
    thread.start()
    yield
    ended.set()
    thread.join()


def _plan(plans: Any, prompts: list[str], *, seconds: float = 0.3, gpus: int = 1, **more: Any) -> Plan:
    figures = {"param_count_b": 1.0, "gpu_peak_tflops": 1.0, "gpu_peak_bandwidth_gb_s": 100.0}
    config = {"telemetry": True, "metadata": figures, **more.pop("config", {})}
    run = plans.run(plans.benchmark("b", prompts), **config)
    args = {"seconds": seconds, **more.pop("engine_args", {})}
    deployment = plans.deployment([run], engine_args=args, **more)
    deployment.gpus_per_replica, deployment.exclusive = gpus, not gpus
    plan: Plan = plans.plan(deployment)
    return plan


@pytest.mark.parametrize("replicas", [1, 2])
def test_joules_of_the_rows_and_idle_are_what_the_gpus_used(
    plans: Any, sweeps: Sweeps, two_gpus: None, replicas: int
) -> None:
    summary = sweeps.run(_plan(plans, _WORDS * 2, seconds=0.5, in_flight=2, replicas=replicas))
    sweeps.check_conserved()
    assert (summary.energy_method, summary.energy_scope) == ("hw_counter", "gpu")
    # Which GPU a single replica gets is Ray's choice.
    watts = {1: (100.0, 200.0), 2: (300.0,)}[replicas]
    assert any(summary.avg_power_watts == pytest.approx(each, rel=0.25) for each in watts)
    assert summary.total_energy_joules is not None
    assert summary.mfu_pct is not None
    rows = sweeps.rows()
    # On a busy machine the first requests may be over before the monitor is up.
    measured = [row for row in rows if row.energy_joules is not None]
    assert summary.tokens_per_joule == pytest.approx(2 * len(measured) / summary.total_energy_joules)
    assert summary.joules_per_correct == pytest.approx(summary.total_energy_joules / len(measured))
    assert all(row.mfu_pct is not None and row.mbu_request_pct is not None for row in rows)
    assert max(row.energy_coverage or 0.0 for row in rows) > 0.8


def test_the_joules_of_a_processor_add_up(plans: Any, sweeps: Sweeps, package: None) -> None:
    summary = sweeps.run(_plan(plans, _WORDS, gpus=0))
    sweeps.check_conserved()
    assert (summary.energy_method, summary.energy_scope) == ("rapl", "package")
    assert summary.avg_power_watts == pytest.approx(50.0, rel=0.25)


def test_without_a_meter_joules_are_null_with_the_reason_and_utilisation_is_there(
    plans: Any, sweeps: Sweeps
) -> None:
    summary = sweeps.run(_plan(plans, _WORDS, gpus=0))
    assert (summary.total_energy_joules, summary.idle_joules, summary.peak_power_watts) == (None, None, None)
    assert summary.energy_method == "none"
    assert "RAPL" in (summary.energy_reason or "")
    assert summary.mfu_pct is not None
    row = sweeps.rows()[0]
    assert (row.energy_joules, row.power_watts, row.ipj) == (None, None, None)
    assert row.flops is not None


def test_a_monitor_that_is_killed_costs_some_joules_and_no_sample(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill(driver: int) -> None:
        deadline = time.monotonic() + 60
        journal = tmp_path / "sweep" / "b_scripted" / "generations.jsonl"
        while time.monotonic() < deadline and not killed:
            if journal.exists() and journal.read_bytes().count(b"\n") >= 4:
                for pid in _monitors_below(driver):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.1)

    summary = sweeps.run(_plan(plans, _WORDS * 3, seconds=0.6, gpus=0, in_flight=1), meanwhile=kill)
    assert killed
    assert summary.scored_samples == 24
    sweeps.check_conserved()
    incarnations = {path.name.split("-")[2] for path in (tmp_path / "sweep" / "telemetry").glob("ticks-*")}
    assert incarnations == {"0", "1"}


def _monitors_below(driver: int) -> list[int]:
    """Processes of NodeMonitor actors among the descendants of a driver."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(folder.name)
            if b"NodeMonitor" in (folder / "cmdline").read_bytes() and _descends(pid, driver):
                found.append(pid)
    return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid == ancestor


def test_what_an_engine_counted_itself_is_beside_ours(plans: Any, sweeps: Sweeps, package: None) -> None:
    sweeps.run(_plan(plans, _WORDS, gpus=0, engine_args={"counts": 1e12}))
    (check,) = sweeps.figures()["engine_counters"]
    assert (check["engine_id"], check["engine_flops"]) == ("scripted/0", 8e12)
    assert check["flops_ratio"] == pytest.approx(8e12 / check["flops"])
    assert any("own counters" in warning for warning in sweeps.figures()["warnings"])


def test_an_engine_that_dies_leaves_figures_that_add_up(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path
) -> None:
    prompts = [*_WORDS, f"die once={tmp_path / 'died'} 7"]
    assert sweeps.run(_plan(plans, prompts, gpus=0)).scored_samples == 9
    sweeps.check_conserved()


def test_warm_up_samples_are_scored_and_in_no_figure_of_energy(
    plans: Any, sweeps: Sweeps, package: None
) -> None:
    summary = sweeps.run(_plan(plans, _WORDS, gpus=0, config={"warmup_samples": 3}))
    assert (summary.scored_samples, summary.warmup_samples_excluded) == (8, 3)
    assert summary.energy_stats is not None
    assert summary.energy_stats.n == 5
    sweeps.check_conserved()


@pytest.mark.parametrize(("local", "telemetry"), [(True, False), (False, True)], ids=["off", "remote"])
def test_nothing_is_watched_where_it_is_off_or_the_engine_is_elsewhere(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path, local: bool, telemetry: bool
) -> None:
    plan = _plan(plans, _WORDS[:2], seconds=0.0, gpus=0, config={"telemetry": telemetry})
    plan.deployments[0].exclusive = local
    assert sweeps.run(plan).energy_method is None
    assert not (tmp_path / "sweep" / "telemetry").exists()


def test_figures_worked_out_again_are_the_same(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path
) -> None:
    sweeps.run(_plan(plans, _WORDS, gpus=0))
    run = tmp_path / "sweep" / "b_scripted"
    before = {path.name: path.read_bytes() for path in (run / "telemetry").iterdir()}
    assert {"run.json", "samples.parquet", "timeline.parquet", "power.svg", "power.png"} == set(before)
    assert figures_of_runs(tmp_path / "sweep", ["b_scripted"]) == ["b_scripted"]
    assert {path.name: path.read_bytes() for path in (run / "telemetry").iterdir()} == before
    for name in ("timeline.parquet", "power.svg"):
        (run / "telemetry" / name).unlink()
    assert not [note for note in telemetry_report(run).notes if "not plotted" in note]
    assert {path.name: path.read_bytes() for path in (run / "telemetry").iterdir()} == before


def test_the_timeline_of_a_run_has_its_power_and_its_requests(
    plans: Any, sweeps: Sweeps, two_gpus: None, tmp_path: Path
) -> None:
    sweeps.run(_plan(plans, _WORDS * 2, seconds=0.5, in_flight=2, replicas=2))
    timeline = read_timeline(PowerFiles(tmp_path / "sweep" / "b_scripted").timeline)
    assert sorted(float(np.nanmean(device.mean_watts)) for device in timeline.devices) == pytest.approx(
        [100.0, 200.0], rel=0.05
    )
    seconds = math.fsum(row.latency_seconds or 0.0 for row in sweeps.rows())
    assert timeline.in_flight.sum() * timeline.bin_seconds == pytest.approx(seconds, rel=0.02)


def test_a_plot_that_cannot_be_drawn_is_said_once_and_costs_no_figure(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path
) -> None:
    broken = tmp_path / "broken" / "matplotlib"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no pencil')\n")
    root = Path(__file__).parents[2]
    paths = [str(broken.parent), str(root / "tests"), str(root), os.environ.get("PYTHONPATH", "")]
    sweeps.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    summary = sweeps.run(_plan(plans, _WORDS[:4], gpus=0))
    assert summary.total_energy_joules is not None
    (said,) = [line for line in sweeps.said if "no pencil" in line]
    assert "`evalray telemetry" in said
    run = tmp_path / "sweep" / "b_scripted"
    assert [path.name for path in PowerFiles(run).present()] == ["timeline.parquet"]


def test_a_folder_that_cannot_be_written_harms_no_run(
    plans: Any, sweeps: Sweeps, package: None, tmp_path: Path
) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "telemetry").write_text("in the way")
    summary = sweeps.run(_plan(plans, _WORDS[:2], gpus=0))
    assert (summary.scored_samples, summary.total_energy_joules) == (2, None)
    assert any(line.startswith("telemetry") for line in sweeps.said)


@pytest.mark.parametrize("estimate", [False, True])
def test_energy_is_estimated_only_when_asked_for_and_says_so(
    plans: Any, sweeps: Sweeps, tmp_path: Path, estimate: bool
) -> None:
    device = {"name": "NVIDIA H200", "memory_mib": 143771, "utilization": 50}
    silent = {"no_counter": True, "no_instant": True, "no_power": True}
    _give_gpus(sweeps, tmp_path, [{**device, **silent}])
    plan = _plan(plans, _WORDS * 2, seconds=0.5)
    plan.telemetry = Telemetry(estimate=estimate)
    summary = sweeps.run(plan)
    if not estimate:
        assert (summary.energy_method, summary.total_energy_joules) == ("none", None)
        return
    sweeps.check_conserved()
    assert (summary.energy_method, summary.energy_scope) == ("estimate", "gpu")
    spec = find_device("NVIDIA H200", 143771 << 20).spec
    assert spec is not None
    assert spec.tdp_watts is not None
    assert summary.avg_power_watts == pytest.approx(spec.tdp_watts * (0.15 + 0.85 * 0.5), rel=0.05)
    assert {row.energy_method for row in sweeps.rows() if row.energy_joules is not None} == {"estimate"}


def test_another_grid_intensity_generates_nothing_and_changes_the_emissions(
    plans: Any, sweeps: Sweeps, package: None, journal: Any
) -> None:
    first = sweeps.run(_plan(plans, _WORDS, gpus=0, config={"grid_gco2e_per_kwh": 400.0}))
    lines = journal()
    second = sweeps.run(_plan(plans, _WORDS, gpus=0, config={"grid_gco2e_per_kwh": 100.0}))
    assert journal() == lines
    assert first.total_energy_joules is not None
    joules = first.total_energy_joules + (first.idle_joules or 0.0)
    assert first.gco2e == pytest.approx(joules / 3.6e6 * 400.0)
    assert second.gco2e == pytest.approx(joules / 3.6e6 * 100.0)


def test_devices_are_served_to_prometheus_while_a_sweep_runs(
    plans: Any, sweeps: Sweeps, two_gpus: None
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/metrics"
    plan = _plan(plans, _WORDS * 4, seconds=0.5, in_flight=2)
    plan.telemetry, plan.tracking_enabled = Telemetry(prometheus_port=port), False
    seen: list[str] = []

    def scrape(driver: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any("device_energy_joules_total{" in text for text in seen):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as reply:
                seen.append(reply.read().decode())
            time.sleep(0.2)

    sweeps.run(plan, meanwhile=scrape)
    samples = [line for line in seen[-1].splitlines() if line.startswith("evalray_device")]
    watts = sorted(float(line.split()[-1]) for line in samples if "power_watts" in line)
    assert watts == [100.0, 200.0]
    assert sum('energy_method="hw_counter"' in line for line in samples) == 2
