"""The one table of samples that MLflow's page can show: capped in rows and in the length of a cell.

All rows are in the Parquet artifact beside it.  Four columns fit the page, so the first four are
what one reads a sample for.
"""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

from evalray.store import iter_results
from evalray.tracking.limits import storable
from evalray.tracking.redact import redact_text

MAX_ROWS = 1000
MAX_CELL = 2000

COLUMNS = (
    "outcome",
    "model_answer",
    "reference",
    "prompt",
    "record_id",
    "epoch",
    "subject",
    "score",
    "finish_reason",
    "latency_seconds",
    "ttft",
    "prompt_tokens",
    "completion_tokens",
    "error",
)


def write_samples_table(results: Path, target: Path) -> int:
    """Write the first :data:`MAX_ROWS` samples as MLflow's table JSON; returns how many."""
    rows = [
        [_cell(getattr(row, name)) for name in COLUMNS] for row in islice(iter_results(results), MAX_ROWS)
    ]
    target.write_text(json.dumps({"columns": COLUMNS, "data": rows}, ensure_ascii=True, allow_nan=False))
    return len(rows)


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        text = redact_text(storable(value))
        return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
