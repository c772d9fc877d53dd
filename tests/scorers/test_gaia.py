"""GAIA: the published rule bit for bit, the human reading, and what the judge may change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.scorers import Answer, GAIAScorer, JudgeCall
from evalray.scorers.gaia import exact_match, extract_final_answer, human_match
from evalray.types import Outcome


@pytest.mark.parametrize(
    ("answer", "gold", "official", "human"),
    [
        ("17000", "17,000", False, True),
        ("1000", "1,000", False, True),
        ("17,000", "17,000", True, True),
        ("I do not know", "inf", True, False),
        ("abc", "inf", True, False),
        ("infinity", "inf", True, True),
        ("0.5%", "0.5", True, False),
        ("50%", "0.5", False, True),
        ("50", "50%", True, True),
        ("1,000, 2,000", "1000, 2000", False, True),
        ("1000, 2000", "1000, 2000", True, True),
        ("12 km", "12", False, True),
        ("12 apples", "12", False, True),
        ("12 or 13", "12", False, False),
        ("12 and a half", "12", False, False),
        ("17 thousand", "17000", False, True),
        ("1/2", "0.5", False, True),
        ("-5", "\u22125", False, True),
        ("5", "-5", False, False),
        ("cafe\u0301", "caf\u00e9", False, True),
        ("$1,000", "1000", True, True),
        ("paris", "Paris", True, True),
        ("hello world", "helloworld", True, True),
        ("The answer is 17", "17", False, True),
        ("3, 5", "3,5", True, True),
        ("3; 5", "3,5", True, True),
        ("5, 3", "3, 5", False, False),
        ("b, a", "a, b", False, False),
        ("a, b, c", "a, b", False, False),
        ("a, b, and c", "a, b, c", False, True),
        ("St. Louis, x", "St Louis, x", False, True),
        ("32", "3-2", True, False),
        ("C", "C++", True, False),
        ("", "17", False, False),
        ("nan", "nan", False, True),
        ("1_7", "17", True, False),
        ("3.0", "3", True, True),
        ("12 ", "12", True, True),
    ],
)
def test_the_official_rule_and_a_human_reader(answer: str, gold: str, official: bool, human: bool) -> None:
    assert exact_match(answer, gold) is official
    assert human_match(answer, gold) is human


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("FINAL ANSWER: 3", "3"),
        ("I count them.\n\nFINAL ANSWER: 3\n", "3"),
        ("**FINAL ANSWER:** 3", "3"),
        ("**FINAL ANSWER: 3**", "3"),
        ("**Final Answer**: 3", "3"),
        ("FINAL ANSWER:\n3", "3"),
        ("FINAL ANSWER: 4\nNo.\nFINAL ANSWER: 3", "3"),
        ("FINAL ANSWER: 3\nBecause there are three.", "3"),
        ("  3 ", "3"),
        ("semifinal answer: 4", "semifinal answer: 4"),
        ("FINAL ANSWER:", "FINAL ANSWER:"),
    ],
)
def test_the_final_answer_is_stripped_of_its_marker(text: str, value: str) -> None:
    assert extract_final_answer(text).value == value


def test_both_readings_are_stored_for_every_sample(record: Any, judging: Any) -> None:
    for text, gold, outcome, human in (
        ("FINAL ANSWER: 3", "3", Outcome.CORRECT, True),
        ("I do not know", "inf", Outcome.CORRECT, False),
        ("17 thousand", "17000", Outcome.INCORRECT, True),
        ("no idea", "17000", Outcome.INCORRECT, False),
    ):
        score = judging(GAIAScorer(judge=False), record(gold), text)
        assert score.outcome is outcome
        assert score.metadata["gaia_official"] is (outcome is Outcome.CORRECT)
        assert score.metadata["gaia_human"] is human


def test_an_exact_match_asks_no_judge(record: Any, judging: Any) -> None:
    score = judging(GAIAScorer(), record("3"), "FINAL ANSWER: 3")
    assert score.metadata["match_type"] == "exact"
    assert score.metadata["gaia_with_judge"] is True


@pytest.mark.parametrize(
    ("reply", "with_judge", "seed_outcome"),
    [
        ("correct: yes", True, Outcome.CORRECT),
        ("correct: no", False, Outcome.INCORRECT),
        ("no comment", None, Outcome.JUDGE_ERROR),
    ],
)
def test_the_judge_never_changes_the_official_headline_and_decides_the_seeds(
    reply: str, with_judge: bool | None, seed_outcome: Outcome, record: Any, judging: Any
) -> None:
    official = judging(GAIAScorer(), record("17000"), "17 thousand", reply)
    seed = judging(GAIAScorer(headline="seed"), record("17000"), "17 thousand", reply)
    assert official.outcome is Outcome.INCORRECT
    assert seed.outcome is seed_outcome
    for score in (official, seed):
        assert score.metadata["match_type"] == "llm_fallback"
        assert score.metadata["gaia_with_judge"] is with_judge
        assert score.metadata["raw_judge_output"] == reply


def test_the_official_outcome_stands_without_a_judge_and_the_seeds_does_not(record: Any) -> None:
    answer = Answer("17 thousand", "stop")
    official = GAIAScorer().assess(record("17000"), answer)
    seed = GAIAScorer(headline="seed").assess(record("17000"), answer)
    assert isinstance(official, JudgeCall)
    assert isinstance(seed, JudgeCall)
    assert official.decided
    assert official.unjudged is not None
    assert official.unjudged.outcome is Outcome.INCORRECT
    assert (seed.unjudged, seed.decided) == (None, False)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("FINAL ANSWER: 3\nfor", Outcome.CORRECT),
        ("FINAL ANSWER: 3", Outcome.TRUNCATED),  # it may have been 35
        ("3", Outcome.TRUNCATED),
        ("I count", Outcome.TRUNCATED),
    ],
)
def test_of_a_cut_off_answer_only_a_finished_final_line_counts(
    text: str, outcome: Outcome, record: Any, judging: Any
) -> None:
    assert judging(GAIAScorer(), record("3"), text, finish_reason="length").outcome is outcome


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_breaks_either_reading(answer: str, gold: str) -> None:
    assert exact_match(answer, gold) in (True, False)
    assert human_match(answer, gold) in (True, False)


@given(st.integers(-(10**9), 10**9))
def test_a_human_reads_a_whole_number_however_it_is_written(number: int) -> None:
    assert human_match(f"{number:,}", str(number))
    assert human_match(str(number), f"{number:,}")
    assert not human_match(str(number + 1), str(number))
