"""What an engine did over time, in FLOPs and bytes, on a grid of its own: MFU and MBU need no meter.

Per bin: FLOPs, tokens decoded, requests running, KV-cache traffic and engine steps.  Steps are estimated as
decoded tokens over the mean number of requests that decode, or prompt chunks where those are more, and each
reads the weights once.  A request's own figures are the engine's over the time it was in flight, which is
right under batching: a share of a shared step has no utilisation of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.blocks import Rates, window_sums
from evalray.telemetry.peaks import Peak
from evalray.telemetry.requests import EngineUse, RequestColumns
from evalray.telemetry.roofline import Utilization, utilization
from evalray.telemetry.shape import ModelShape
from evalray.telemetry.windows import Integral
from evalray.telemetry.work import DECODE, PREFILL, Stretches, TokenCost, stretches

Floats = NDArray[np.float64]

BIN_SECONDS = 0.1
#: Longer runs get longer bins: 55 hours fit in bins of 0.1 s.
MOST_BINS = 2_000_000


@dataclass(slots=True)
class EngineActivity:
    """One engine's work, as totals that can be read off between any two instants."""

    engine: EngineUse
    start: float
    """First request's start, on the node's monotonic clock."""
    end: float
    flops: Integral
    bytes_moved: Integral
    decoded_tokens: Integral
    running_seconds: Integral
    """Requests in decoding x seconds."""
    bin_seconds: float

    def utilization(self, start: float, end: float) -> Utilization | None:
        """MFU and MBU between two instants; ``None`` without a peak."""
        if self.engine.peak is None:
            return None
        flops, moved = self.flops.between(start, end), self.bytes_moved.between(start, end)
        return utilization(float(flops), float(moved), end - start, self.engine.peak, self.engine.devices)

    def totals(self) -> tuple[float, float]:
        """FLOPs and bytes of everything it did."""
        return (
            float(self.flops.between(self.start, self.end)),
            float(self.bytes_moved.between(self.start, self.end)),
        )

    def percent(self, start: Floats, end: Floats) -> tuple[Floats, Floats]:
        """MFU and MBU in percent for many intervals; NaN where a peak is not known."""
        span = np.maximum(end - start, self.bin_seconds)
        # An interval shorter than a bin is widened to one, around its middle: the bin's mean is all there is.
        middle = (start + end) / 2
        low, high = middle - span / 2, middle + span / 2
        peak, devices = self.engine.peak or Peak(), self.engine.devices
        return (
            _percent(self.flops.between(low, high), span, peak.flops_per_second, devices),
            _percent(self.bytes_moved.between(low, high), span, peak.bytes_per_second, devices),
        )


def _percent(amount: Floats, span: Floats, peak: float | None, devices: int) -> Floats:
    return np.full(len(span), np.nan) if not peak else 100.0 * amount / (span * peak * devices)


def engine_activity(requests: RequestColumns, index: int, engine: EngineUse) -> EngineActivity | None:
    """The activity of the engine at ``index``; ``None`` without requests or without a shape."""
    members = np.flatnonzero(requests.engine == index)
    if engine.shape is None or not len(members):
        return None
    work = stretches(requests, members, TokenCost.of(engine.shape, engine.tensor_parallel))
    if not len(work.start):
        return None
    work = work.take(np.argsort(work.start, kind="stable"))
    begin, finish = float(work.start[0]), float(work.end.max())
    bins = int(np.clip(np.ceil((finish - begin) / BIN_SECONDS), 1, MOST_BINS))
    edges = np.linspace(begin, finish, bins + 1)
    starts, ends = edges[:-1], edges[1:]
    quantities = _quantities(work, engine)
    flops, kv, computed, tokens, running, chunks = window_sums(starts, ends, work.end, quantities)
    bins_span = np.diff(edges)
    # While fewer requests decode than one on average, somebody decodes only part of the bin.
    busy = np.minimum(running, bins_span)
    steps = np.divide(tokens * busy, running, out=np.zeros(bins), where=running > 0)
    steps = np.maximum(steps, chunks)
    return EngineActivity(
        engine,
        begin,
        finish,
        Integral.of(starts, ends, flops),
        Integral.of(
            starts, ends, kv + _weight_traffic(engine.shape, steps, computed, engine.tensor_parallel)
        ),
        Integral.of(starts, ends, tokens),
        Integral.of(starts, ends, running),
        float(bins_span[0]),
    )


def _quantities(work: Stretches, engine: EngineUse) -> list[Rates]:
    """FLOPs, KV bytes, tokens computed, tokens decoded, requests that decode, prompt chunks."""
    span = work.end - work.start
    decoding = np.where(work.phase == DECODE, 1.0, 0.0)
    per_chunk = float(engine.max_batched_tokens or np.inf)
    chunks = np.where(work.phase == PREFILL, np.ceil(np.maximum(work.tokens / per_chunk, 1e-9)), 0.0)
    return [
        Rates(work.start, work.flops_rate, work.flops_slope),
        Rates(work.start, work.kv_rate, work.kv_slope),
        Rates(work.start, work.tokens / span),
        Rates(work.start, decoding * work.tokens / span),
        Rates(work.start, decoding),
        Rates(work.start, chunks / span),
    ]


def _weight_traffic(shape: ModelShape, steps: Floats, tokens: Floats, ranks: int) -> Floats:
    """Weight bytes of all steps of each bin, as :func:`evalray.telemetry.roofline.weight_bytes` for one."""
    weights = shape.weights
    dense = np.full(len(steps), weights.dense_bytes + (ranks - 1) * weights.replicated_bytes)
    per_step = np.divide(tokens, steps, out=np.ones(len(steps)), where=steps > 0)
    per_step = np.maximum(per_step, 1.0)
    if weights.single_token_bytes is not None:
        dense = np.minimum(dense, per_step * weights.single_token_bytes)
    if (routed := weights.experts) is not None:
        if routed.experts_per_token >= routed.experts:
            share = np.ones(len(steps))
        else:
            missed = np.log1p(-routed.experts_per_token / routed.experts)
            share = -np.expm1(per_step * missed)
        dense = dense + routed.bytes * share
    return np.asarray(steps * dense, np.float64)
