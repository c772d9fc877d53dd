"""Energy per token at a full batch: the headline that does not depend on how a run ramps up and drains.

The window is that of the ML.ENERGY benchmark: from the moment as many requests as the engine runs at once
have returned their first token, until ``requests - concurrency - 1`` have finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.requests import RequestColumns
from evalray.telemetry.windows import EnergyCurve
from evalray.wording import counted

#: Less of the window in valid counter windows makes no headline.
LEAST_COVERAGE = 0.95


@dataclass(slots=True, frozen=True)
class SteadyState:
    """The steady part of a run.  Seconds are monotonic.  ``reached`` false: ``reason`` says why."""

    reached: bool
    reason: str = ""
    start: float | None = None
    end: float | None = None
    output_tokens: float | None = None
    energy_joules: float | None = None
    joules_per_token: float | None = None


def steady_state(
    requests: RequestColumns,
    members: NDArray[np.intp],
    curves: Sequence[EnergyCurve],
    concurrency: int,
) -> SteadyState:
    """The steady state of the requests at ``members``, all of the engines that ``curves`` are the devices of.

    ``concurrency``: requests that run at once, over all replicas.  Requests that were not streamed count
    their end as first token.  Tokens are spread evenly between first and last token.
    """
    end = requests.end[members]
    first = requests.first_token[members]
    first = np.where(np.isfinite(first), first, end)
    finished_needed = len(members) - concurrency - 1
    if concurrency < 1 or finished_needed < 1:
        return SteadyState(
            False, f"{counted(len(members), 'request is', 'requests are')} too few for {concurrency} at once"
        )
    start = float(np.sort(first)[concurrency - 1])
    finish = float(np.sort(end)[finished_needed - 1])
    if finish <= start:
        return SteadyState(
            False, "the batch was never full: too few requests, or replies of very unlike length"
        )
    tokens = _tokens(first, end, requests.output_tokens[members], start, finish)
    if not curves:
        return SteadyState(True, "no meter", start, finish, tokens)
    covered = sum(float(curve.valid_seconds.between(start, finish)) for curve in curves)
    if covered < LEAST_COVERAGE * (finish - start) * len(curves):
        return SteadyState(True, "energy was not measured throughout", start, finish, tokens)
    joules = sum(float(curve.joules.between(start, finish)) for curve in curves)
    return SteadyState(True, "", start, finish, tokens, joules, joules / tokens if tokens > 0 else None)


def _tokens(
    first: NDArray[np.float64],
    end: NDArray[np.float64],
    output: NDArray[np.float64],
    start: float,
    finish: float,
) -> float:
    """Output tokens within a window: first tokens at their instant, the others evenly until the end."""
    span = np.maximum(end - first, 1e-9)
    overlap = np.clip(np.minimum(end, finish) - np.maximum(first, start), 0.0, None)
    firsts = (first > start) & (first <= finish) & (output > 0)
    return float(firsts.sum() + (overlap / span * np.maximum(output - 1, 0)).sum())
