"""Which letter an answer names: one table per kind of fault."""

from __future__ import annotations

import pytest

from evalray.scorers import extract_choice

CITIES = ["London", "Paris", "Berlin", "Madrid"]


def letter(text: str, letters: str = "ABCDEFGHIJ", **kwargs: object) -> str | None:
    return extract_choice(text, letters, **kwargs).value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "ANSWER: $B$",
        "ANSWER: **B**",
        "ANSWER: (B)",
        "**ANSWER: B**",
        "**Answer:** B",
        "ANSWER: `B`",
        "ANSWER: __B__",
        "ANSWER: [B]",
        'ANSWER: "B"',
        "ANSWER: <b>B</b>",
        "ANSWER: $\\boxed{B}$",
        "ANSWER: $\\text{B}$",
        "ANSWER: $\\mathbf{(B)}$",
        "ANSWER: \\(B\\)",
        "ANSWER : B.",
        "Answer = B",
        "Answer -> B",
        "ANSWER\uff1a\uff22",
        "ANSWER:\u200bB",
        "<answer>B</answer>",
        '{"answer": "B"}',
        "$\\boxed{\\text{B}}$",
        "\\boxed{(B)}",
        "Final Answer: The final answer is $\\boxed{B}$. I hope it is correct.",
    ],
)
def test_decoration_round_the_letter_is_stripped(text: str) -> None:
    assert letter(text) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "The answer is B.",
        "The correct answer is option (B).",
        "The answer would be B",
        "the answer to this question is: B",
        "The answer is most likely B, since the others are wrong.",
        "Therefore, I choose B.",
        "I would go with option B.",
        "Option B is correct.",
        "Choice (B) is the right one.",
        "The correct option is B.",
        "B is the correct answer.",
        "Die Antwort ist B.",
        "Antwort: B",
        "Final answer - B",
        "Answer (B)",
        "Answer B.",
        "The answer is 'B'.",
        "Die richtige Antwort lautet **B**.",
        "R\u00e9ponse : B",
    ],
)
def test_a_stated_letter_is_read(text: str) -> None:
    assert letter(text) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "None of the above",
        "Don't know",
        "I do not know.",
        "A car moves because of its engine.",
        "I am not sure.",
        "Answer: Although it may seem so",
        "Answer: A car",
        "Answer: I think it may be anything",
        "Answer: unclear",
        "The answer depends.",
        "The answer is $A + B$",
        "The answer is A = 5",
        "The answer is $B_2$",
        "Answer: B-cell",
        "Answer: A's",
        "",
        "   \n\n",
    ],
)
def test_letters_are_not_picked_out_of_words_and_formulas(text: str) -> None:
    assert letter(text) is None


@pytest.mark.parametrize(
    "text",
    ["ANSWER: b", "answer: (b)", "Answer: b.", "b", "(b)", "b)", "The answer is b."],
)
def test_lower_case_letters_count(text: str) -> None:
    assert letter(text) == "B"


def test_a_lower_case_letter_that_begins_a_phrase_does_not_count() -> None:
    assert letter("Answer: a car that moves") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: A is tempting at first.\nBut no.\nAnswer: C", "C"),
        ("One could say ANSWER: A.\nANSWER: D", "D"),
        ("The answer is A. Wait, that is wrong. The answer is B.", "B"),
        ("\\boxed{A}\nSorry, I made a slip: \\boxed{C}", "C"),
        ("Antwort:\n\nAntwort: C", "C"),
        ("Option A is correct? I choose A. ANSWER: D", "D"),
        ("ANSWER: D\nOption A is correct only for gases.", "D"),
    ],
)
def test_the_last_explicit_marker_wins(text: str, expected: str) -> None:
    assert letter(text) == expected


def test_no_letter_is_taken_from_the_marker_word_after_a_blank_line() -> None:
    assert letter("Antwort:\n\nAntwort folgt sp\u00e4ter.") is None


@pytest.mark.parametrize(
    "text",
    [
        "Answer:\nB",
        "The answer is:\n\n**B**",
        "Answer:\nB) Paris",
        "The answer is:\n\n(B) Paris",
        "### Answer\n\nB",
    ],
)
def test_a_letter_alone_on_the_next_line_is_read(text: str) -> None:
    assert letter(text) == "B"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is B because a car moves.", "B"),
        ("The answer is C because I computed it twice.", "C"),
        ("The answer is A because I say so.", "A"),
        ("The answer is I, since a moving car is one.", "I"),
        ("Answer: A", "A"),
        ("Answer: I.", "I"),
    ],
)
def test_the_words_a_and_i_never_displace_the_stated_letter(text: str, expected: str) -> None:
    assert letter(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: It is not B, the answer is D", "D"),
        ("The answer is not B.", None),
        ("Answer: not B", None),
        ("It is not true that the answer is B.", None),
        ("I would never choose B.", None),
        ("The answer isn't B", None),
        ("The answer cannot be B.", None),
        ("Answer: B is wrong.", None),
        ("If the answer is B then pigs fly. So the answer is C.", "C"),
        ("It is not B. The answer is C.", "C"),
        ("Die Antwort ist nicht B.", None),
        ("I do not like riddles, but the answer is C.", "C"),
        ("Option B is incorrect.", None),
        ("Option B is not correct.", None),
        ("B is not the correct answer.", None),
    ],
)
def test_negated_letters_never_count(text: str, expected: str | None) -> None:
    assert letter(text) == expected


@pytest.mark.parametrize(
    "text",
    ["A, B and C", "Answer: A, B and C", "Answer: A or B", "The answer is (A) and (C).", "ANSWER: A/B"],
)
def test_several_letters_are_no_answer(text: str) -> None:
    assert letter(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Answer: A? B",
        "The answer is A... wait, B.",
        "Answer: A. No, B.",
        "Answer: (A). Actually, it is (B).",
        "Answer: A -> B",
        "Answer: A, no wait, B\n\nSo much for that.",
        "I choose C - sorry, D!",
    ],
)
def test_a_letter_that_its_line_takes_back_is_no_answer(text: str) -> None:
    assert extract_choice(text, "ABCD").value is None


@pytest.mark.parametrize(
    "text",
    [
        "Answer: B. No other option fits.",
        "Answer: B. No, really",
        "Answer: B? I am sure.",
        "Answer: B... as A is a trap.",
        "Answer: B. C",
        "Answer: B. Actually, C is wrong.",
        "Answer: B? B.",
    ],
)
def test_words_after_a_letter_that_name_no_other_leave_it(text: str) -> None:
    assert extract_choice(text, "ABCD").value == "B"


def test_a_withdrawn_single_letter_does_not_stand_in_for_several() -> None:
    assert extract_choice("Answer: A\nAnswer: B or C", "ABCD").rule == "several_letters"


def test_a_box_counts_only_when_it_holds_one_letter() -> None:
    assert letter("\\boxed{\\Delta E} is the energy.\nAnswer: C") == "C"
    assert letter("We find \\boxed{\\Delta E}.") is None
    assert letter("So \\boxed{AB}.") is None


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "(B)",
        "B.",
        "B)",
        "**B**",
        "$B$",
        "[B]",
        "B. Paris",
        "B) Paris",
        "(B) Paris",
        "B: Paris",
        "**B.** Paris",
        "B because it is.",
        "**B**\n\nParis is the capital.",
        "B\n\nExplanation: it is Paris.",
    ],
)
def test_a_reply_that_is_a_letter_with_or_without_its_text_counts(text: str) -> None:
    assert letter(text) == "B"


@pytest.mark.parametrize(
    "text", ["I think it is B", "It has to do with B", "Vitamin B", "A) x\nB) y\nC) z", "A\nB\nC"]
)
def test_a_bare_letter_inside_a_reply_does_not_count(text: str) -> None:
    assert letter(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris", "B"),
        ("**paris.**", "B"),
        ("The answer is Paris.", "B"),
        ("Answer: Paris", "B"),
        ("\\boxed{\\text{Paris}}", "B"),
        ("\\boxed{B) Paris}", "B"),
        ("Paris and Rome", None),
        ("Parisian", None),
        ("London is not it, Paris neither.", None),
    ],
)
def test_an_option_quoted_alone_counts(text: str, expected: str | None) -> None:
    assert letter(text, "ABCD", options=CITIES) == expected


def test_an_option_text_that_two_options_share_names_none() -> None:
    assert letter("same", "ABC", options=["same", "same", "other"]) is None


def test_a_is_read_as_a_letter_when_its_option_follows() -> None:
    assert letter("Answer: A London", "ABCD", options=CITIES) == "A"


@pytest.mark.parametrize("text", ["ANSWER: E", "E", "E) none", "The answer is X."])
def test_a_letter_the_question_does_not_have_never_counts(text: str) -> None:
    assert letter(text, "ABCD") is None


@pytest.mark.parametrize(
    "text",
    [
        "Answer: B\n\nQuestion: What next?\nAnswer: C",
        "B\n\nQuestion: What next?\nA) x\nB) y\nAnswer: C",
        "The answer is B.\nQ: And now?\nA: D\nThe answer is D.",
    ],
)
def test_a_run_on_into_a_new_question_is_not_read(text: str) -> None:
    assert letter(text) == "B"


def test_a_restated_question_is_not_taken_for_a_run_on() -> None:
    assert letter("Question: What is the capital?\nAnswer: B") == "B"
    assert letter("Let me restate.\nQuestion: What is the capital?\nAnswer: B") == "B"


@pytest.mark.parametrize("text", ["B", "B) Paris", "Paris", "Let me see.\n\nB"])
def test_only_markers_count_in_an_answer_that_was_cut_off(text: str) -> None:
    assert letter(text, "ABCD", options=CITIES, explicit_only=True) is None


@pytest.mark.parametrize("text", ["ANSWER: B", "\\boxed{B} because", "The answer is B. To expl"])
def test_a_marker_counts_in_an_answer_that_was_cut_off(text: str) -> None:
    assert letter(text, explicit_only=True) == "B"


@pytest.mark.parametrize("text", ["Answer:\nA) x\nB) y\nC) z", "Answer:\n\nA. x\n\nB. y\n\nC. z"])
def test_options_repeated_after_the_marker_are_no_answer(text: str) -> None:
    assert letter(text) is None


def test_the_rule_that_fired_is_reported() -> None:
    rules = {
        "ANSWER: B": "marker",
        "\\boxed{B}": "boxed",
        "I choose B": "chosen",
        "B": "whole_reply",
        "B. x": "opening",
        "So.\nB": "last_line",
        "?": "none",
    }
    assert {text: extract_choice(text, "ABCD").rule for text in rules} == rules
