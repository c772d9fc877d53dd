"""A scorer's own rates: counted from the rows' scoring metadata, over the samples they concern."""

from __future__ import annotations

from typing import Any

import pytest

from evalray.store import SweepStore, read_summary
from evalray.types import EvalRecord, Generation, Outcome, RunSummary, Score

RATES = {"position_bias_rate": "position_flip", "strict": "win_or_tie_both"}


def run_with(driver: Any, scores: list[Score], rates: dict[str, str] | None) -> RunSummary:
    info: dict[str, Any] = {"engine": "mock", "warnings": []}
    if rates is not None:
        info["summary_rates"] = rates
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=len(scores), epochs=1, pass_k=[], info=info)
        for position, score in enumerate(scores):
            record = EvalRecord(f"r{position}", "Q?", "a", "chat")
            run.append_generation(position, 0, 1, record, Generation(model_answer="a"))
            run.append_score(position, 0, record.record_id, score)
        summary: RunSummary = run.finalize()
    return summary


def flipped(flip: object, both: object = True) -> Score:
    return Score(Outcome.CORRECT, metadata={"position_flip": flip, "win_or_tie_both": both})


def test_a_rate_is_over_the_samples_in_which_it_is_true_or_false(driver: Any) -> None:
    unread = Score(Outcome.JUDGE_ERROR, metadata={"reason": "grade_parse_failure"})
    scores = [
        flipped(True),
        flipped(False, False),
        flipped(False),
        flipped(None),
        unread,
        flipped(1),
        flipped("yes"),
    ]
    summary = run_with(driver, scores, RATES)
    assert summary.scorer_rates == {
        "position_bias_rate": pytest.approx(1 / 3),
        "strict": pytest.approx(5 / 6),
    }


def test_a_rate_without_samples_is_not_measured(driver: Any) -> None:
    assert run_with(driver, [flipped(None)], {"bias": "position_flip"}).scorer_rates == {"bias": None}


def test_a_scorer_without_rates_gets_none(driver: Any) -> None:
    assert run_with(driver, [flipped(True)], None).scorer_rates == {}


def test_rates_are_counted_across_batches_of_rows(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalray.store.summary._BATCH_ROWS", 3)
    scores = [flipped(number % 4 == 0) for number in range(20)]
    summary = run_with(driver, scores, RATES)
    assert summary.scorer_rates["position_bias_rate"] == pytest.approx(0.25)


def test_rates_read_back_from_the_summary_as_they_were(driver: Any) -> None:
    summary = run_with(driver, [flipped(True), flipped(False)], RATES)
    assert read_summary(driver.directory / "b_m.summary.json").scorer_rates == summary.scorer_rates


@pytest.mark.parametrize(("flips", "warned"), [(1, False), (3, True), (10, True)])
def test_a_judge_that_prefers_a_place_is_warned_of(driver: Any, flips: int, warned: bool) -> None:
    scores = [flipped(number < flips) for number in range(10)]
    summary = run_with(driver, scores, RATES)
    assert any("prefers a place" in warning for warning in summary.warnings) is warned
