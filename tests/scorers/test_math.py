"""Mathematical equivalence: what is read, what is equal, and what is left undecided."""

from __future__ import annotations

from typing import Any

import pytest

from evalray.scorers import Answer, MathScorer, extract_math
from evalray.scorers.equivalence import to_latex
from evalray.scorers.math import quick_match
from evalray.types import Outcome, Score


def assess(record: Any, text: str, finish_reason: str | None = "stop") -> Score:
    score = MathScorer().assess(record, Answer(text, finish_reason))
    assert isinstance(score, Score)
    return score


@pytest.mark.parametrize(
    ("text", "value", "rule"),
    [
        ("The domain is \\boxed{[2,5)}", "[2,5)", "boxed"),
        ("First \\boxed{1}, then \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}", "boxed"),
        ("\\boxed{\\{x : x > 0\\}}", "\\{x : x > 0\\}", "boxed"),
        ("The answer is $\\frac{1}{2}$ because $x = 2$.", "\\frac{1}{2}", "answer"),
        ("**Answer:** pi/2\n", "pi/2", "answer"),
        ("We have $x=1$ and so $y=2$.", "y=2", "last_math"),
        ("So \\(x+1\\).", "x+1", "last_math"),
        ("pi/2", "pi/2", "whole_reply"),
        ("I have no idea.\nNone at all.", None, "none"),
        ("\\boxed{", "\\boxed{", "whole_reply"),
        ("", None, "none"),
    ],
)
def test_the_answer_is_read_from_box_marker_or_delimiters(text: str, value: str | None, rule: str) -> None:
    extraction = extract_math(text)
    assert (extraction.value, extraction.rule) == (value, rule)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\boxed{3} since", "3"),
        ("The answer is $3$, si", "3"),
        ("The answer is 3\nsi", "3"),
        ("The answer is 3", None),
        ("so $x=3$ an", None),
        ("3", None),
        ("\\boxed{3", None),
    ],
)
def test_a_cut_off_answer_counts_only_with_a_closed_marker(text: str, value: str | None) -> None:
    assert extract_math(text, explicit_only=True).value == value


EQUAL = [
    ("[2,5)", "The domain is \\boxed{[2,5)}"),
    ("\\dfrac{\\pi}{2}", "pi/2"),
    ("\\frac{\\pi}{2}", "\\boxed{\\dfrac{\\pi}{2}}"),
    ("\\frac{1}{2}", "0.5"),
    ("\\sqrt{1/n}", "1/sqrt(n)"),
    ("\\frac{1}{\\sqrt{n}}", "$\\sqrt{\\frac{1}{n}}$"),
    ("x^2+1", "1+x**2"),
    ("2x+3y", "2*x + 3*y"),
    ("x^{10}", "x^10"),
    ("e^{x+1}", "exp(x+1)"),
    ("2\\sqrt{3}", "2sqrt(3)"),
    ("(3, \\frac{\\pi}{2})", "(3, pi/2)"),
    ("(-\\infty, 5)", "(-inf, 5)"),
    ("[2,5)", "2 <= x < 5"),
    ("3 1/2", "\\frac{7}{2}"),
    ("5", "x = 5"),
    ("1,234", "1234"),
    ("\\$2\\sqrt{3}", "2sqrt(3)"),
    ("10\\%", "0.1"),
    ("0,1", "(0,1)"),
    ("0,1", "1,0"),
    ("1 or 2", "\\boxed{2, 1}"),
    ("\\text{Friday}", "\\boxed{friday}"),
    ("\\text{even}", "The answer is even."),
    ("\\forall x>0, f(x)=0", "$\\forall x > 0, f(x) = 0$"),
    ("90^\\circ", "90\u00b0"),
    ("\u03c0", "\\pi"),
]


@pytest.mark.parametrize(("reference", "text"), EQUAL)
def test_equal_expressions_are_correct(record: Any, reference: str, text: str) -> None:
    assert assess(record(reference), text).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("5", "-5"),
        ("11", "711"),
        ("0,1", "01"),
        ("[2,5)", "\\boxed{(2,5)}"),
        ("[2,5)", "7"),
        ("7", "[2,5)"),
        ("\\{1,2\\}", "(1,2)"),
        ("(1,2)", "\\{1,2\\}"),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "5"),
        ("x", "|x|"),
        ("|x|", "x"),
        ("\\sqrt{x^2}", "x"),
        ("2\\log x", "\\log(x^2)"),
        ("x+1", "x+2"),
        ("x=5", "\\boxed{x<5}"),
        ("\\text{Friday}", "\\boxed{Monday}"),
        ("\\text{Friday}", "5"),
        ("5", "\\boxed{\\text{no solution}}"),
        ("f(x)=0", "forall x>0, f(x)=0"),
        ("\\forall x>0, f(x)=0", "f(x)=0"),
        ("f(x)=0", "f(x)=0 for all x > 0"),
    ],
)
def test_different_expressions_are_incorrect(record: Any, reference: str, text: str) -> None:
    assert assess(record(reference), text).outcome is Outcome.INCORRECT


def test_two_different_quantified_statements_are_left_undecided(record: Any) -> None:
    score = assess(record("\\forall x>0, f(x)=0"), "\\forall y>0, f(y)=0")
    assert score.outcome is Outcome.SCORER_ERROR
    assert score.metadata["reason"] == "quantified_statements_differ_as_text"


@pytest.mark.parametrize(
    "text", ["\\boxed{\\frac{}", "\\boxed{" + "(" * 500 + "}", "\\boxed{" + "x+" * 2000 + "}"]
)
def test_an_answer_that_cannot_be_read_as_mathematics_is_unparsed(record: Any, text: str) -> None:
    assert assess(record("x+1"), text).outcome is Outcome.UNPARSED


def test_a_reference_that_cannot_be_read_is_no_wrong_answer(record: Any) -> None:
    score = assess(record("\\frac{"), "x+5")
    assert score.outcome is Outcome.SCORER_ERROR
    assert score.metadata["reason"] == "reference_not_understood"


def test_what_the_library_raises_is_a_scorer_error(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reference: str, candidate: str) -> bool:
        raise ValueError("signal only works in main thread of the main interpreter")

    monkeypatch.setattr("evalray.scorers.equivalence.expressions_equal", fail)
    score = assess(record("x+1"), "1+x")
    assert score.outcome is Outcome.SCORER_ERROR
    assert "signal only works" in score.metadata["error"]


def test_a_cut_off_answer_is_truncated(record: Any) -> None:
    assert assess(record("x+1"), "so $x+1$ an", "length").outcome is Outcome.TRUNCATED


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ("\\dfrac12", "\\frac 12", True),
        ("\\left[2, 5\\right)", "[2,5)", True),
        ("5", "6", False),
        ("5", "5.0", True),
        ("\\pi/2", "pi/2", None),
        ("x", "y", None),
        ("10\\%", "10", None),
    ],
)
def test_text_and_exact_numbers_decide_without_the_library(
    reference: str, candidate: str, expected: bool | None
) -> None:
    assert quick_match(reference, candidate) is expected


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("sqrt(1/(n+1))", "\\sqrt{1/(n+1)}"),
        ("sqrt(sqrt(2))", "\\sqrt{\\sqrt{2}}"),
        ("x^(2)", "x^{2}"),
        ("3 1/2", "3\\frac{1}{2}"),
        ("sqrt(((", "sqrt((("),
        ("\\pi", "\\pi"),
    ],
)
def test_plain_notation_becomes_latex(plain: str, latex: str) -> None:
    assert to_latex(plain).strip() == latex
