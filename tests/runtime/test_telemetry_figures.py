"""Figures from what a sweep recorded, without the sweep: who is charged for what, over stretches and beside others."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from evalray.runtime.recording import EngineLife, Recorder
from evalray.runtime.telemetry_figures import figures_of_runs, is_overdue
from evalray.store import SweepStore
from evalray.telemetry import (
    Batch,
    ClockPair,
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    ModelShape,
    NodeInfo,
    Tick,
    model_shape,
)
from evalray.types import EvalRecord, Generation, RunConfig, Timeline

_GPU = DeviceInfo(
    "GPU-a", DeviceKind.GPU, "stub", 0, EnergyMethod.HW_COUNTER, EnergyScope.GPU, power_limit_watts=700.0
)
#: The node's monotonic clock begins here, in Unix seconds.
_WALL = 1e9
_WATTS = 100.0


def _shape(param_count_b: float = 1.0) -> ModelShape:
    found = model_shape(param_count_b=param_count_b).shape
    assert found is not None
    return found


class Recorded:
    """A sweep's directory, written as its driver would.  Times are monotonic seconds of the one node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stretch("s1")

    def stretch(self, name: str) -> None:
        """From now on another process of the sweep records."""
        self.recorder = Recorder(self.directory)
        self.recorder.stretch = name

    def ticks(self, start: float, end: float, *, node: str = "node", frozen_at: float = math.inf) -> None:
        """A GPU that draws 100 W, read ten times a second; its counter stands still from ``frozen_at`` on."""
        info = NodeInfo(node, (_GPU,), 0.1, ClockPair(start, _WALL + start))
        seconds = [start + k / 10 for k in range(round((end - start) * 10) + 1)]
        batch = [Tick(0, at, min(at, frozen_at) * _WATTS, _WATTS, *[None] * 7) for at in seconds]
        self.recorder.keep(0, info, Batch(batch, ClockPair(end, _WALL + end)))
        self.recorder.flush()

    def life(
        self, engine: str, runs: tuple[str, ...], ready: float, end: float = math.inf, **more: Any
    ) -> None:
        values = {"shape": _shape(), "judge": not runs, "stretch": self.recorder.stretch, **more}
        devices = values.pop("device_ids", (_GPU.device_id,))
        life = EngineLife(engine, "node", engine, _WALL + ready, devices, 1, runs, **values)
        self.recorder.engine(life)
        if math.isfinite(end):
            self.recorder.ended(life, _WALL + end)

    def run(
        self,
        model: str,
        engine: str,
        spans: list[tuple[float, float]],
        *,
        first: int = 0,
        moved: float = 0.0,
    ) -> None:
        """A run's answers, each between two instants; by a wall clock ``moved`` back."""
        with SweepStore.open(self.directory) as sweep:
            run = sweep.open_run(
                RunConfig("b", "jarvis-direct", model),
                fingerprint="f" * 32,
                scorer_fingerprint="s",
                num_records=9,
                info={},
            )
            for position, (start, end) in enumerate(spans, first):
                answer = generation(engine, start, end, moved)
                run.append_generation(position, 0, 1, EvalRecord(f"r{position}", "Q?", "a", "c"), answer)

    def figures(self, run: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.directory / run / "telemetry" / "run.json").read_text())
        return value


def generation(engine: str, start: float, end: float, moved: float = 0.0) -> Generation:
    line = Timeline(sent_at=_WALL + start - moved, sent_monotonic=start, latency_seconds=end - start)
    return Generation(
        model_answer="a",
        prompt_tokens=1,
        completion_tokens=101,
        timeline=line,
        engine_id=engine,
        node_id="node",
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "sweep")


def _conserved(ledger: dict[str, Any]) -> None:
    parts = ledger["attributed_joules"], ledger["judge_joules"], ledger["idle_joules"]
    assert math.fsum(parts) == pytest.approx(ledger["measured_joules"], rel=1e-9)
    assert math.fsum(ledger["engine_joules"].values()) == pytest.approx(math.fsum(parts[:2]), rel=1e-9)


def test_two_stretches_on_one_node_are_taken_for_themselves(recorded: Recorded) -> None:
    recorded.ticks(0, 20)
    recorded.life("m/0", ("b_m",), 0)  # killed: nobody wrote its end
    recorded.run("m", "m/0", [(5, 8), (8, 11)])
    recorded.stretch("s2")
    recorded.ticks(5000, 5020)
    recorded.life("m/0", ("b_m",), 5000, 5020)
    recorded.run("m", "m/0", [(5005, 5009)], first=2)
    assert figures_of_runs(recorded.directory, ["b_m"]) == ["b_m"]
    figures = recorded.figures("b_m")
    assert figures["seconds"] == pytest.approx(6 + 4)
    assert figures["energy_joules"] == pytest.approx(1000, rel=0.01)
    assert figures["avg_power_watts"] == pytest.approx(_WATTS)
    assert len(figures["devices"]) == 2
    for ledger in figures["devices"]:
        _conserved(ledger)
        assert ledger["measured_joules"] < 20 * _WATTS
    assert figures["steady"] is None


def test_a_clock_that_is_moved_back_during_the_run_moves_no_joule(recorded: Recorded) -> None:
    back = 3600.0
    for start, moved in ((0, 0.0), (10, back)):
        info = NodeInfo("node", (_GPU,), 0.1, ClockPair(start, _WALL + start - moved))
        ticks = [Tick(0, start + k / 10, (start + k / 10) * _WATTS, _WATTS, *[None] * 7) for k in range(100)]
        recorded.recorder.keep(0, info, Batch(ticks, ClockPair(start + 9.9, _WALL + start + 9.9 - moved)))
    recorded.recorder.flush()
    recorded.life("m/0", ("b_m",), 0)
    recorded.run("m", "m/0", [(2, 4), (5, 7)])
    recorded.run("m", "m/0", [(12, 16)], first=2, moved=back)
    figures_of_runs(recorded.directory, ["b_m"])
    figures = recorded.figures("b_m")
    assert figures["energy_joules"] == pytest.approx(8 * _WATTS, rel=0.01)
    assert figures["seconds"] == pytest.approx(14)
    assert figures["avg_power_watts"] == pytest.approx(_WATTS)


@pytest.mark.parametrize("skew", [-3.0, 0.0, 3.0])
def test_a_replica_that_moved_to_another_gpu_leaves_the_first_its_own_joules_whatever_the_clocks_say(
    recorded: Recorded, skew: float
) -> None:
    """``skew``: how far the driver's clock, which dates the lives, is ahead of the node's."""
    other = dataclasses.replace(_GPU, device_id="GPU-b", index=1)
    ticks = [
        Tick(device, k / 10, k / 10 * _WATTS, _WATTS, *[None] * 7) for k in range(300) for device in (0, 1)
    ]
    info = NodeInfo("node", (_GPU, other), 0.1, ClockPair(0, _WALL))
    recorded.recorder.keep(0, info, Batch(ticks, ClockPair(30, _WALL + 30)))
    recorded.recorder.flush()
    recorded.life("m/0", ("b_m",), 1 + skew, placed_monotonic=0.5)
    recorded.life("m/0", ("b_m",), 14 + skew, placed_monotonic=13.0, device_ids=("GPU-b",))
    recorded.run("m", "m/0", [(2, 5), (5, 12), (14.5, 16), (16, 20)])
    figures_of_runs(recorded.directory, ["b_m"])
    joules = {each["device_id"]: each["attributed_joules"] for each in recorded.figures("b_m")["devices"]}
    assert joules == {"GPU-a": pytest.approx(1000, rel=0.02), "GPU-b": pytest.approx(550, rel=0.02)}


def test_engines_beside_are_charged_within_the_time_of_the_run_alone(recorded: Recorded) -> None:
    recorded.ticks(0, 200)
    recorded.life("m/0", ("b_m",), 0, 100)
    recorded.life("x/0", ("b_x",), 0, 200)
    recorded.run("m", "m/0", [(50, 60)])
    recorded.run("x", "x/0", [(1, 4), (50, 60), (150, 190)])
    figures_of_runs(recorded.directory, ["b_m"])
    [ledger] = recorded.figures("b_m")["devices"]
    _conserved(ledger)
    assert ledger["engine_joules"] == {key: pytest.approx(500, rel=0.03) for key in ("m/0", "x/0")}
    assert recorded.figures("b_m")["energy_joules"] == pytest.approx(500, rel=0.03)
    assert not (recorded.directory / "b_x" / "telemetry").exists()


def test_a_judge_on_the_device_has_a_part_of_its_own(recorded: Recorded) -> None:
    recorded.ticks(0, 30)
    recorded.life("m/0", ("b_m",), 0, 30)
    recorded.life("judge:j/0", (), 0)
    recorded.run("m", "m/0", [(5, 15)])
    recorded.recorder.judged([generation("judge:j/0", 5, 15), generation("judge:j/0", 15, 20)])
    figures_of_runs(recorded.directory, ["b_m"])
    [ledger] = recorded.figures("b_m")["devices"]
    _conserved(ledger)
    assert ledger["attributed_joules"] == pytest.approx(500, rel=0.03)
    assert ledger["judge_joules"] == ledger["engine_joules"]["judge:j/0"] == pytest.approx(500 + 90, rel=0.03)


def test_a_judge_that_was_asked_nothing_meanwhile_changes_nothing(recorded: Recorded) -> None:
    recorded.ticks(0, 30)
    recorded.life("m/0", ("b_m",), 0, 30)
    recorded.run("m", "m/0", [(5, 15)])
    figures_of_runs(recorded.directory, ["b_m"])
    alone = recorded.figures("b_m")["devices"][0]
    recorded.life("judge:j/0", (), 0, shape=None)
    figures_of_runs(recorded.directory, ["b_m"])
    [ledger] = recorded.figures("b_m")["devices"]
    assert (ledger["weight"], ledger["judge_joules"]) == ("flops", 0.0)
    assert ledger["attributed_joules"] == alone["attributed_joules"]


def test_an_answer_is_of_the_engine_that_worked_for_its_run(recorded: Recorded) -> None:
    """Two deployments of one model may have replicas of the same name."""
    recorded.ticks(0, 30)
    recorded.life("m/0", ("b_m",), 0, 30)
    recorded.life("m/0", ("b_n",), 1, 30, shape=_shape(3.0))
    recorded.run("m", "m/0", [(5, 15)])
    recorded.run("n", "m/0", [(5, 15)])
    figures_of_runs(recorded.directory, ["b_m", "b_n"])
    joules = [recorded.figures(run)["energy_joules"] for run in ("b_m", "b_n")]
    assert joules == pytest.approx([250, 750], rel=0.03)


@pytest.mark.parametrize("with_ticks", [True, False])
def test_figures_are_overdue_until_they_are_worked_out_of_all_that_is_journaled(
    recorded: Recorded, with_ticks: bool
) -> None:
    recorded.run("m", "m/0", [(5, 8)])
    assert not is_overdue(recorded.directory, "b_m"), "no engine of record worked for it"
    if with_ticks:
        recorded.ticks(0, 20)
    recorded.life("m/0", ("b_m",), 0)
    assert is_overdue(recorded.directory, "b_m")
    assert figures_of_runs(recorded.directory, ["b_m"]) == (["b_m"] if with_ticks else [])
    assert is_overdue(recorded.directory, "b_m") is not with_ticks
    if with_ticks:
        recorded.run("m", "m/0", [(9, 11)], first=1)
        assert is_overdue(recorded.directory, "b_m")


def test_figures_are_provisional_while_others_work_on_the_device_and_made_up_for_after(
    recorded: Recorded,
) -> None:
    recorded.ticks(0, 30)
    recorded.life("m/0", ("b_m",), 0, 16)
    recorded.life("x/0", ("b_x",), 0)  # still at work; its long request is not journaled yet
    recorded.run("m", "m/0", [(5, 15)])
    figures_of_runs(recorded.directory, ["b_m"], stretch="s1")
    assert recorded.figures("b_m")["provisional"]
    assert is_overdue(recorded.directory, "b_m"), "whoever continues a killed sweep works them out again"
    recorded.run("x", "x/0", [(5, 15)])
    recorded.stretch("s2")
    figures_of_runs(recorded.directory, ["b_m"], stretch="s2")
    assert not recorded.figures("b_m")["provisional"]
    assert not is_overdue(recorded.directory, "b_m")
    assert recorded.figures("b_m")["energy_joules"] == pytest.approx(500, rel=0.03)


def test_a_run_whose_counter_stood_still_says_why_it_has_no_joules(recorded: Recorded) -> None:
    recorded.ticks(0, 20, frozen_at=0)
    recorded.life("m/0", ("b_m",), 0, 20)
    recorded.run("m", "m/0", [(5, 8)])
    figures_of_runs(recorded.directory, ["b_m"])
    figures = recorded.figures("b_m")
    assert figures["energy_joules"] is None
    assert (
        figures["energy_reason"] == "no request was in a valid window: the energy counter stood still (8.9 s)"
    )


@pytest.mark.parametrize(("frozen_at", "warned"), [(9.5, False), (7.0, True)])
def test_much_time_that_was_not_validly_measured_is_warned_of(
    recorded: Recorded, frozen_at: float, warned: bool
) -> None:
    recorded.ticks(0, 20, frozen_at=frozen_at)
    recorded.life("m/0", ("b_m",), 0, 20)
    recorded.run("m", "m/0", [(2, 10)])
    figures_of_runs(recorded.directory, ["b_m"])
    figures = recorded.figures("b_m")
    assert figures["energy_joules"] == pytest.approx((frozen_at - 2) * _WATTS, rel=0.03)
    assert figures["energy_reason"] is None
    warnings = [line for line in figures["warnings"] if "validly measured" in line]
    assert bool(warnings) is warned
    if warned:
        assert warnings[0].startswith("3.0 s of 8.0 s of its devices were not validly measured")


def test_figures_worked_out_again_are_the_same(recorded: Recorded) -> None:
    recorded.ticks(0, 20)
    recorded.life("m/0", ("b_m",), 0, 20)
    recorded.run("m", "m/0", [(5, 8), (7, 12)])
    figures_of_runs(recorded.directory, ["b_m"])
    before = recorded.figures("b_m")
    figures_of_runs(recorded.directory, ["b_m"])
    assert recorded.figures("b_m") == before
