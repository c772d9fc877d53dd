"""Peaks and parameter counts that are given, or measured, after the replica they are of has ended."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evalray.engines.base import EngineConfig
from evalray.plan import Deployment, PlannedRun
from evalray.runtime import engine_facts
from evalray.runtime.engine_facts import learn_later, parameter_counts, peak_of, shape_of
from evalray.runtime.recording import EngineLife, Recorder, read_engines
from evalray.runtime.telemetry_figures import figures_of_runs, is_overdue
from evalray.store import SweepStore
from evalray.telemetry import Batch, ClockPair, NodeInfo, PeakSource, ProbeResult, read_clocks
from evalray.types import EvalRecord, Generation, RunConfig, Timeline

_PROBE = ProbeResult("CPU", "cpu", 2, "fp32", 5e11, 1.0, 9, 4e10, 2.0, 9, 1 << 28, None, "2026-01-01")
_SUITE = {"gpu_peak_tflops": 2.0, "gpu_peak_bandwidth_gb_s": 100.0}


def _deployment(**figures: Any) -> Deployment:
    run = cast("PlannedRun", SimpleNamespace(config=SimpleNamespace(metadata=figures)))
    return Deployment("m", EngineConfig("m", "llamacpp"), runs=[run])


class Finished:
    """A sweep of one run on a processor without a meter, that an earlier process has finished."""

    def __init__(self, directory: Path, clock: ClockPair, **figures: Any) -> None:
        self.directory = directory
        deployment, recorder = _deployment(**figures), Recorder(directory)
        recorder.stretch = "earlier"
        node = NodeInfo("node", (), 0.0, clock)
        recorder.keep(0, node, Batch([], clock))
        recorder.flush()
        shape = shape_of(deployment)
        total, active = parameter_counts(deployment, shape.shape)
        self.life = EngineLife(
            "m/0", "node", "m", clock.wall_seconds, (), 1, ("b_m",),
            shape=shape.shape, shape_reason=shape.reason, peak=peak_of(deployment, node, (), "bf16"),
            param_count_b=total, active_params_b=active, stretch="earlier",
        )  # fmt: skip
        recorder.engine(self.life)
        recorder.ended(self.life, clock.wall_seconds + 60.0)
        with SweepStore.open(directory) as sweep:
            run = sweep.open_run(
                RunConfig("b", "jarvis-direct", "m"),
                fingerprint="f" * 32,
                scorer_fingerprint="s",
                num_records=1,
                info={},
            )
            answer = Generation(
                model_answer="a",
                prompt_tokens=11,
                completion_tokens=11,
                timeline=Timeline(sent_at=clock.wall_seconds + 1.0, latency_seconds=1.0),
                engine_id="m/0",
                node_id="node",
            )
            run.append_generation(0, 0, 1, EvalRecord("r0", "Q?", "a", "c"), answer)
        self.work_out()

    def learn(self, *, local: bool = True, **figures: Any) -> EngineLife:
        recorder = Recorder(self.directory)
        learn_later(self.directory, recorder, "b_m", _deployment(**figures), local=local)
        [life] = read_engines(self.directory)
        return life

    def work_out(self) -> None:
        assert figures_of_runs(self.directory, ["b_m"]) == ["b_m"]

    def mfu(self) -> float | None:

        figures = json.loads((self.directory / "b_m" / "telemetry" / "run.json").read_text())
        value: float | None = figures["mfu_pct"]
        return value


@pytest.fixture
def _probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """``evalray hardware probe`` was run here since."""
    monkeypatch.setattr(engine_facts, "kept_probes", lambda _: {"cpu": _PROBE})


def test_peaks_given_later_count_and_the_end_of_the_replica_stays(tmp_path: Path) -> None:
    sweep = Finished(tmp_path / "sweep", read_clocks(), param_count_b=1.0)
    assert sweep.mfu() is None
    life = sweep.learn(param_count_b=1.0, **_SUITE)
    assert life.peak is not None
    assert (life.peak.flops_per_second, life.peak.flops_source) == (2e12, PeakSource.SUITE)
    assert math.isfinite(life.ended_at)
    assert is_overdue(sweep.directory, "b_m")
    sweep.work_out()
    # 2 x 1e9 x (11 + 10) FLOPs in a second of 2e12: the first token comes out of the prompt.
    assert sweep.mfu() == pytest.approx(100 * 2e9 * 21 / 2e12, rel=1e-6)
    assert not is_overdue(sweep.directory, "b_m")


def test_other_peaks_replace_those_that_the_suite_gave_and_the_same_change_nothing(tmp_path: Path) -> None:
    sweep = Finished(tmp_path / "sweep", read_clocks(), param_count_b=1.0, **_SUITE)
    sweep.learn(param_count_b=1.0, **_SUITE)
    assert not is_overdue(sweep.directory, "b_m")
    sweep.learn(param_count_b=1.0, **{**_SUITE, "gpu_peak_tflops": 4.0})
    assert is_overdue(sweep.directory, "b_m")
    sweep.work_out()
    assert sweep.mfu() == pytest.approx(100 * 2e9 * 21 / 4e12, rel=1e-6)


def test_a_parameter_count_given_later_is_a_shape(tmp_path: Path) -> None:
    sweep = Finished(tmp_path / "sweep", read_clocks(), **_SUITE)
    assert sweep.life.shape is None
    assert sweep.learn(param_count_b=3.0, **_SUITE).param_count_b == 3.0
    sweep.work_out()
    assert sweep.mfu() == pytest.approx(100 * 6e9 * 21 / 2e12, rel=1e-6)


@pytest.mark.usefixtures("_probed")
@pytest.mark.parametrize("local", [True, False])
def test_a_probe_made_later_counts_on_the_machine_that_is_the_cluster(tmp_path: Path, local: bool) -> None:
    sweep = Finished(tmp_path / "sweep", read_clocks(), param_count_b=1.0)
    life = sweep.learn(local=local, param_count_b=1.0)
    assert life.peak is not None
    assert life.peak.flops_per_second == (5e11 if local else None)
    assert is_overdue(sweep.directory, "b_m") is local


@pytest.mark.usefixtures("_probed")
def test_a_probe_of_this_machine_is_not_that_of_the_one_the_sweep_ran_on(tmp_path: Path) -> None:
    other = read_clocks()
    other = other._replace(monotonic_seconds=other.monotonic_seconds + 60.0)
    life = Finished(tmp_path / "sweep", other, param_count_b=1.0).learn(param_count_b=1.0)
    assert life.peak is not None
    assert life.peak.flops_per_second is None


@pytest.mark.usefixtures("_probed")
def test_a_newer_probe_does_not_change_what_an_earlier_one_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Finished(tmp_path / "sweep", read_clocks(), param_count_b=1.0)
    sweep.learn(param_count_b=1.0)
    sweep.work_out()
    newer = replace(_PROBE, flops_per_second=9e11)
    monkeypatch.setattr(engine_facts, "kept_probes", lambda _: {"cpu": newer})
    life = sweep.learn(param_count_b=1.0)
    assert life.peak is not None
    assert life.peak.flops_per_second == 5e11
    assert not is_overdue(sweep.directory, "b_m")
