"""From the stub NVML through the real pynvml, the sampler and the attribution to the figures of a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from evalray.telemetry import ModelShape, Peak
from evalray.telemetry.analysis import NodeAnalysis, analyse
from evalray.telemetry.meters import nvidia_meters
from evalray.telemetry.requests import EngineUse, RequestColumns, RequestLog
from evalray.telemetry.sampler import NodeSampler
from evalray.telemetry.series import columns
from evalray.telemetry.update_period import observe_counters
from evalray.telemetry.windows import DeviceSeries, node_series
from evalray.telemetry.work import TokenCost, stretches

Load = Callable[[Sequence[dict[str, Any]]], Any]


@pytest.fixture
def shape(shape_named: Callable[[str], ModelShape]) -> ModelShape:
    return shape_named("Llama-3.1-8B")


def _record(load: Load, scripts: Sequence[dict[str, Any]], seconds: float) -> dict[str, DeviceSeries]:
    clock = load([{"period": 0.1, **script} for script in scripts])
    sampler = NodeSampler(nvidia_meters(), node_id="n", tick_seconds=0.1, watch_seconds=0, clock=clock.now)
    return _run(sampler, clock, seconds)


def _run(sampler: NodeSampler, clock: Any, seconds: float) -> dict[str, DeviceSeries]:
    """Samples until ``seconds``, woken a little late each time as on a real machine."""
    rng = np.random.default_rng(7)
    clock.set(0.0337)
    while clock.now() < seconds:
        clock.advance(sampler.step() * rng.uniform(1.0, 1.03) + rng.uniform(0, 0.0005))
    return node_series(sampler.node, columns(sampler.drain().ticks))


def _schedule(concurrency: int, seconds: float, seed: int = 1) -> RequestLog:
    """``concurrency`` slots, each with one request of 2 to 6 s after another."""
    rng, log = np.random.default_rng(seed), RequestLog()
    for _ in range(concurrency):
        at = 2.0 + rng.uniform(0, 2)
        while at < seconds - 8:
            prompt, took = int(rng.integers(50, 600)), rng.uniform(2, 6)
            prefill = 0.05 + prompt / 600
            log.add(
                0,
                sent=at,
                first_token=at + prefill,
                end=at + prefill + took,
                prompt_tokens=prompt,
                output_tokens=int(took * 40),
            )
            at += prefill + took + 0.05
    return log


def _truth(
    requests: RequestColumns, shape: ModelShape, seconds: float
) -> tuple[list[tuple[float, float]], np.ndarray]:
    """A power curve that follows the work, exactly, and each request's part of its energy."""
    work = stretches(requests, np.arange(len(requests)), TokenCost.of(shape))
    edges = np.unique(np.concatenate((np.arange(0, seconds, 0.05), work.start, work.end)))
    edges = edges[np.concatenate(([True], np.diff(edges) > 1e-7))]
    low = np.maximum(edges[:-1], work.start[:, None])
    high = np.minimum(edges[1:], work.end[:, None])
    rate = work.flops_rate[:, None] + work.flops_slope[:, None] * ((low + high) / 2 - work.start[:, None])
    flops = np.zeros((len(requests), len(edges) - 1))
    np.add.at(flops, work.request, np.maximum(high - low, 0.0) * rate)
    span, total = np.diff(edges), flops.sum(axis=0)
    watts = _BASE_WATTS + 500.0 * (total / span) / (total / span).max()
    share = np.divide(flops, total, out=np.zeros_like(flops), where=total > 0)
    return list(zip(edges[:-1].tolist(), watts.tolist(), strict=True)), (share * watts * span).sum(axis=1)


#: Just enough that the counter moves while nothing runs.
_BASE_WATTS = 5.0


@pytest.mark.parametrize("concurrency", [1, 8, 64])
@pytest.mark.parametrize("period", [0.0, 0.02, 0.05, 0.1])
def test_a_sample_gets_its_true_share_within_three_percent(
    stub_devices: Load,
    shape: ModelShape,
    monkeypatch: pytest.MonkeyPatch,
    concurrency: int,
    period: float,
) -> None:
    """Power follows the scripted work; prefill draws several times what decoding does."""
    requests = _schedule(concurrency, 40.0).columns()
    power, true = _truth(requests, shape, 40.0)
    clock = stub_devices([{"period": period, "power": power, "limit_watts": 700}])
    monkeypatch.setattr(
        "evalray.telemetry.sampler.observe_counters",
        lambda counters, **options: observe_counters(counters, **options, sleep=clock.advance),
    )
    sampler = NodeSampler(nvidia_meters(), node_id="n", clock=clock.now)
    series = _run(sampler, clock, 40.0)
    done = analyse(series, requests, [EngineUse("e", tuple(series), shape)])
    assert np.abs(done.figures.energy_joules / true - 1).max() < 0.03
    assert not done.figures.low_resolution.any()
    assert done.figures.energy_coverage == pytest.approx(1.0)
    _check_conserved(done)


def _check_conserved(done: NodeAnalysis) -> None:
    given = math.fsum(done.figures.energy_joules[np.isfinite(done.figures.energy_joules)])
    idle = math.fsum(ledger.idle_joules or 0.0 for ledger in done.ledgers)
    measured = math.fsum(ledger.measured_joules or 0.0 for ledger in done.ledgers)
    assert given + idle == pytest.approx(measured, rel=1e-9)


@pytest.mark.parametrize("concurrency", [1, 8, 64])
@pytest.mark.parametrize(
    "trouble",
    [
        {},
        {"lost_at": 15.0},
        {"lost_at": 15.0, "back_at": 20.0, "reset_at": 18.0},
        {"freeze_at": 10.0, "freeze_until": 16.0},
        {"jump_at": 12.0, "jump_mj": 5e7},
        {"no_counter": 1},
    ],
)
def test_joules_add_up_over_two_gpus_with_engines_that_share_one(
    stub_devices: Load, shape: ModelShape, concurrency: int, trouble: dict[str, Any]
) -> None:
    scripts = [
        {"power": [(0, 90.0), (2, 400.0), (25, 500.0)]},
        {"power": [(0, 120.0), (2, 350.0)], **trouble},
    ]
    series = _record(stub_devices, scripts, 35.0)
    first, second = series
    requests = _schedule(concurrency, 35.0).columns()
    requests.engine[1::2] = 1
    engines = [EngineUse("tp", (first, second), shape, devices=2), EngineUse("other", (second,), shape)]
    done = analyse(series, requests, engines)
    _check_conserved(done)
    good, troubled = done.ledgers
    assert set(good.invalid_seconds) <= {"edge"}
    if trouble and "no_counter" not in trouble:
        assert set(troubled.invalid_seconds) - {"edge"}
        assert done.figures.energy_coverage.min() < 1.0


def test_the_row_says_how_each_figure_came_about(stub_devices: Load, shape: ModelShape, h100: Peak) -> None:
    series = _record(stub_devices, [{"power": [(0, 300.0)], "utilization": 80}], 20.0)
    log = RequestLog()
    log.add(0, sent=5.0, first_token=6.0, end=10.0, prompt_tokens=100, output_tokens=200)
    log.add(0, sent=11.0, first_token=11.1, end=11.3, prompt_tokens=100, output_tokens=20)
    done = analyse(series, log.columns(), [EngineUse("e", tuple(series), shape, h100)])
    row, short = done.figures.row(0), done.figures.row(1)
    assert row["energy_method"] == "hw_counter"
    assert row["energy_scope"] == "gpu"
    assert row["telemetry_version"] == 1
    assert row["power_watts"] == pytest.approx(300.0, rel=0.005)
    assert row["energy_window_joules"] == pytest.approx(1500.0, rel=0.005)
    assert row["energy_joules"] == pytest.approx(1500.0, rel=0.05)
    assert row["energy_joules"] == row["prefill_energy_joules"] + row["decode_energy_joules"]
    assert row["gpu_energy_joules"] == row["energy_joules"]
    assert row["cpu_energy_joules"] is None
    assert row["gpu_utilization_pct"] == pytest.approx(80.0)
    assert 0 < row["mfu_pct"] < row["mbu_pct"] < 100
    assert row["flops"] == row["prefill_flops"] + row["decode_flops"]
    assert (row["energy_low_resolution"], short["energy_low_resolution"]) == (False, True)


def test_without_a_meter_there_are_no_joules_and_there_is_mfu(
    stub_devices: Load, shape: ModelShape, h100: Peak
) -> None:
    log = _schedule(2, 20.0)
    series = _record(stub_devices, [{"power": [(0, 300.0)], "mig": 1}], 20.0)
    for known, method in ((series, "none"), ({}, "none")):
        done = analyse(known, log.columns(), [EngineUse("e", tuple(known), shape, h100)])
        row = done.figures.row(0)
        measured = ("energy_joules", "power_watts", "energy_window_joules", "prefill_energy_joules")
        assert [row[name] for name in measured] == [None] * 4
        assert row["energy_method"] == method
        assert row["mfu_pct"] > 0
        assert done.figures.basis[0].reason
        run = done.run(np.arange(len(log)), 2)
        assert run is not None
        assert (run.energy_joules, run.idle_joules, run.peak_power_watts) == (None, None, None)
        assert run.mfu_pct is not None


def test_a_run_has_its_own_requests_and_the_idle_between_them(
    stub_devices: Load, shape: ModelShape, h100: Peak
) -> None:
    series = _record(stub_devices, [{"power": [(0, 100.0), (5, 400.0), (8, 100.0), (12, 500.0)]}], 30.0)
    log = RequestLog()
    log.add(0, sent=5.0, first_token=5.5, end=8.0, prompt_tokens=100, output_tokens=100)
    log.add(0, sent=12.0, first_token=12.5, end=15.0, prompt_tokens=100, output_tokens=100)
    log.add(0, sent=16.0, first_token=16.5, end=19.0, prompt_tokens=100, output_tokens=100)
    done = analyse(series, log.columns(), [EngineUse("e", tuple(series), shape, h100)])
    run = done.run(np.array([0, 1]), 1)
    assert run is not None
    assert run.energy_joules == pytest.approx(3 * 400 + 3 * 500, rel=0.03)
    assert run.idle_joules == pytest.approx(4 * 100, rel=0.1)
    assert run.device_joules == pytest.approx(run.energy_joules + run.idle_joules, rel=0.03)
    assert run.peak_power_watts == pytest.approx(500.0)
    assert run.seconds == pytest.approx(10.0)
    assert done.run(np.array([], dtype=int), 1) is None


def test_the_peak_of_a_device_with_a_counter_only_is_that_of_its_windows(
    stub_devices: Load, shape: ModelShape, h100: Peak
) -> None:
    power = [(0, 100.0), (5, 400.0), (8, 100.0)]
    series = _record(stub_devices, [{"power": power, "no_power": 1, "no_instant": 1}], 20.0)
    (device,) = series.values()
    assert not np.isfinite(device.power_watts).any()
    log = RequestLog()
    log.add(0, sent=4.0, first_token=4.5, end=9.0, prompt_tokens=100, output_tokens=100)
    run = analyse(series, log.columns(), [EngineUse("e", tuple(series), shape, h100)]).run(np.array([0]), 1)
    assert run is not None
    assert run.peak_power_watts == pytest.approx(400.0, rel=0.05)


def test_a_request_in_the_blind_has_no_joules(stub_devices: Load, shape: ModelShape) -> None:
    series = _record(stub_devices, [{"power": [(0, 300.0)], "lost_at": 10.0}], 30.0)
    log = RequestLog()
    for sent in (2.0, 8.0, 20.0):
        log.add(0, sent=sent, first_token=sent + 1, end=sent + 4, prompt_tokens=9, output_tokens=9)
    rows = [
        analyse(series, log.columns(), [EngineUse("e", tuple(series), shape)]).figures.row(k)
        for k in range(3)
    ]
    assert rows[0]["energy_joules"] == pytest.approx(1200, rel=0.05)
    assert rows[1]["energy_coverage"] == pytest.approx(0.5, abs=0.05)
    assert rows[2]["energy_joules"] is None
    assert rows[2]["energy_coverage"] == 0.0
