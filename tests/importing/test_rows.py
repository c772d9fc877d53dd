"""What one of OpenJarvis's rows means here."""

from __future__ import annotations

from typing import Any

import pytest

from evalray.importing import RowError, convert, identify
from evalray.types import Outcome

NO_LETTER = {"reason": "no_choice_letter_extracted"}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"is_correct": True}, Outcome.CORRECT),
        ({"is_correct": False, "score": 0.0}, Outcome.INCORRECT),
        ({"is_correct": None, "score": None, "scoring_metadata": NO_LETTER}, Outcome.UNPARSED),
        ({"is_correct": None, "scoring_metadata": {"reason": "empty_response"}}, Outcome.UNPARSED),
        ({"is_correct": None, "scoring_metadata": {}}, Outcome.UNPARSED),
        ({"is_correct": None, "scoring_metadata": {}, "benchmark": "frames"}, Outcome.JUDGE_ERROR),
        ({"is_correct": None, "scoring_metadata": None, "benchmark": "wildchat"}, Outcome.JUDGE_ERROR),
        ({"is_correct": None, "scoring_metadata": {"reason": "judge said nothing"}}, Outcome.JUDGE_ERROR),
        (
            {"is_correct": None, "scoring_metadata": {"reason": "missing_reference_letter"}},
            Outcome.SCORER_ERROR,
        ),
        ({"is_correct": None, "error": "judge: 500"}, Outcome.SCORER_ERROR),
    ],
)
def test_a_verdict_becomes_an_outcome(make_row, changes: dict[str, Any], outcome: Outcome) -> None:
    found = convert(make_row(**changes), "reasoning")
    assert found.score is not None
    assert found.score.outcome is outcome
    assert (
        found.score.metadata["imported"]["is_correct"] == changes["is_correct"]
        if "is_correct" in changes
        else True
    )


def test_a_failed_request_is_an_engine_error_and_never_scored(make_row) -> None:
    found = convert(make_row(error="timed out", is_correct=None, model_answer=""), "")
    assert found.score is None
    assert found.generation is not None
    assert (found.generation.error, found.generation.error_kind) == ("timed out", "engine")


def test_zeros_that_mean_not_measured_become_none(make_row) -> None:
    generation = convert(make_row(latency_seconds=0.0, prompt_tokens=0, completion_tokens=0), "").generation
    assert generation is not None
    assert generation.telemetry is None
    assert generation.timeline.ttft_seconds is generation.timeline.itl_mean_seconds is None
    assert generation.timeline.latency_seconds is None
    assert generation.prompt_tokens is generation.completion_tokens is generation.cost_usd is None


def test_an_empty_answer_has_zero_tokens(make_row) -> None:
    generation = convert(make_row(model_answer="", completion_tokens=0), "").generation
    assert generation is not None
    assert generation.completion_tokens == 0


def test_measured_telemetry_is_kept_and_zeros_beside_it_are_real(make_row) -> None:
    row = make_row(
        is_correct=False,
        energy_joules=50.0,
        power_watts=100.0,
        gpu_energy_joules=40.0,
        energy_method="polling",
        mfu_pct=3.0,
        ttft=0.2,
        mean_itl_ms=20.0,
    )
    generation = convert(row, "").generation
    assert generation is not None
    assert generation.telemetry == {
        "energy_joules": 50.0,
        "power_watts": 100.0,
        "gpu_energy_joules": 40.0,
        "mfu_pct": 3.0,
        "gpu_utilization_pct": 0.0,
        "ipw": 0.0,
        "ipj": 0.0,
        "energy_method": "polling",
    }
    assert generation.timeline.ttft_seconds == 0.2
    assert generation.timeline.itl_mean_seconds == 0.02


def test_efficiency_of_an_undecided_answer_was_not_measured(make_row) -> None:
    row = make_row(is_correct=None, energy_joules=50.0, power_watts=100.0)
    generation = convert(row, "").generation
    assert generation is not None
    assert generation.telemetry is not None
    assert "ipj" not in generation.telemetry


def test_the_reference_comes_from_the_scorers_metadata(make_row) -> None:
    assert convert(make_row(), "").record.reference == "B"
    assert convert(make_row(scoring_metadata={}), "").record.reference == ""


def test_reasoning_left_in_an_answer_is_split_off(make_row) -> None:
    generation = convert(make_row(model_answer="<think>Is it A?</think>\nB"), "").generation
    assert generation is not None
    assert (generation.model_answer, generation.reasoning) == ("B", "Is it A?")
    assert generation.raw_text == "<think>Is it A?</think>\nB"


def test_rows_evalray_exported_keep_outcome_zeros_and_texts(make_row) -> None:
    row = make_row(
        schema_version=1,
        outcome="truncated",
        prompt="Q",
        reference="R",
        subject="S",
        cost_usd=0.0,
        is_correct=False,
    )
    found = convert(row, "")
    assert found.score is not None
    assert found.score.outcome is Outcome.TRUNCATED
    assert (found.record.problem, found.record.reference, found.record.subject) == ("Q", "R", "S")
    assert found.generation is not None
    assert found.generation.cost_usd == 0.0
    skipped = convert(make_row(schema_version=1, outcome="skipped", error="budget"), "")
    assert (skipped.generation, skipped.skipped) == (None, "budget")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record_id": 7}, "'record_id' is 7"),
        ({"model": ""}, "'model' is ''"),
        ({"is_correct": "yes"}, "'is_correct' is 'yes'"),
        ({"epoch": -1}, "'epoch' is -1"),
        ({"epoch": True}, "'epoch' is True"),
    ],
)
def test_a_row_of_the_wrong_types_is_refused(make_row, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        identify(make_row(**changes))


@pytest.mark.parametrize("missing", ["record_id", "benchmark", "model", "is_correct"])
def test_a_row_without_its_key_is_refused(make_row, missing: str) -> None:
    row = make_row()
    del row[missing]
    with pytest.raises(RowError, match=missing):
        identify(row)


@pytest.mark.parametrize(
    "name", ["latency_seconds", "prompt_tokens", "cost_usd", "energy_joules", "score", "ttft"]
)
@pytest.mark.parametrize("value", ["12", None, True, float("nan"), [1], 10**400, -(10**400)])
def test_a_figure_that_is_no_number_was_not_measured(make_row, name: str, value: object) -> None:
    found = convert(make_row(**{name: value}), "")
    assert found.generation is not None
    assert found.score is not None
    assert found.score.score == 1.0
