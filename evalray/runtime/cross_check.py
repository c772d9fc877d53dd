"""An engine's own estimate of its work beside ours, and a warning where the two do not tell the same story.

vLLM's estimate (``engine_args.enable_mfu_metrics``) is made otherwise: attention without the causal half, the
traffic of activations included, every scheduled token whether its request ended well or not.  So the two
differ; a factor of :data:`AGREEMENT` means that a shape, a dtype or a token count is wrong in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalray.runtime.recording import EngineLife
from evalray.telemetry import EngineActivity

#: Ratio in FLOPs, either way, above which a warning is due.  Bytes differ by activations and get none.
AGREEMENT = 1.5


def cross_check(
    engines: Iterable[tuple[EngineLife, EngineActivity | None]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """For each engine with counters of its own: both sums over its life, and the warnings due."""
    records: list[dict[str, Any]] = []
    warnings: list[str] = []
    for life, activity in engines:
        if life.counters is None:
            continue
        flops, moved = (None, None) if activity is None else activity.totals()
        theirs = life.counters
        ratio = _ratio(theirs["flops"], flops)
        records.append(
            {
                "engine_id": life.engine_id,
                "ready_at": life.ready_at,
                **{f"engine_{name}": amount for name, amount in theirs.items()},
                "flops": flops,
                "bytes": moved,
                "flops_ratio": ratio,
                "bytes_ratio": _ratio(theirs["read_bytes"] + theirs["write_bytes"], moved),
            }
        )
        if ratio is not None and not 1 / AGREEMENT <= ratio <= AGREEMENT:
            warnings.append(
                f"{life.engine_id}: the engine's own counters say {ratio:.2f} × the FLOPs worked out from its "
                "requests; MFU is uncertain by as much"
            )
    return records, warnings


def _ratio(theirs: float, ours: float | None) -> float | None:
    return theirs / ours if ours else None
