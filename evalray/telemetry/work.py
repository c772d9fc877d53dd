"""When each request did how much: stretches of time in which its work rate is constant or grows linearly.

A prompt is computed at a constant rate from its start to the first token.  Output tokens are spread evenly
between first and last; each costs a little more than the one before it, since its context is longer, until a
sliding window is full.  The totals are exactly those of :mod:`evalray.telemetry.roofline`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.requests import RequestColumns
from evalray.telemetry.shape import ModelShape

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PREFILL, DECODE = 0, 1
#: Work that happened in no time at all is spread over this.
SHORTEST_SECONDS = 1e-6


@dataclass(slots=True)
class Stretches:
    """Stretches of work.  ``*_rate`` is at the start, per second; ``*_slope`` its growth, per second squared."""

    request: Ints
    phase: NDArray[np.int8]
    start: Floats
    end: Floats
    flops_rate: Floats
    flops_slope: Floats
    kv_rate: Floats
    kv_slope: Floats
    tokens: Floats
    """Tokens in the whole stretch: of the prompt, or of output."""

    @property
    def flops(self) -> Floats:
        span = self.end - self.start
        return self.flops_rate * span + self.flops_slope * span * span / 2

    def take(self, index: NDArray[np.intp]) -> Stretches:
        return Stretches(*(getattr(self, name)[index] for name in self.__slots__))


def join(parts: list[Stretches]) -> Stretches:
    """All stretches of ``parts``, one after another."""
    return Stretches(*(np.concatenate([getattr(part, n) for part in parts]) for n in Stretches.__slots__))


@dataclass(slots=True, frozen=True)
class TokenCost:
    """What one token at context c costs: ``fixed + sum(growing * min(c, window))``, in FLOPs and KV bytes."""

    fixed_flops: float
    prefill_fixed_flops: float
    """Of a prompt token: without the logits."""
    logits_flops: float
    windows: tuple[float, ...]
    """Ascending; ``inf`` is full attention."""
    flops_per_key: tuple[float, ...]
    kv_bytes: tuple[float, ...]
    """Of one cache entry in all layers of a window."""

    @classmethod
    def of(cls, shape: ModelShape | None, tensor_parallel: int = 1) -> TokenCost:
        """``None``: every token, of prompt or output, counts one.

        KV heads that are fewer than the ``tensor_parallel`` ranks are kept and read by several of them.
        """
        if shape is None:
            return cls(1.0, 1.0, 0.0, (), (), ())
        grouped: dict[float, tuple[float, float]] = {}
        for kind in shape.attention:
            window = float("inf") if kind.window is None else float(kind.window)
            flops, kv = grouped.get(window, (0.0, 0.0))
            copies = max(1.0, tensor_parallel / max(1, kind.kv_heads))
            entry = kind.layers * kind.cached_values * (shape.kv_bytes_per_value or 0.0) * copies
            grouped[window] = (flops + kind.flops_per_key, kv + entry)
        ascending = sorted(grouped)
        return cls(
            2.0 * shape.active_matmul_params,
            2.0 * (shape.active_matmul_params - shape.head_params),
            2.0 * shape.head_params,
            tuple(ascending),
            tuple(grouped[window][0] for window in ascending),
            tuple(grouped[window][1] for window in ascending),
        )


def stretches(requests: RequestColumns, members: NDArray[np.intp], cost: TokenCost) -> Stretches:
    """The work of the requests at ``members``, which are of one engine whose tokens cost ``cost``.

    A request of unknown prompt is charged one token, so that what it used is not called idle.
    """
    prompt, output = np.maximum(requests.prompt_tokens[members], 1.0), requests.output_tokens[members]
    cached = np.clip(requests.cached_tokens[members], 0.0, np.maximum(prompt - 1, 0.0))
    start, end = requests.prefill_start[members], requests.end[members]
    first = requests.first_token[members]
    streamed = np.isfinite(first)
    prefill_end, decode_start = np.where(streamed, first, end), np.where(streamed, first, start)
    parts = [_prefill(members, prompt - cached, cached, start, prefill_end, cost)]
    decoded = np.maximum(output - 1, 0.0)
    reached = np.zeros(len(members))
    base, growth = cost.fixed_flops, sum(cost.flops_per_key)
    kv_base, kv_growth = 0.0, sum(cost.kv_bytes)
    for window, flops_per_key, kv_bytes in zip(
        (*cost.windows, np.inf), (*cost.flops_per_key, 0.0), (*cost.kv_bytes, 0.0), strict=True
    ):
        full_after = np.clip(np.minimum(window - prompt, decoded), 0.0, decoded)
        taken = np.maximum(full_after, reached)
        part = _decode(
            members, reached, taken, decoded, prompt, decode_start, end, (base, growth), (kv_base, kv_growth)
        )
        parts.append(part)
        reached = taken
        if np.isfinite(window):
            base, growth = base + flops_per_key * window, growth - flops_per_key
            kv_base, kv_growth = kv_base + kv_bytes * window, kv_growth - kv_bytes
        else:
            break
    return join(parts)


def _prefill(
    members: NDArray[np.intp], new: Floats, cached: Floats, start: Floats, end: Floats, cost: TokenCost
) -> Stretches:
    flops = cost.prefill_fixed_flops * new + cost.logits_flops * (new > 0)
    kv = np.zeros(len(new))
    for window, flops_per_key, kv_bytes in zip(cost.windows, cost.flops_per_key, cost.kv_bytes, strict=True):
        flops = flops + flops_per_key * _attended(cached, new, window)
        kv = kv + kv_bytes * (new + np.minimum(cached, window - 1))
    keep = np.flatnonzero(new > 0)
    end = np.maximum(end, start + SHORTEST_SECONDS)
    span = end - start
    zero = np.zeros(len(keep))
    return Stretches(
        np.asarray(members[keep], np.int64),
        np.full(len(keep), PREFILL, np.int8),
        start[keep],
        end[keep],
        (flops / span)[keep],
        zero,
        (kv / span)[keep],
        zero,
        new[keep],
    )


def _attended(before: Floats, tokens: Floats, window: float) -> Floats:
    """Keys attended by ``tokens`` tokens after ``before``, as ``roofline.attended_keys`` for arrays."""
    growing = np.clip(window - before, 0.0, tokens)
    full = growing * before + growing * (growing + 1) / 2
    return full if np.isinf(window) else full + (tokens - growing) * window


def _decode(
    members: NDArray[np.intp],
    reached: Floats,
    taken: Floats,
    decoded: Floats,
    prompt: Floats,
    start: Floats,
    end: Floats,
    flops: tuple[float, float],
    kv: tuple[float, float],
) -> Stretches:
    """Output tokens ``reached`` to ``taken`` of ``decoded``, at cost base + growth x context each.

    The i-th decoded token attends prompt + i keys (i from 1); as a rate over the continuous i this is
    base + growth x (prompt + i + 1/2), whose integral over whole tokens is their sum.
    """
    keep = np.flatnonzero(taken > reached)
    low, count, total = reached[keep], (taken - reached)[keep], decoded[keep]
    begin = start[keep]
    span = np.maximum(end[keep] - begin, SHORTEST_SECONDS)
    pace = total / span
    context = prompt[keep] + low + 0.5
    return Stretches(
        np.asarray(members[keep], np.int64),
        np.full(len(keep), DECODE, np.int8),
        begin + low / pace,
        begin + (low + count) / pace,
        pace * (flops[0] + flops[1] * context),
        pace * pace * flops[1],
        pace * (kv[0] + kv[1] * context),
        pace * pace * kv[1],
        count,
    )
