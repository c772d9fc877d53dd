"""Reading a judge's reply: what counts as a verdict, what does not, and that nothing breaks it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.judges import Verdict, VerdictFormat, read_reply

GRADE = VerdictFormat(key="grade", values={"C": (), "P": (), "I": ()})
CORRECT = VerdictFormat(
    key="correct",
    values={"yes": ("true", "correct"), "no": ("false", "incorrect")},
    texts={"extracted_answer": "text", "reasoning": "text"},
    text_labels={"extracted_answer": ("extracted_final_answer",)},
)
ATTEMPT = VerdictFormat(key="grade", values={"correct": (), "incorrect": (), "not_attempted": ()})
PAIR = VerdictFormat(
    key="verdict",
    values={"A>>B": (), "A>B": (), "A=B": (), "B>A": (), "B>>A": ()},
    texts={"reasoning": "text"},
    style="brackets",
)
FORMATS = (GRADE, CORRECT, ATTEMPT, PAIR)


def value(reply: str, form: VerdictFormat) -> str | None:
    verdict = read_reply(reply, form)
    return None if verdict is None else verdict.value


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("GRADE: C", "C"),
        ("grade: c", "C"),
        ("GRADE:\u200bC", "C"),
        ("GRADE\u200b: \ufeffC", "C"),
        ("GRADE\uff1a\uff23", "C"),
        ("GRADE: C. There is no reason to downgrade: insufficient", "C"),
        ("GRADE: C because it matches.", "C"),
        ("GRADE: C (it matches)", "C"),
        ("**GRADE: C**", "C"),
        ("**Grade:** **C**", "C"),
        ("- GRADE: [C]", "C"),
        ("1. GRADE: $C$", "C"),
        ("### Final grade: C", "C"),
        ("As a judge, I find little to fault. The final grade is C.", "C"),
        ("As a judge, the overall grade is: **I**", "I"),
        ("C", "C"),
        (" **c**. ", "C"),
        ("GRADE: I\n\nOn reflection:\nGRADE: C", "C"),
        ("At first I leant to GRADE: I but settle on GRADE: P.", "P"),
        # unreadable
        ("**Answer: C**", None),
        ("As a judge, I see a problem. The final grade is B.", None),
        ("GRADE: C-", None),
        ("GRADE: C+", None),
        ("GRADE: C/P/I", None),
        ("GRADE: C | I", None),
        ("GRADE: C or I", None),
        ("GRADE: Correct", None),
        ("GRADE:", None),
        ("downgrade: I", None),
        ("the upgrade: C", None),
        ("I am a judge.", None),
        ("Critical", None),
        ("", None),
        # The last statement was meant as the verdict; an earlier one may be a quotation.
        ("GRADE: C\nGRADE: unclear", None),
    ],
)
def test_a_grade_is_a_whole_token_after_its_own_label(reply: str, expected: str | None) -> None:
    assert value(reply, GRADE) == expected


@pytest.mark.parametrize(
    "reply",
    [
        "incorrect",
        "grade: incorrect",
        "Grade: INCORRECT",
        '{"grade": "incorrect"}',
        "It looks correct at first, yet:\ngrade: incorrect",
    ],
)
def test_incorrect_is_never_read_as_correct(reply: str) -> None:
    assert value(reply, ATTEMPT) == "incorrect"
    assert value("The answer is incorrect", CORRECT) is None
    assert value("correct: incorrect", CORRECT) == "no"


@pytest.mark.parametrize(
    "reply",
    ["not attempted", "grade: not_attempted", "Grade: Not-Attempted.", '{"grade": "NOT ATTEMPTED"}'],
)
def test_a_value_of_two_words_is_read_in_any_spelling(reply: str) -> None:
    assert value(reply, ATTEMPT) == "not_attempted"


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        ("grade: not correct", ATTEMPT),
        ("grade: correct answer", ATTEMPT),
        ("grade: correctness", ATTEMPT),
        ("grade: correct/incorrect", ATTEMPT),
        ("The response is correct: no errors were found", CORRECT),
        ("Correct: no errors were found", CORRECT),
        ("correct: yes or no", CORRECT),
    ],
)
def test_a_value_that_goes_on_is_no_value(reply: str, form: VerdictFormat) -> None:
    assert value(reply, form) is None


@pytest.mark.parametrize(
    "reply",
    [
        "correct: yes? no",
        "correct: yes, no",
        "correct: yes. No.",
        "correct: no; yes",
        "correct: yes & no",
        "correct: yes -> no",
        "correct: yes (no)",
        "correct: yes \u2014 no",
        "correct: **yes** **no**",
        "correct: yes... wait, actually no.",
        "correct: yes, or maybe no",
        "correct: yes, I mean no, as Rome is meant",
        "correct: yes? No, that is wrong.",
        "correct: yes, correct: no",
        '{"correct": "yes"} {"correct": "no"}',
        '{"correct": "yes"}, no',
    ],
)
def test_a_value_that_is_taken_back_on_its_line_is_unreadable(reply: str) -> None:
    assert value(reply, CORRECT) is None


@pytest.mark.parametrize(
    ("reply", "form", "expected"),
    [
        ("correct: yes, no errors were found", CORRECT, "yes"),
        ("correct: no. Correct would be 5.", CORRECT, "no"),
        ("correct: no. Correct: 5", CORRECT, "no"),
        ("correct: no (false)", CORRECT, "no"),
        ("correct: yes, true.", CORRECT, "yes"),
        ("correct: no, not yes", CORRECT, "no"),
        ("correct: yes\nNo, wait", CORRECT, "yes"),
        ("GRADE: C. I think that it matches.", GRADE, "C"),
        ("GRADE: C, not I", GRADE, "C"),
        ("grade: incorrect (correct answer: Paris)", ATTEMPT, "incorrect"),
        ("grade: incorrect, the correct one is Paris", ATTEMPT, "incorrect"),
    ],
)
def test_words_after_a_value_that_take_nothing_back_leave_it(
    reply: str, form: VerdictFormat, expected: str
) -> None:
    assert value(reply, form) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"reasoning": "same city", "correct": "yes"}', "yes"),
        ('{"correct": "NO"}', "no"),
        ('{"correct": true}', "yes"),
        ('{"correct": false}', "no"),
        ('```json {"correct": "yes"}```', "yes"),
        ('```json\n{"correct": "yes"}\n```', "yes"),
        ('~~~\n{"correct": "no"}\n~~~\nI hope this helps!', "no"),
        ('Here is my evaluation: {"correct": "yes", "reasoning": "fine"} -- done.', "yes"),
        ('{"reasoning": "braces } in { text", "correct": "no"}', "no"),
        ('{"reasoning": "line\nbreak", "correct": "no"}', "no"),
        ('{"reasoning": "it says \\"correct: yes\\"\\ncorrect: yes", "correct": "no"}', "no"),
        ('{"score": 1}\n{"correct": "yes"}', "yes"),
        # unreadable
        ('{"correct": "maybe"}', None),
        ('{"correct": 1}', None),
        ('{"correct": null}', None),
        ('{"correct": ["yes"]}', None),
        ('{"result": {"correct": "yes"}}', None),
        ('{"correct": "yes', None),
        ('{\n  "correct": "yes"', None),
        ('{"verdict": "yes"}', None),
        ('["yes", "no"]', None),
    ],
)
def test_an_object_counts_with_a_valid_value_under_its_key(reply: str, expected: str | None) -> None:
    assert value(reply, CORRECT) == expected


@pytest.mark.parametrize(
    ("reply", "form", "expected"),
    [
        ('The answer ends with "GRADE: C".\nGRADE: I', GRADE, "I"),
        ('GRADE: I\nThe answer contains "GRADE: C" to mislead me.', GRADE, "I"),
        ("GRADE: I\n> GRADE: C", GRADE, "I"),
        ("GRADE: I\nThe answer orders me to write `GRADE: C`", GRADE, "I"),
        ("GRADE: I. The answer only claims GRADE: C", GRADE, "I"),
        ("The answer says \u201cGRADE: C\u201d.", GRADE, None),
        ("The answer tells me to reply GRADE: C.", GRADE, None),
        ("I do not think the grade is C.", GRADE, None),
        ("> GRADE: C", GRADE, None),
        ('The answer contains {"correct": "yes"}.\ncorrect: no', CORRECT, "no"),
        ('{"correct": "no"} because the answer just contains {"correct": "yes"}', CORRECT, "no"),
        (
            '{"reasoning": "it tries {\\"correct\\": \\"yes\\"}", "correct": "no"}',
            CORRECT,
            "no",
        ),
        ('The answer reads "[[A>>B]]". My verdict: [[B>A]]', PAIR, "B>A"),
        ('My verdict: [[B>A]]\nReply A tried "[[A>>B]]".', PAIR, "B>A"),
        ("Reply A contains [[A>>B]].", PAIR, None),
        ("Reply A tells the judge to output [[A>>B]]", PAIR, None),
        ("Reply A includes more detail and B does not help: [[A>B]]", PAIR, "A>B"),
        ("B is not better than A [[A>B]]", PAIR, "A>B"),
    ],
)
def test_a_verdict_that_the_judge_only_quotes_is_not_its_own(
    reply: str, form: VerdictFormat, expected: str | None
) -> None:
    assert value(reply, form) == expected


def test_material_repeated_between_its_tags_is_not_read() -> None:
    tag = "answer-0123456789abcdef"
    assert value(f"GRADE: I\n<{tag}>\nGRADE: C\n</{tag}>\n", GRADE) == "I"
    assert value(f"GRADE: I\n<{tag}>\nGRADE: C", GRADE) == "I"


def test_the_judges_own_reasoning_is_not_read() -> None:
    assert value("<think>It could be\nGRADE: C</think>GRADE: I", GRADE) == "I"
    assert value("<think>It could be\nGRADE: C", GRADE) is None


@pytest.mark.parametrize("token", list(PAIR.values))
@pytest.mark.parametrize(
    "shape",
    [
        "My final verdict is: [[{}]]",
        "[[{}]]",
        "**[[ {} ]]**",
        "I would say [[{}]].",
        "{}",
        '{{"reasoning": "r", "verdict": "{}"}}',
        '{{"reasoning": "r", "verdict": "[[{}]]"}}',
        "[[A=B]] at first, in the end [[{}]]",
        "as in [1] and [[2]], reply A contains more detail, so [[{}]]",
    ],
)
def test_every_comparison_token_is_read_in_every_shape(token: str, shape: str) -> None:
    assert value(shape.format(token), PAIR) == token
    assert value(shape.format(token.lower()), PAIR) == token


@pytest.mark.parametrize("reply", ["[[A]]", "[[A<B]]", "[[A>>>B]]", "A>B, I think", "[[A>B]] then [[A<B]]"])
def test_a_token_off_the_scale_is_unreadable(reply: str) -> None:
    assert value(reply, PAIR) is None


def test_the_texts_come_along_from_an_object_and_from_lines() -> None:
    texts = {"extracted_answer": "Paris", "reasoning": "same city"}
    assert read_reply(json.dumps({**texts, "correct": "yes"}), CORRECT) == Verdict("yes", texts)
    lines = "extracted_final_answer: Paris\n**Reasoning:** same city\ncorrect: yes"
    assert read_reply(lines, CORRECT) == Verdict("yes", texts)


FRAGMENTS = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            [
                *(
                    "GRADE: C",
                    "grade:",
                    "{",
                    "}",
                    '{"grade": "C"}',
                    '"',
                    "[[A>B]]",
                    "[[",
                    "\n",
                    "> ",
                    "```json",
                ),
                *(
                    "correct: yes",
                    "<think>",
                    "</think>",
                    "<answer-0123456789abcdef>",
                    '{"correct":',
                    "no",
                    "I",
                ),
                *("\u200b", "\ud800"),
            ]
        ),
    ),
    max_size=12,
).map("".join)


@given(FRAGMENTS)
@settings(max_examples=300)
def test_any_text_is_read_without_an_error_and_always_alike(reply: str) -> None:
    for form in FORMATS:
        verdict = read_reply(reply, form)
        assert verdict == read_reply(reply, form)
        assert verdict is None or verdict.value in form.values


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "reply",
    [
        "{" * 100_000,
        '{"a":' * 20_000,
        "[" * 100_000,
        '{"grade": "' * 5_000,
        "grade: " * 20_000,
        "GRADE: C " * 20_000,
        "the final " * 20_000,
        "[[" * 50_000,
        "<answer-0123456789abcdef>" * 5_000,
        " " * 200_000,
        "not " * 50_000 + "GRADE: C",
        '{"grade": ' + "9" * 10_000 + "}",
    ],
)
def test_hostile_replies_are_read_in_bounded_time(reply: str) -> None:
    for form in FORMATS:
        read_reply(reply, form)


def test_of_an_endless_reply_the_end_is_read() -> None:
    assert value("blah blah\n" * 50_000 + "GRADE: I", GRADE) == "I"
