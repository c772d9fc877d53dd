from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalray.store import why_failed
from evalray.types import RunSummary


def _summary(total: int, scored: int, **outcomes: int) -> RunSummary:
    summary = RunSummary("b", "", "jarvis-direct", "m", total, scored, 0, None, total - scored, None, None)
    summary.planned_samples, summary.outcomes = total, dict(outcomes)
    return summary


def _rows(path: Path, *failures: tuple[str, str, str]) -> Path:
    rows = [{"record_id": i, "outcome": outcome, "error": error} for i, outcome, error in failures]
    blank = {"category": "", "prompt": "", "reference": "", "model_answer": ""}
    path.write_text("".join(json.dumps({**blank, **row}) + "\n" for row in rows))
    return path


def test_the_message_most_samples_share_is_given_with_one_of_them(tmp_path: Path) -> None:
    rows = _rows(
        tmp_path / "b_m.jsonl",
        ("r1", "engine_error", "HTTP 500: odd"),
        ("r2", "correct", ""),
        ("r3", "scorer_error", "no reference"),
        ("r4", "scorer_error", "no   reference"),
    )
    reason = why_failed(_summary(4, 1, correct=1, engine_error=1, scorer_error=2), 0.1, rows)
    assert reason.startswith("3 of 4 samples failed, more than 10%: 1 engine_error, 2 scorer_error; ")
    assert "most often (2) scorer_error, as of record 'r3': no reference" in reason


@pytest.mark.parametrize("content", [None, "not rows\n"])
def test_rows_that_cannot_be_read_leave_out_the_example(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "b_m.jsonl"
    if content is not None:
        path.write_text(content)
    assert why_failed(_summary(2, 0, engine_error=2), 0.1, path) == (
        "none of 2 samples could be scored: 2 engine_error"
    )


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    rows = _rows(tmp_path / "b_m.jsonl", ("r1", "engine_error", "x" * 5_000))
    assert len(why_failed(_summary(1, 0, engine_error=1), 0.1, rows)) < 450


def test_a_plan_of_nothing_says_so(tmp_path: Path) -> None:
    assert why_failed(_summary(0, 0), 0.1, tmp_path / "none.jsonl") == "there was nothing to do"
