"""FLOPs, bytes and the share of a machine's peak that they are: MFU and MBU.

Conventions, the same everywhere:

* Model FLOPs, a multiply-add being two.  Causal attention counts what is done: the i-th of S new tokens
  after C cached ones attends C + i keys, itself included (PaLM and vLLM count S + C for each).
* "Context c" of a decoded token is the number of keys it attends, itself included; a sliding window caps
  it.  MLA counts its mathematical form: QK over nope + rope dims, values over the value dim.
* Logits are one row per request and step; prompt tokens but the last need none.
* Bytes: the dense weights once per step, of the experts the expected distinct ones, and KV entries read
  plus written.  The token's own entry is written, the c - 1 before it are read: c entries of traffic.
* Utilisation is against dense peaks.  Above 100 % something was counted wrong: that is said, never clamped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from evalray.telemetry.peaks import Peak, PeakSource
from evalray.telemetry.shape import ModelShape

#: A percentage above this is an alarm; the slack is for rounding alone.
ALARM_PCT = 100.0 * (1 + 1e-9)


# -- FLOPs ------------------------------------------------------------------------------------------


def decode_flops(shape: ModelShape, context: int) -> int:
    """FLOPs of one decoded token that attends ``context`` keys, itself included."""
    return 2 * shape.active_matmul_params + _attention_flops(shape, context - 1, 1)


def decode_span_flops(shape: ModelShape, first_context: int, tokens: int) -> int:
    """FLOPs of ``tokens`` tokens decoded one after another, the first at ``first_context``."""
    return 2 * shape.active_matmul_params * tokens + _attention_flops(shape, first_context - 1, tokens)


def prefill_flops(shape: ModelShape, new_tokens: int, cached_tokens: int = 0, *, logit_rows: int = 1) -> int:
    """FLOPs of ``new_tokens`` prompt tokens after ``cached_tokens`` that are in the KV cache already.

    ``logit_rows`` is 0 for a chunk that is not the prompt's last.
    """
    if new_tokens <= 0:
        return 0
    linear = 2 * (shape.active_matmul_params - shape.head_params) * new_tokens
    return linear + 2 * shape.head_params * logit_rows + _attention_flops(shape, cached_tokens, new_tokens)


class RequestFlops(NamedTuple):
    """FLOPs of one request; cached prompt tokens cost nothing."""

    prefill: int
    decode: int

    @property
    def total(self) -> int:
        return self.prefill + self.decode


def request_flops(
    shape: ModelShape, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0
) -> RequestFlops:
    """FLOPs of a request.  The prefill yields the first output token, so decoding is one token less.

    An engine computes at least the prompt's last token, however much of it is cached.
    """
    cached = min(cached_tokens, max(0, prompt_tokens - 1))
    decode = decode_span_flops(shape, prompt_tokens + 1, output_tokens - 1) if output_tokens > 1 else 0
    return RequestFlops(prefill_flops(shape, prompt_tokens - cached, cached), decode)


def _attention_flops(shape: ModelShape, before: int, tokens: int) -> int:
    return sum(kind.flops_per_key * attended_keys(before, tokens, kind.window) for kind in shape.attention)


def attended_keys(before: int, tokens: int, window: int | None = None) -> int:
    """Keys attended by ``tokens`` successive tokens after ``before`` others, summed over the tokens.

    Without a window S*C + S*(S+1)/2; with one, each token attends at most ``window`` keys.
    """
    full = tokens * before + tokens * (tokens + 1) // 2
    if window is None or before + tokens <= window:
        return full
    growing = max(0, window - before)
    return growing * before + growing * (growing + 1) // 2 + (tokens - growing) * window


# -- bytes ------------------------------------------------------------------------------------------


class Sequence(NamedTuple):
    """One request's part in an engine step: tokens computed, after how many that are cached."""

    new_tokens: int
    cached_tokens: int


def decoding(context: int) -> Sequence:
    """A decode step of one request at ``context`` keys, the new token included."""
    return Sequence(1, context - 1)


@dataclass(slots=True, frozen=True)
class StepBytes:
    """Memory traffic of one engine step, over all its devices."""

    weights: float
    experts: float
    kv_read: float
    kv_written: float

    @property
    def total(self) -> float:
        return self.weights + self.experts + self.kv_read + self.kv_written


def distinct_experts(experts: int, experts_per_token: int, tokens: float) -> float:
    """Expected number of experts that at least one of ``tokens`` tokens is routed to: E*(1 - (1 - k/E)^T).

    Assumes even routing; skewed routing reads fewer.  ``tokens`` may be a mean.
    """
    if tokens <= 0:
        return 0.0
    if experts_per_token >= experts:
        return float(experts)
    return experts * -math.expm1(tokens * math.log1p(-experts_per_token / experts))


def weight_bytes(shape: ModelShape, tokens: float, *, tensor_parallel: int = 1) -> float:
    """Weight bytes that a step of ``tokens`` tokens reads: the dense ones once, experts as expected."""
    dense, experts = _weight_bytes(shape, tokens, tensor_parallel)
    return dense + experts


def _weight_bytes(shape: ModelShape, tokens: float, tensor_parallel: int) -> tuple[float, float]:
    weights = shape.weights
    dense = weights.dense_bytes + (tensor_parallel - 1) * weights.replicated_bytes
    if weights.single_token_bytes is not None:
        dense = min(dense, tokens * weights.single_token_bytes)
    if (routed := weights.experts) is None:
        return dense, 0.0
    share = distinct_experts(routed.experts, routed.experts_per_token, tokens) / routed.experts
    return dense, routed.bytes * share


def step_bytes(shape: ModelShape, batch: Iterable[Sequence], *, tensor_parallel: int = 1) -> StepBytes:
    """Traffic of one step over ``batch``, summed over the devices of a tensor-parallel engine.

    KV heads that are fewer than the ranks (one for MLA) are kept and read by every rank.
    """
    batch = list(batch)
    tokens = sum(sequence.new_tokens for sequence in batch)
    if not tokens:
        return StepBytes(0.0, 0.0, 0.0, 0.0)
    dense, experts = _weight_bytes(shape, tokens, tensor_parallel)
    read = written = 0.0
    for sequence in batch:
        one_read, one_written = _kv_bytes(shape, *sequence, tensor_parallel)
        read, written = read + one_read, written + one_written
    return StepBytes(dense, experts, read, written)


def _kv_bytes(
    shape: ModelShape, new_tokens: int, cached_tokens: int, tensor_parallel: int
) -> tuple[float, float]:
    """(read, written) by one request in one step."""
    read = written = 0.0
    for kind in shape.attention:
        entry = _entry_bytes(shape, kind.layers * kind.cached_values, kind.kv_heads, tensor_parallel)
        visible = cached_tokens if kind.window is None else min(cached_tokens, kind.window - 1)
        read += entry * visible
        written += entry * new_tokens
    return read, written


def decode_kv_bytes(shape: ModelShape, first_context: int, tokens: int, *, tensor_parallel: int = 1) -> float:
    """KV traffic of ``tokens`` decode steps of one request, the first at ``first_context``.

    The sum of what :func:`step_bytes` gives for each, without walking through them.
    """
    total = 0.0
    for kind in shape.attention:
        entry = _entry_bytes(shape, kind.layers * kind.cached_values, kind.kv_heads, tensor_parallel)
        total += entry * attended_keys(first_context - 1, tokens, kind.window)
    return total


def _entry_bytes(shape: ModelShape, values: int, kv_heads: int, tensor_parallel: int) -> float:
    """Bytes of one token's cache entry in ``values`` elements, over all ranks that keep it."""
    copies = max(1.0, tensor_parallel / max(1, kv_heads))
    return (shape.kv_bytes_per_value or 0.0) * values * copies


def estimated_steps(decoded_tokens: float, mean_running: float) -> float:
    """Engine steps, estimated where the engine does not count them: tokens over the mean running batch."""
    return decoded_tokens / max(1.0, mean_running)


def window_bytes(
    shape: ModelShape, *, steps: float, tokens: float, kv_bytes: float, tensor_parallel: int = 1
) -> float:
    """Traffic of a window of ``steps`` engine steps that computed ``tokens`` tokens in all.

    ``kv_bytes`` is the sum of the requests' own KV traffic (:func:`decode_kv_bytes`).  Experts are taken
    at the mean tokens of a step, which is an upper bound since distinct experts are concave in T.
    """
    if steps <= 0:
        return kv_bytes
    return steps * weight_bytes(shape, tokens / steps, tensor_parallel=tensor_parallel) + kv_bytes


# -- utilisation ------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Utilization:
    """MFU and MBU of a window in percent; ``None`` where work, time or peak is not known."""

    mfu_pct: float | None
    mbu_pct: float | None
    peak: Peak
    warnings: tuple[str, ...] = ()


def minimum_seconds(flops: float, bytes_moved: float, peak: Peak, devices: int = 1) -> float | None:
    """The roofline: the time below which ``devices`` devices cannot do the work.  ``None`` without peaks."""
    if peak.flops_per_second is None or peak.bytes_per_second is None:
        return None
    return max(flops / peak.flops_per_second, bytes_moved / peak.bytes_per_second) / devices


def utilization(
    flops: float | None, bytes_moved: float | None, seconds: float, peak: Peak, devices: int = 1
) -> Utilization:
    """Share of the peak that a window's work reached on ``devices`` devices.

    ``flops`` and ``bytes_moved`` are summed over the devices; ``peak`` is of one.
    """
    mfu = _percent(flops, seconds, peak.flops_per_second, devices)
    mbu = _percent(bytes_moved, seconds, peak.bytes_per_second, devices)
    return Utilization(mfu, mbu, peak, tuple(_alarms(mfu, mbu, peak)))


def _percent(work: float | None, seconds: float, peak: float | None, devices: int) -> float | None:
    if work is None or peak is None or not seconds > 0 or devices < 1:
        return None
    return 100.0 * work / (seconds * peak * devices)


def _alarms(mfu: float | None, mbu: float | None, peak: Peak) -> Iterable[str]:
    if mfu is not None and mfu > ALARM_PCT:
        yield f"MFU of {mfu:.0f} % is impossible against {peak.flops_label}: {_mfu_cause(peak)}"
    if mbu is not None and mbu > ALARM_PCT:
        yield f"MBU of {mbu:.0f} % is impossible against {peak.bandwidth_label}: {_mbu_cause(peak)}"


def _mfu_cause(peak: Peak) -> str:
    if peak.flops_source is PeakSource.SUITE:
        return (
            "gpu_peak_tflops in the suite is too low for the dtype the model computes in, or for one device"
        )
    if peak.flops_source is PeakSource.ACHIEVABLE:
        return (
            "the probe ran on a busy machine or in a slower dtype than the engine; "
            "repeat it idle with: evalray hardware probe --refresh"
        )
    return (
        "prompt tokens served from a prefix cache were counted as computed, the engine runs on more devices "
        "than declared, or it computes in a narrower dtype than the model's configuration says"
    )


def _mbu_cause(peak: Peak) -> str:
    if peak.bandwidth_source is PeakSource.SUITE:
        return "gpu_peak_bandwidth_gb_s in the suite is too low for one device"
    if peak.bandwidth_source is PeakSource.ACHIEVABLE:
        return (
            "the weights stay in the processor's cache, or the probe ran on a busy machine; "
            "repeat it idle with: evalray hardware probe --refresh"
        )
    return (
        "more engine steps were counted than ran (several tokens per step: batching, speculative decoding), "
        "the weights are stored narrower than assumed, or the engine runs on more devices than declared"
    )


# -- the seed's own ---------------------------------------------------------------------------------


def request_utilization(
    *,
    param_count_b: float,
    active_params_b: float | None,
    tokens_per_second: float,
    peak: Peak,
    devices: int = 1,
    bytes_per_param: float = 2.0,
) -> Utilization:
    """OpenJarvis's per-request figures (``mfu_request_pct``, ``mbu_request_pct``), so that old rows compare.

    2 x active parameters per token, and all parameters read for every token of this request alone: under
    batching the second exceeds what the device does many times, which is expected and raises no warning.
    ``tokens_per_second`` is completion tokens over the whole latency of the request.
    """
    flops = 2e9 * (active_params_b or param_count_b) * tokens_per_second
    traffic = 1e9 * param_count_b * bytes_per_param * tokens_per_second
    return Utilization(
        _percent(flops, 1.0, peak.flops_per_second, devices),
        _percent(traffic, 1.0, peak.bytes_per_second, devices),
        peak,
    )
