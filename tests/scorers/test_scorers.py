"""The scorers as a run uses them: outcomes, metadata, bounds, purity."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.scorers import Answer, ExactScorer, MathScorer, MCQScorer, NumberScorer, Scorer
from evalray.types import EvalRecord, Outcome, Score


def assess(scorer: Scorer, record: EvalRecord, text: str, finish_reason: str | None = "stop") -> Score:
    score = scorer.assess(record, Answer(text, finish_reason))
    assert isinstance(score, Score)
    return score


@pytest.mark.parametrize(
    ("text", "finish_reason", "outcome"),
    [
        ("ANSWER: B", "stop", Outcome.CORRECT),
        ("ANSWER: C", "stop", Outcome.INCORRECT),
        ("I cannot say.", "stop", Outcome.UNPARSED),
        ("", "stop", Outcome.UNPARSED),
        ("", "length", Outcome.TRUNCATED),
        ("B) Paris is", "length", Outcome.TRUNCATED),
        ("ANSWER: B. To exp", "length", Outcome.CORRECT),
        ("ANSWER: C. To exp", "length", Outcome.INCORRECT),
        ("B", None, Outcome.CORRECT),
    ],
)
def test_mcq_outcomes(record: Any, text: str, finish_reason: str | None, outcome: Outcome) -> None:
    assert assess(MCQScorer(), record("B", options=["x", "y", "z"]), text, finish_reason).outcome is outcome


@pytest.mark.parametrize(
    ("letter", "outcome"),
    [("A", Outcome.INCORRECT), ("B", Outcome.CORRECT), ("C", Outcome.INCORRECT), ("D", Outcome.CORRECT)],
)
def test_an_option_that_stands_there_twice_is_right_under_either_letter(
    record: Any, letter: str, outcome: Outcome
) -> None:
    question = record("B", options=["y", "x", "X", "x "])
    assert MCQScorer().assess(question, Answer(f"ANSWER: {letter}", "stop")).outcome is outcome


def test_mcq_metadata_carries_the_seed_keys(record: Any) -> None:
    right = assess(MCQScorer(), record("B", options=["x", "y", "z"]), "ANSWER: C")
    assert right.metadata == {
        "extracted": "C",
        "rule": "marker",
        "reference_letter": "B",
        "candidate_letter": "C",
        "valid_letters": "ABC",
    }
    unread = assess(MCQScorer(), record("B", options=["x", "y", "z"]), "?")
    assert unread.metadata["reason"] == "no_choice_letter_extracted"
    assert unread.metadata["candidate_letter"] is None


@pytest.mark.parametrize(
    ("metadata", "valid"),
    [
        ({"options": ["x", "y", "z"]}, "ABC"),
        ({"options": {"A": "x", "B": "y"}}, "AB"),
        ({"letters": "ABCDE"}, "ABCDE"),
        ({"letters": ["a", "b"]}, "AB"),
        ({"options": [str(index) for index in range(40)]}, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ({}, "ABCDEFGHIJ"),
        ({"options": [], "letters": ""}, "ABCDEFGHIJ"),
    ],
)
def test_valid_letters_come_from_the_record(record: Any, metadata: dict[str, Any], valid: str) -> None:
    assert assess(MCQScorer(), record("B", **metadata), "B").metadata["valid_letters"] == valid


@pytest.mark.parametrize("reference", ["B", "b", "(B)", " B. ", "Paris", "paris"])
def test_a_reference_may_be_a_letter_or_an_option_text(record: Any, reference: str) -> None:
    score = assess(MCQScorer(), record(reference, options=["London", "Paris"]), "ANSWER: B")
    assert score.outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("scorer", "reference", "reason"),
    [
        (MCQScorer(), "", "missing_reference_letter"),
        (MCQScorer(letters="ABCD"), "E", "missing_reference_letter"),
        (NumberScorer(), "", "reference_is_no_number"),
        (NumberScorer(), "no number", "reference_is_no_number"),
        (ExactScorer(), " ", "missing_reference"),
        (MathScorer(), "", "missing_reference"),
    ],
)
def test_an_unusable_reference_is_never_the_models_fault(
    record: Any, scorer: Scorer, reference: str, reason: str
) -> None:
    score = assess(scorer, record(reference), "ANSWER: B")
    assert score.outcome is Outcome.SCORER_ERROR
    assert score.score is None
    assert score.metadata["reason"] == reason


@pytest.mark.parametrize(
    ("reference", "text", "finish_reason", "outcome"),
    [
        ("5", "The answer is 25", "stop", Outcome.INCORRECT),
        ("-5", "5", "stop", Outcome.INCORRECT),
        ("11", "ANSWER: 711", "stop", Outcome.INCORRECT),
        ("49", "149", "stop", Outcome.INCORRECT),
        ("18", "#### 18.00", "stop", Outcome.CORRECT),
        ("She sells 18.\n#### 1,800", "\\boxed{1800}", "stop", Outcome.CORRECT),
        ("18", "She sells 18", "length", Outcome.TRUNCATED),
        ("12", "#### 12", "length", Outcome.TRUNCATED),
        ("12", "#### 12\n", "length", Outcome.CORRECT),
        ("18", "eighteen", "stop", Outcome.UNPARSED),
        ("18", "", None, Outcome.UNPARSED),
    ],
)
def test_number_outcomes(
    record: Any, reference: str, text: str, finish_reason: str | None, outcome: Outcome
) -> None:
    assert assess(NumberScorer(), record(reference), text, finish_reason).outcome is outcome


@pytest.mark.parametrize(
    ("text", "finish_reason", "outcome"),
    [
        ("Paris", "stop", Outcome.CORRECT),
        (" **paris**.\n", "stop", Outcome.CORRECT),
        ("We look it up.\nAnswer: Paris", "stop", Outcome.CORRECT),
        ("**Answer:** Paris\n", "stop", Outcome.CORRECT),
        ("The answer is Paris.", "stop", Outcome.CORRECT),
        ("Answer: Paris\nNo, sorry.\nAnswer: Rome", "stop", Outcome.INCORRECT),
        ("Paris is in France", "stop", Outcome.INCORRECT),
        ("not Paris", "stop", Outcome.INCORRECT),
        ("", "stop", Outcome.UNPARSED),
        ("Paris", "length", Outcome.TRUNCATED),
        ("Answer: Paris", "length", Outcome.TRUNCATED),
        ("Answer: Paris\nbecause", "length", Outcome.CORRECT),
    ],
)
def test_exact_outcomes(record: Any, text: str, finish_reason: str | None, outcome: Outcome) -> None:
    assert assess(ExactScorer(), record("Paris"), text, finish_reason).outcome is outcome


def test_exact_accepts_any_of_several_references(record: Any) -> None:
    assert (
        assess(ExactScorer(), record("x", references=["UK", "Britain"]), "britain").outcome is Outcome.CORRECT
    )
    assert assess(ExactScorer(separator="|"), record("UK|Britain"), "Britain").outcome is Outcome.CORRECT
    assert assess(ExactScorer(), record("UK|Britain"), "Britain").outcome is Outcome.INCORRECT


def test_exact_on_the_whole_reply_looks_for_no_marker(record: Any) -> None:
    scorer = ExactScorer(whole_reply=True)
    assert assess(scorer, record("Paris"), "Answer: Paris").outcome is Outcome.INCORRECT
    assert assess(scorer, record("Answer: Paris"), "answer: paris").outcome is Outcome.CORRECT


def test_exact_keeps_the_sign(record: Any) -> None:
    assert assess(ExactScorer(), record("-5"), "5").outcome is Outcome.INCORRECT


@pytest.mark.parametrize(
    ("scorer", "reference", "right", "wrong"),
    [
        (MCQScorer(), "B", "ANSWER: B", "ANSWER: C"),
        (NumberScorer(), "18", "#### 18", "#### 19"),
        (ExactScorer(), "Paris", "Paris", "Answer: Rome"),
        (ExactScorer(whole_reply=True), "Paris", "Paris", "Rome"),
        (MathScorer(), "5", "\\boxed{5}", "\\boxed{6}"),
    ],
)
def test_a_train_of_thought_is_never_graded(
    record: Any, scorer: Scorer, reference: str, right: str, wrong: str
) -> None:
    gold = record(reference)
    assert assess(scorer, gold, f"<think>\n{wrong}\n</think>\n\n{right}").outcome is Outcome.CORRECT
    assert assess(scorer, gold, f"{wrong}\n</think>\n{right}").outcome is Outcome.CORRECT
    assert assess(scorer, gold, f"<think>\n{right}\n</think>").outcome is Outcome.UNPARSED
    assert assess(scorer, gold, f"<think>\n{right}\n", "length").outcome is Outcome.TRUNCATED


RULE_SCORERS: list[tuple[Scorer, str]] = [
    (MCQScorer(), "B"),
    (NumberScorer(), "18"),
    (ExactScorer(), "Paris"),
    (ExactScorer(punctuation="all", ignore_articles=True), "Paris"),
]
ANSWER_PIECES = [
    *(
        "ANSWER: ",
        "The answer is ",
        "\\boxed{",
        "}",
        "{",
        "$",
        "**",
        "_",
        "#### ",
        "####",
        "(",
        ")",
        "B",
        "A",
        "I",
    ),
    *(
        "\n",
        "\n\n",
        " ",
        "not ",
        "Question:",
        "18",
        "1,",
        ",",
        ".",
        "-",
        "/",
        "=",
        "^",
        "e",
        "10",
        "\\frac{1}{0}",
    ),
    *(
        "\u200b",
        "\ud800",
        "\0",
        "\u2212",
        "\u0130",
        "\u00b2",
        "\u0661",
        "\uff11",
        "or ",
        "option ",
        "I choose ",
        "<b>",
    ),
]
any_text = st.one_of(
    st.text(), st.text(st.characters()), st.lists(st.sampled_from(ANSWER_PIECES), max_size=40).map("".join)
)


@pytest.mark.parametrize(("scorer", "reference"), RULE_SCORERS)
@given(text=any_text, reason=st.sampled_from(["stop", "length", None]))
def test_scorers_never_raise_and_are_pure(
    scorer: Scorer, reference: str, text: str, reason: str | None
) -> None:
    record = EvalRecord("r1", "?", reference, "reasoning", metadata={"options": ["x", "Paris", "18"]})
    before = copy.deepcopy(record)
    first = assess(scorer, record, text, reason)
    assert first.outcome is not Outcome.SCORER_ERROR
    assert (assess(scorer, record, text, reason), record) == (first, before)


@pytest.mark.parametrize(
    ("scorer", "text"), [(MCQScorer(), "B"), (NumberScorer(), "18"), (ExactScorer(), "Paris")]
)
@given(reference=any_text)
def test_scorers_never_raise_on_any_reference(scorer: Scorer, text: str, reference: str) -> None:
    assess(scorer, EvalRecord("r1", "?", reference, "reasoning"), text)


@given(text=any_text, reference=any_text)
def test_the_shortcut_of_math_never_raises(text: str, reference: str) -> None:
    record = EvalRecord("r1", "?", reference, "reasoning")
    score = MathScorer().shortcut(record, Answer(text))
    assert score is None or isinstance(score, Score)


HOSTILE = [
    *(
        "ANSWER: ",
        "ANSWER: A or ",
        "answer is ",
        "answer for ",
        "#### ",
        "#### 1 x ",
        "\\boxed{",
        "I choose ",
        "not ",
    ),
    *("(", "{", "}", "$", "*", "_", "`", "<", "<b>", "\\", "\\text{", "\\(", '"', "'"),
    *(
        " ",
        "\n",
        "\t",
        " \n",
        "\r",
        "\u00a0",
        "\u200b",
        "-",
        ".",
        ",",
        "1",
        "1,",
        "1 ",
        "1.",
        "1/",
        "0,0",
        "x ",
        "\u00e9",
    ),
    *("A) \n", "B. ", "Question: ", "\nQuestion: x", "answer: x = ", "=1", "e1", "answer"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", HOSTILE)
def test_ten_megabytes_of_anything_are_scored(piece: str) -> None:
    filling = piece * (10_000_000 // len(piece))
    options = {"options": ["x", "Paris", "18"]}
    for text in (filling, filling[:1_000_000] + "\nANSWER: B"):
        for scorer, reference in RULE_SCORERS[:3]:
            assess(scorer, EvalRecord("r1", "?", reference, "reasoning", metadata=options), text)
        MathScorer().shortcut(EvalRecord("r1", "?", "x+1", "reasoning"), Answer(text))


@pytest.mark.parametrize("filler", ["So we go on. ", "x" * 50 + "\n"])
def test_an_answer_at_either_end_of_a_huge_reply_is_read(record: Any, filler: str) -> None:
    filling = filler * 200_000
    assert assess(MCQScorer(), record("B"), filling + "\nANSWER: B").outcome is Outcome.CORRECT
    assert assess(NumberScorer(), record("18"), filling + "\n#### 18").outcome is Outcome.CORRECT
    assert assess(MCQScorer(), record("B"), "B) because\n" + filling).outcome is Outcome.CORRECT
    assert assess(NumberScorer(), record("18"), "#### 18\n" + filling).outcome is Outcome.CORRECT


def test_what_is_kept_of_a_huge_answer_is_short(record: Any) -> None:
    score = assess(ExactScorer(), record("Paris"), "y" * 1_000_000)
    assert len(score.metadata["extracted"]) < 1_000
