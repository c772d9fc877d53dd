"""Joules are conserved, and shared by the work done."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.telemetry import ModelShape, decode_flops, prefill_flops, shape_of_config
from evalray.telemetry.attribution import Attribution, attribute
from evalray.telemetry.meters import DeviceInfo, DeviceKind, EnergyMethod, EnergyScope
from evalray.telemetry.requests import EngineUse, RequestColumns, RequestLog
from evalray.telemetry.windows import DeviceWindows, Fault

_GPU = DeviceKind.GPU


def _shape(layers: int, window: int | None = None) -> ModelShape:
    found = shape_of_config(
        {
            "model_type": "mistral" if window else "llama",
            "num_hidden_layers": layers,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "intermediate_size": 8192,
            "vocab_size": 32000,
            "torch_dtype": "bfloat16",
            **({"sliding_window": window} if window else {}),
        }
    )
    assert found.shape is not None
    return found.shape


_SMALL, _LARGE, _WINDOWED = _shape(4), _shape(60), _shape(16, 512)


def _windows(
    device_id: str, joules: list[float], *, span: float = 0.1, faults: dict[int, Fault] | None = None
) -> DeviceWindows:
    info = DeviceInfo(device_id, _GPU, "stub", 0, EnergyMethod.HW_COUNTER, EnergyScope.GPU)
    borders = np.arange(len(joules) + 1) * span
    fault = np.zeros(len(joules), np.int8)
    for index, cause in (faults or {}).items():
        fault[index] = cause
    return DeviceWindows(info, borders[:-1], borders[1:], np.where(fault == 0, joules, 0.0), fault)


def _energy(done: Attribution) -> np.ndarray:
    return done.shares.prefill_joules[_GPU] + done.shares.decode_joules[_GPU]


def _check_conserved(done: Attribution, devices: dict[str, DeviceWindows]) -> None:
    given_out = math.fsum(_energy(done))
    idle = math.fsum(ledger.idle_joules or 0.0 for ledger in done.ledgers)
    measured = math.fsum(math.fsum(each.joules[each.valid]) for each in devices.values())
    assert given_out + idle == pytest.approx(measured, rel=1e-9, abs=1e-12)
    for ledger in done.ledgers:
        if ledger.measured_joules is not None:
            parts = (ledger.attributed_joules or 0.0) + (ledger.idle_joules or 0.0)
            assert parts == pytest.approx(ledger.measured_joules, rel=1e-9, abs=1e-12)


def _schedule(
    rng: np.random.Generator, count: int, concurrency: int, engines: int, span: float
) -> RequestColumns:
    """``count`` requests of which about ``concurrency`` run at once within ``span`` seconds."""
    log = RequestLog()
    length = span * concurrency / count
    for _ in range(count):
        sent = rng.uniform(-0.1 * span, span)
        took = length * rng.exponential()
        start = sent + took * rng.uniform(0, 0.3) * rng.integers(0, 2)
        log.add(
            int(rng.integers(engines)),
            sent=sent,
            prefill_start=start,
            first_token=None if rng.random() < 0.1 else start + took * rng.uniform(0, 0.5),
            end=sent + took,
            prompt_tokens=int(rng.integers(0, 3000)),
            cached_tokens=int(rng.integers(0, 3000)) * int(rng.integers(0, 2)),
            output_tokens=int(rng.integers(0, 2000)),
        )
    return log.columns()


@pytest.mark.parametrize("concurrency", [1, 8, 64])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), windows=st.integers(1, 700))
def test_joules_add_up_whatever_the_schedule(concurrency: int, seed: int, windows: int) -> None:
    rng = np.random.default_rng(seed)
    devices = {}
    for name in ("a", "b", "c"):
        joules = (rng.exponential(30, windows) * rng.integers(0, 4, windows)).tolist()
        broken = {int(k): Fault(int(rng.integers(1, 7))) for k in rng.integers(0, windows, windows // 10)}
        devices[name] = _windows(name, joules, faults=broken)
    engines = [
        EngineUse("tensor-parallel", ("a", "b"), _LARGE, devices=2),
        EngineUse("alone", ("c",), _WINDOWED),
        EngineUse("shares b", ("b",), _SMALL),
        EngineUse("shares c", ("c",), None if rng.random() < 0.3 else _SMALL),
        EngineUse("remote"),
    ]
    requests = _schedule(rng, 3 * concurrency + 5, concurrency, len(engines), windows * 0.1)
    done = attribute(requests, engines, devices)
    _check_conserved(done, devices)
    assert (_energy(done) >= 0).all()
    assert not _energy(done)[requests.engine == 4].any()
    given_seconds = math.fsum(done.shares.gpu_seconds)
    assert given_seconds <= 3 * windows * 0.1 * (1 + 1e-9)


def test_shares_are_the_flops_done_in_each_window() -> None:
    """Against the formula written out, with work summed token by token."""
    log = RequestLog()
    log.add(0, sent=0.0, first_token=0.2, end=1.2, prompt_tokens=100, output_tokens=101)
    log.add(0, sent=0.35, first_token=0.5, end=1.0, prompt_tokens=300, cached_tokens=200, output_tokens=51)
    joules = [float(10 + k) for k in range(15)]
    done = attribute(log.columns(), [EngineUse("e", ("a",), _LARGE)], {"a": _windows("a", joules)})

    def work(start: float, first: float, end: float, prompt: int, cached: int, output: int, k: int) -> float:
        low, high = 0.1 * k, 0.1 * (k + 1)
        share = max(0.0, min(high, first) - max(low, start)) / (first - start)
        total = share * prefill_flops(_LARGE, prompt - cached, cached)
        pace = (output - 1) / (end - first)
        for token in range(output - 1):
            began, ended = first + token / pace, first + (token + 1) / pace
            part = max(0.0, min(high, ended) - max(low, began)) * pace
            total += part * decode_flops(_LARGE, prompt + 1 + token)
        return total

    expected = [0.0, 0.0]
    for k, energy in enumerate(joules):
        done_by = [work(0.0, 0.2, 1.2, 100, 0, 101, k), work(0.35, 0.5, 1.0, 300, 200, 51, k)]
        for i in (0, 1):
            expected[i] += energy * done_by[i] / sum(done_by) if sum(done_by) else 0.0
    assert _energy(done) == pytest.approx(expected, rel=1e-6)
    assert done.ledgers[0].idle_joules == pytest.approx(sum(joules[12:]))


def test_a_request_alone_gets_all_that_its_windows_measured() -> None:
    log = RequestLog()
    log.add(0, sent=0.2, first_token=0.3, end=0.6, prompt_tokens=10, output_tokens=10)
    done = attribute(log.columns(), [EngineUse("e", ("a",), _SMALL)], {"a": _windows("a", [5.0] * 10)})
    assert _energy(done) == pytest.approx([20.0])
    assert done.ledgers[0].idle_joules == pytest.approx(30.0)
    assert done.ledgers[0].idle_seconds == pytest.approx(0.6)


def test_concurrency_does_not_multiply_energy() -> None:
    """Eight requests at once on 100 W for a second: 100 J together, not 800."""
    log = RequestLog()
    for _ in range(8):
        log.add(0, sent=0.0, first_token=0.2, end=1.0, prompt_tokens=10, output_tokens=10)
    done = attribute(log.columns(), [EngineUse("e", ("a",), _SMALL)], {"a": _windows("a", [10.0] * 10)})
    assert _energy(done) == pytest.approx([12.5] * 8)
    assert done.shares.gpu_seconds == pytest.approx([0.125] * 8)


def test_a_cached_prompt_costs_what_was_computed_of_it() -> None:
    log = RequestLog()
    log.add(0, sent=0.0, first_token=0.5, end=0.5, prompt_tokens=1000, cached_tokens=900, output_tokens=1)
    log.add(0, sent=0.0, first_token=0.5, end=0.5, prompt_tokens=1000, output_tokens=1)
    done = attribute(log.columns(), [EngineUse("e", ("a",), _LARGE)], {"a": _windows("a", [10.0] * 5)})
    cached, whole = _energy(done)
    assert cached / whole == pytest.approx(
        prefill_flops(_LARGE, 100, 900) / prefill_flops(_LARGE, 1000), rel=1e-9
    )


def test_an_engine_on_two_gpus_sums_both() -> None:
    log = RequestLog()
    log.add(0, sent=0.0, first_token=0.2, end=1.0, prompt_tokens=10, output_tokens=10)
    devices = {"a": _windows("a", [3.0] * 10), "b": _windows("b", [7.0] * 10)}
    done = attribute(log.columns(), [EngineUse("e", ("a", "b"), _SMALL, devices=2)], devices)
    assert _energy(done) == pytest.approx([100.0])
    assert done.shares.gpu_seconds == pytest.approx([2.0])


def test_engines_that_share_a_gpu_share_by_work() -> None:
    log = RequestLog()
    for engine in (0, 1):
        log.add(engine, sent=0.0, first_token=0.5, end=1.0, prompt_tokens=64, output_tokens=64)
    engines = [EngineUse("judge", ("a",), _SMALL), EngineUse("candidate", ("a",), _LARGE)]
    done = attribute(log.columns(), engines, {"a": _windows("a", [10.0] * 10)})
    assert math.fsum(_energy(done)) == pytest.approx(100.0)
    small, large = done.shares.decode_joules[_GPU]
    assert large / small == pytest.approx(decode_flops(_LARGE, 96) / decode_flops(_SMALL, 96), rel=1e-3)


def test_where_one_model_is_unknown_all_on_its_gpu_are_weighed_by_tokens() -> None:
    log = RequestLog()
    for engine, tokens in ((0, 31), (1, 91)):
        log.add(
            engine, sent=0.0, first_token=0.0, end=1.0, prompt_tokens=1, cached_tokens=0, output_tokens=tokens
        )
    engines = [EngineUse("unknown", ("a",), None), EngineUse("known", ("a",), _LARGE)]
    done = attribute(log.columns(), engines, {"a": _windows("a", [12.0] * 10)})
    assert done.ledgers[0].weight == "tokens"
    decode = done.shares.decode_joules[_GPU]
    assert decode[1] / decode[0] == pytest.approx(3.0)


def test_invalid_windows_are_charged_to_nobody_and_counted_in_seconds() -> None:
    log = RequestLog()
    log.add(0, sent=0.0, first_token=0.5, end=1.0, prompt_tokens=10, output_tokens=10)
    faults = {3: Fault.RESET, 4: Fault.LOST, 5: Fault.LOST}
    windows = _windows("a", [10.0] * 10, faults=faults)
    done = attribute(log.columns(), [EngineUse("e", ("a",), _SMALL)], {"a": windows})
    assert _energy(done) == pytest.approx([70.0])
    assert done.ledgers[0].invalid_seconds == pytest.approx({"reset": 0.1, "lost": 0.2})
    assert done.shares.gpu_seconds == pytest.approx([1.0])


def test_a_device_without_one_valid_window_has_no_joules_at_all() -> None:
    faults = dict.fromkeys(range(10), Fault.NO_METER)
    ledger = attribute(RequestLog().columns(), [], {"a": _windows("a", [1.0] * 10, faults=faults)}).ledgers[0]
    assert (ledger.measured_joules, ledger.attributed_joules, ledger.idle_joules) == (None, None, None)


@pytest.mark.parametrize(("seconds", "baseline"), [(20, 50.0), (5, None)])
def test_the_idle_baseline_needs_ten_seconds(seconds: int, baseline: float | None) -> None:
    ledger = attribute(RequestLog().columns(), [], {"a": _windows("a", [5.0] * seconds * 10)}).ledgers[0]
    assert ledger.idle_watts == (baseline and pytest.approx(baseline))


@pytest.fixture
def llama(shape_named: Callable[[str], ModelShape]) -> ModelShape:
    return shape_named("Llama-3.1-8B")


def test_ten_hours_do_not_wear_precision_down(llama: ModelShape) -> None:
    """A tiny request late in a long run still gets what its windows measured, less what was idle in them."""
    log = RequestLog()
    for k in range(2000):
        log.add(
            0,
            sent=18.0 * k,
            first_token=18.0 * k + 1,
            end=18.0 * k + 17,
            prompt_tokens=9000,
            output_tokens=900,
        )
    log.add(0, sent=35_999.21, end=35_999.22, prompt_tokens=1, output_tokens=1)
    windows = _windows("a", [30.0] * 360_000)
    done = attribute(log.columns(), [EngineUse("e", ("a",), llama)], {"a": windows})
    assert _energy(done)[-1] == pytest.approx(3.0, rel=1e-6)
    _check_conserved(done, {"a": windows})
