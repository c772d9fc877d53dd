from __future__ import annotations

from typing import Any

import pytest

from evalray.store.rows import _why_unscored


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"reason": "judge_failed", "error": "judge j: HTTP 500"}, "judge j: HTTP 500"),
        (
            {"reason": "no judge configured"},
            "no judge was given: --judge-model, or [judge] model in the suite",
        ),
        (
            {"reason": "grade_parse_failure", "raw_judge_output": "The answer\x1b[31m is C."},
            "the judge's reply could not be read: 'The answer\\x1b[31m is C.'",
        ),
        (
            {"reason": "grade_parse_failure", "raw_judge_output": "Hm.", "judge": {"model": "j"}},
            "the reply of judge j could not be read: 'Hm.'",
        ),
        ({"reason": "judge_failed", "error": "cut short", "judge": {"model": "j"}}, "judge j: cut short"),
        ({"reason": "judge_failed", "error": "judge j: odd", "judge": {"model": "j"}}, "judge j: odd"),
        ({"reason": "exception"}, "exception"),
        ({}, ""),
    ],
)
def test_a_sample_without_a_verdict_says_why(metadata: dict[str, Any], why: str) -> None:
    assert _why_unscored(metadata) == why


def test_a_long_reply_is_cut() -> None:
    assert len(_why_unscored({"raw_judge_output": "x" * 10_000})) < 130
