"""Why a run failed, in one line: how many samples, what ended most of them, and one of them by name.

Read from the run's rows, so that ``run``, a resumed run and ``summarize`` say the same.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from evalray.errors import StoreError
from evalray.store.reading import iter_results
from evalray.types import RunSummary
from evalray.wording import counted

_FAILURES = ("engine_error", "judge_error", "scorer_error")
#: Messages that are told apart while counting: each may hold an id or a time of its own.
_MAX_MESSAGES = 1_000
_MESSAGE_CHARACTERS = 300


def why_failed(summary: RunSummary, max_error_rate: float, results: Path) -> str:
    """The reason of a run whose status is ``failed``; rows that cannot be read leave out the example."""
    if summary.reason:
        return summary.reason
    if not summary.planned_samples:
        return "there was nothing to do"
    if not summary.scored_samples:
        head = f"none of {counted(summary.total_samples, 'sample')} could be scored"
    else:
        head = f"{summary.errors} of {counted(summary.total_samples, 'sample')} failed, more than {max_error_rate:.0%}"
    kinds = ", ".join(f"{n} {kind}" for kind in _FAILURES if (n := summary.outcomes.get(kind, 0)))
    if not kinds:
        return head
    try:
        example = _most_common(results)
    except (StoreError, OSError):
        example = ""
    return f"{head}: {kinds}" + (f"; {example}" if example else "")


def _most_common(results: Path) -> str:
    """The message that most failed samples share, with the first sample that has it."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for row in iter_results(results):
        if row.outcome not in _FAILURES:
            continue
        key = row.outcome, " ".join(str(row.error or "no message")[: 4 * _MESSAGE_CHARACTERS].split())
        if key not in first:
            if len(first) == _MAX_MESSAGES:
                continue
            first[key] = row.record_id
        counts[key] += 1
    if not counts:
        return ""
    key, number = counts.most_common(1)[0]
    outcome, message = key
    text = message if len(message) <= _MESSAGE_CHARACTERS else message[: _MESSAGE_CHARACTERS - 1] + "…"
    often = "" if len(counts) == 1 else f"most often ({number}) " if number > 1 else "for example "
    return f"{often}{outcome}, as of record {first[key]!r}: {text}"
