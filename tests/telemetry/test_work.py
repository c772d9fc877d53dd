"""Work over time against the closed forms of the roofline."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.telemetry import ModelShape, decode_kv_bytes, request_flops
from evalray.telemetry.blocks import Rates, walk, window_sums
from evalray.telemetry.requests import RequestLog
from evalray.telemetry.work import DECODE, PREFILL, Stretches, TokenCost, stretches

_MODELS = ["Llama-3.1-8B", "Mistral-7B-v0.1", "Qwen3-30B-A3B", "DeepSeek-V3"]


def _work(shape: ModelShape | None, **request: float) -> Stretches:
    log = RequestLog()
    log.add(0, **request)  # type: ignore[arg-type]
    return stretches(log.columns(), np.array([0]), TokenCost.of(shape))


@pytest.mark.parametrize("model", _MODELS)
@pytest.mark.parametrize(
    ("prompt", "cached", "output"),
    [(1, 0, 1), (100, 0, 50), (100, 64, 50), (100, 100, 2), (4000, 0, 300), (5000, 4500, 9000), (9000, 0, 1)],
)
def test_a_requests_flops_are_exactly_the_rooflines(
    shape_named: Callable[[str], ModelShape], model: str, prompt: int, cached: int, output: int
) -> None:
    shape = shape_named(model)
    work = _work(
        shape,
        sent=3.0,
        first_token=3.5,
        end=17.0,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
    )
    expected = request_flops(shape, prompt, output, cached)
    assert work.flops[work.phase == PREFILL].sum() == pytest.approx(expected.prefill, rel=1e-12)
    assert work.flops[work.phase == DECODE].sum() == pytest.approx(expected.decode, rel=1e-12)


@pytest.mark.parametrize("model", _MODELS)
def test_a_requests_decode_traffic_is_exactly_the_rooflines(
    shape_named: Callable[[str], ModelShape], model: str
) -> None:
    shape = shape_named(model)
    work = _work(shape, sent=0.0, first_token=1.0, end=9.0, prompt_tokens=4000, output_tokens=301)
    decode = work.take(np.flatnonzero(work.phase == DECODE))
    span = decode.end - decode.start
    moved = (decode.kv_rate * span + decode.kv_slope * span**2 / 2).sum()
    assert moved == pytest.approx(decode_kv_bytes(shape, 4001, 300), rel=1e-12)


def test_prefill_ends_at_the_first_token_and_decode_at_the_last(
    shape_named: Callable[[str], ModelShape],
) -> None:
    work = _work(
        shape_named("Mistral-7B-v0.1"),
        sent=1.0,
        prefill_start=1.5,
        first_token=2.0,
        end=6.0,
        prompt_tokens=4090,
        output_tokens=101,
    )
    prefill, growing, full = sorted(zip(work.phase, work.start, work.end, work.tokens, strict=True))
    assert prefill == (PREFILL, 1.5, 2.0, 4090)
    assert growing[:2] == (DECODE, 2.0)
    assert growing[2] == pytest.approx(full[1])
    assert (growing[3], full[3]) == (6, 94)  # the window of 4096 is full after six tokens
    assert full[2] == pytest.approx(6.0)


def test_a_reply_that_was_not_streamed_works_evenly_all_the_time(
    shape_named: Callable[[str], ModelShape],
) -> None:
    work = _work(shape_named("Llama-3.1-8B"), sent=1.0, end=5.0, prompt_tokens=10, output_tokens=20)
    assert set(zip(work.start, work.end, strict=True)) == {(1.0, 5.0)}


@pytest.mark.parametrize("model", ["Llama-3.1-8B", None])
def test_a_request_of_unknown_size_still_counts(
    shape_named: Callable[[str], ModelShape], model: str | None
) -> None:
    assert _work(model and shape_named(model), sent=1.0, end=2.0).flops.sum() > 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 60), st.integers(1, 9))
def test_blocks_give_each_window_what_falls_in_it(seed: int, count: int, windows: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.cumsum(rng.uniform(0.01, 1, windows + 1))
    start = np.sort(rng.uniform(-1, edges[-1] + 1, count))
    end = start + rng.uniform(1e-6, edges[-1], count)
    rates = Rates(start, rng.uniform(0, 5, count), rng.uniform(0, 5, count))
    low, high = np.maximum(edges[:-1, None], start), np.minimum(edges[1:, None], end)
    span = np.maximum(high - low, 0)
    expected = (span * (rates.rate + rates.slope * ((low + high) / 2 - start))).sum(axis=1)
    totals = np.zeros(windows)
    for part in walk(edges[:-1], edges[1:], start, end, block):
        totals[part.first : part.last] = rates.per_window(part, edges[:-1], edges[1:])
    assert totals == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert window_sums(edges[:-1], edges[1:], end, [rates])[0] == pytest.approx(expected, rel=1e-9, abs=1e-12)
