"""Normalisation and the shared ways of looking at a text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evalray.scorers.text import (
    WINDOW_CHARS,
    before_run_on,
    boxed_contents,
    lower_in_place,
    normalize_text,
    window,
)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Paris", " **paris**. "),
        ("cafe\u0301", "caf\u00e9"),
        ("-5", "\u22125"),
        ("\uff30aris", "paris"),
        ("New   York\n", "new york"),
        ("Stra\u00dfe", "STRASSE"),
        ("pa\u200bris", "paris"),
    ],
)
def test_texts_that_read_the_same_are_equal(left: str, right: str) -> None:
    assert normalize_text(left) == normalize_text(right)


@pytest.mark.parametrize(
    ("left", "right"), [("-5", "5"), ("(0,1)", "[0,1)"), ("the cat", "cat"), ("a b", "ab")]
)
def test_texts_that_differ_stay_different(left: str, right: str) -> None:
    assert normalize_text(left) != normalize_text(right)


def test_case_punctuation_and_articles_follow_their_arguments() -> None:
    assert normalize_text("Paris", ignore_case=False) == "Paris"
    assert normalize_text("It's fine.", punctuation="all") == "its fine"
    assert normalize_text("It's fine.", punctuation="keep") == "it's fine."
    assert normalize_text("The cat", ignore_articles=True) == "cat"


def test_removing_all_punctuation_keeps_what_makes_a_number() -> None:
    assert normalize_text("-5", punctuation="all") == "-5"
    assert normalize_text("x = 0.5!", punctuation="all") == "x = 0.5"


def test_the_point_of_a_decimal_is_no_mark_around_it() -> None:
    assert normalize_text('".5."') == ".5"
    assert normalize_text(". 5") == "5"


@given(st.text())
@example("0'\x1f")
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once


def test_a_window_drops_the_tokens_at_its_cut_whole() -> None:
    text = "1234567 " * WINDOW_CHARS
    assert set(window(text).split()) == {"1234567", "\u2026"}
    assert len(window(text)) <= 2 * WINDOW_CHARS + 10


def test_a_window_of_one_endless_token_shows_no_shortened_one_at_the_cut() -> None:
    text = "ANSWER: " + "1" * (4 * WINDOW_CHARS)
    assert "\u2026" in window(text)


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("\\boxed{[2,5)}", ["[2,5)"]),
        ("\\boxed{\\frac{1}{2}} and \\fbox{3}", ["\\frac{1}{2}", "3"]),
        ("\\boxed{\\{1, 2\\}}", ["\\{1, 2\\}"]),
        ("\\boxed{a \\boxed{b}}", ["b", "a \\boxed{b}"]),
        ("\\boxed{never closed", []),
        ("} \\boxed{x}", ["x"]),
        ("boxed{x}", []),
    ],
)
def test_boxes_are_read_with_balanced_braces(text: str, contents: list[str]) -> None:
    assert [content for _, content in boxed_contents(text)] == contents


def test_a_run_on_is_cut_and_a_first_question_is_not() -> None:
    assert before_run_on("18\n\nQuestion: next?") == "18\n"
    assert before_run_on("18\n**Question 2:** next?") == "18"
    assert before_run_on("\nQuestion: first?\n18") is None
    assert before_run_on("a questionable line\nquestions remain") is None


@given(st.text())
def test_lowering_in_place_keeps_every_position(text: str) -> None:
    assert len(lower_in_place(text)) == len(text)


def test_lowering_in_place_survives_letters_that_grow() -> None:
    assert lower_in_place("\u0130 ANSWER") == "\u0130 answer"
