"""Reading the number a model gives as its answer, and comparing exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.scorers import extract_number, numbers_equal, parse_number


def value(text: str, *, explicit_only: bool = False) -> Fraction | None:
    extracted = extract_number(text, explicit_only=explicit_only).value
    return None if extracted is None else parse_number(extracted)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("18.00", "18"),
        ("$29.00", "29"),
        ("$29.00.", "29"),
        ("1,234", "1234"),
        ("1,234,567.50", "1234567.5"),
        ("-5", "\u22125"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("5%", "5"),
        ("(42)", "42"),
        ("42!", "42"),
        ("**42**", "42"),
        ("\\$42", "42"),
        ("\u20ac42", "42"),
        ("42 dollars", "42"),
        ("42kg", "42"),
        ("0.5", "1/2"),
        ("3 1/2", "3.5"),
        ("\\frac{1}{2}", "0.5"),
        ("\\dfrac12", "0.5"),
        ("3\\frac{1}{2}", "3.5"),
        ("1e3", "1000"),
        ("3 x 10^5", "300000"),
        ("3 \\times 10^{5}", "300000"),
        ("5 million", "5000000"),
        (".5", "0.5"),
        ("007", "7"),
        ("1{,}234", "1234"),
        ("1\\,234", "1234"),
        ("1\u202f234", "1234"),
        ("\uff14\uff12", "42"),
    ],
)
def test_equal_numbers_in_different_dress(left: str, right: str) -> None:
    assert numbers_equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("25", "5"),
        ("711", "11"),
        ("149", "49"),
        ("5", "-5"),
        ("0,1", "01"),
        ("0,1", "1"),
        ("12,34", "1234"),
        ("1,2345", "12345"),
        ("5", "5 million"),
        ("0.1", "10"),
        ("five", "5"),
        ("", ""),
        ("x", "x"),
        ("inf", "inf"),
        ("nan", "nan"),
        ("5 6", "56"),
        ("2x", "2"),
        ("H2O", "2"),
        ("1/0", "0"),
        ("10^3", "10"),
        ("10\u00b3", "10"),
        ("12/25/2020", "12"),
        ("1.2.3", "1.2"),
        ("3:2", "3"),
        ("10-15", "10"),
    ],
)
def test_numbers_that_are_not_the_same_or_no_numbers(left: str, right: str) -> None:
    assert not numbers_equal(left, right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 25", 25),
        ("ANSWER: 711", 711),
        ("The answer is (42).", 42),
        ("42!", 42),
        ("4 eggs. The answer is 16.00", 16),
        ("So the total for the delivery order is $29.00.", 29),
        ("The answer is \\boxed{18}", 18),
        ("The answer is **18**.", 18),
        ("**Answer:** $18 per day, 7 days a week", 18),
        ("\\boxed{- 5}", -5),
        ("\\boxed{x = 5}", 5),
        ("\\boxed{5\\text{ dollars}}", 5),
        ("#### -5", -5),
        ("#### $1,234.50", Fraction("1234.5")),
        ("Answer: 4 * 2 = 8", 8),
        ("The answer is: $x = 5$", 5),
        ("The answer is $-5", -5),
        ("answer: -$5", -5),
        ("The answer is \u22125", -5),
        ("The answer is approximately 5.", 5),
        ("The answer is that she has 5 apples left.", 5),
        ("Answer:\n18", 18),
        ("Die Antwort ist 18.", 18),
        ("She makes **18** dollars in 7 days.", 18),
        ("3 + 5 = 8.", 8),
        ("10 - 5 = 5", 5),
        ("the answer is 16 eggs and 2 hens", 16),
        ("18 at 9. Then 3 x 10^5", 300000),
        ("She pays 3/4 of it, that is 3/4", Fraction(3, 4)),
    ],
)
def test_the_answer_is_read_from_its_marker_or_as_the_last_number(
    text: str, expected: int | Fraction
) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "#### 18\n\nQuestion: And the next?\nShe has 8.\n#### 8",
        "So #### 18\n#### 8",
        "18\n\nQuestion: A man has 5 hens and 3 eggs.",
        "The answer is 18.\n\nQ: Now 7?\nA: The answer is 7.",
    ],
)
def test_a_run_on_into_a_new_question_is_not_read(text: str) -> None:
    assert value(text) == 18


@pytest.mark.parametrize(
    ("text", "expected"),
    [("18 then \\boxed{5}. No: \\boxed{6}", 6), ("The answer is 5. Wait: the answer is 6", 6)],
)
def test_the_last_statement_wins(text: str, expected: int) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 5 or 6",
        "The answer is 5, 6 and 7.",
        "The answer is 10-15",
        "The answer is between... 0,1",
        "(0,1)",
        "The answer is not 5",
        "on 12/25/2020",
        "version 1.2.3",
        "It is 10^3",
        "18 000",
        "H2O",
        "no digits here",
        "",
    ],
)
def test_what_is_not_one_number_is_not_read(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "ANSWER: 5? 6",
        "The answer is 5... wait, 6",
        "ANSWER: 5. No, 6.",
        "ANSWER: $5, no wait, $6",
        "ANSWER: 5 -> 6",
        "#### 5, no wait, 6",
    ],
)
def test_a_number_that_its_line_takes_back_is_not_read(text: str) -> None:
    assert value(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 5. No 6 is left.",
        "ANSWER: 5? 5.0",
        "ANSWER: 5. Actually, 6 would be too many.",
        "#### 5\n6 is what remains",
        "ANSWER: 5... as 2 + 3 = 5",
    ],
)
def test_words_after_a_number_that_take_nothing_back_leave_it(text: str) -> None:
    assert value(text) == 5


def test_an_enumeration_after_the_marker_is_not_the_answer() -> None:
    assert value("Answer:\n1. First, she sells 18 eggs.\n2. So she has 9.") == 9


def test_a_markdown_heading_is_no_marker() -> None:
    assert value("#### 1. First step: she sells.\n#### Result\nThe answer is 9.") == 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She has 5 eggs and then 7", None),
        ("The total is **18**", None),
        ("#### 18\n", 18),
        ("#### 18 dol", 18),
        ("\\boxed{18}", 18),
        ("The answer is 18. To check we", 18),
        ("#### 12", None),
        ("The answer is 12", None),
        ("The answer is 12.", None),
        ("The answer is 1,2", None),
        ("\\boxed{12", None),
    ],
)
def test_a_cut_off_answer_counts_only_with_a_marker_and_a_complete_number(
    text: str, expected: int | None
) -> None:
    assert value(text, explicit_only=True) == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#### 18", "hashes"),
        ("\\boxed{18}", "boxed"),
        ("The answer is 18", "answer"),
        ("It is **18**", "bold"),
        ("It is 18", "last_number"),
        ("It is 1, 2", "last_number"),
        ("It is 0,1", "not_one_number"),
        ("Nothing", "none"),
    ],
)
def test_the_rule_that_fired_is_reported(text: str, rule: str) -> None:
    assert extract_number(text).rule == rule


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=3))
def test_every_plain_decimal_is_read_back_with_its_sign(number: object) -> None:
    assert value(f"We had 7 of them.\nThe answer is {number}.") == Fraction(str(number))
    assert value(f"#### {number:,}") == Fraction(str(number))
    assert value(f"In the end there were {number}") == Fraction(str(number))


@given(st.integers(), st.integers())
def test_integers_are_equal_only_to_themselves(left: int, right: int) -> None:
    assert numbers_equal(str(left), f"${right:,}.00") == (left == right)
