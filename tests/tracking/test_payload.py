from __future__ import annotations

from evalray.reports import ReportedRun
from evalray.tracking.payload import run_metrics, run_note
from evalray.types import RunSummary


def _summary() -> RunSummary:
    return RunSummary("wildchat", "chat", "jarvis-direct", "m", 2, 2, 1, 0.5, 0, 1.0, None)


def test_what_a_scorer_says_beside_the_accuracy_is_a_metric() -> None:
    summary = _summary()
    summary.scorer_rates = {"position_bias_rate": 0.25, "unknown": None}
    metrics = run_metrics(summary)
    assert (metrics["score/position_bias_rate"], metrics["score/unknown"]) == (0.25, None)


def test_the_description_of_a_run_names_a_judge_that_could_not_be_asked() -> None:
    summary = _summary()
    summary.judge_problem = "judge j: no connection"
    assert "judge j: no connection" in run_note(ReportedRun("wildchat_m", summary))
