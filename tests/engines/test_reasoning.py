from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.reasoning import REASONING_TAGS, apply_stops, join_reasoning, split_reasoning

HARMONY = "<|channel|>analysis<|message|>2+2=4<|end|><|start|>assistant<|channel|>final<|message|>ANSWER: 4<|return|>"


@pytest.mark.parametrize(
    ("raw", "answer", "reasoning"),
    [
        ("ANSWER: 4", "ANSWER: 4", None),
        ("  kept as it came \n", "  kept as it came \n", None),
        ("<think>2+2</think>\n\nANSWER: 4", "ANSWER: 4", "2+2"),
        ("<think>\n\n</think>\n\n4", "4", ""),
        ("2+2 is 4\n</think>\nANSWER: 4", "ANSWER: 4", "2+2 is 4"),
        ("<think>a</think>b<think>c</think>d", "d", "a</think>b<think>c"),
        ("<thinking>a</thinking>b", "b", "a"),
        ("[THINK]a[/THINK]b", "b", "a"),
        ("◁think▷a◁/think▷b", "b", "a"),
        (HARMONY, "ANSWER: 4", "2+2=4"),
        ("Write `<think>` and `</think>` round it.", "Write `<think>` and `</think>` round it.", None),
        ("<think>a</think>Use `</think>` to end it.", "Use `</think>` to end it.", "a"),
        ("", "", None),
    ],
)
def test_the_answer_is_what_follows_the_reasoning(raw: str, answer: str, reasoning: str | None) -> None:
    split = split_reasoning(raw)
    assert (split.answer, split.reasoning, split.complete) == (answer, reasoning, True)


@pytest.mark.parametrize(
    ("raw", "reasoning"),
    [
        ("<think>so the answer is 4", "so the answer is 4"),
        ("<think>a</think>b<think>ANSWER: 5", "a</think>b\nANSWER: 5"),
        ("Let me see. <thinking>ANSWER: 5", "Let me see.\nANSWER: 5"),
        ("[THINK]ANSWER: 5", "ANSWER: 5"),
        ("<|channel|>analysis<|message|>ANSWER: 5", "ANSWER: 5"),
    ],
)
def test_reasoning_that_never_ends_is_no_answer(raw: str, reasoning: str) -> None:
    split = split_reasoning(raw)
    assert (split.answer, split.reasoning, split.complete) == ("", reasoning, False)


def test_a_cut_off_reply_is_reasoning_where_the_template_opened_it() -> None:
    assert split_reasoning("so ANSWER: 4 or", template_opened=True) == ("", "so ANSWER: 4 or", False)


_TAGS = [tag for pair in REASONING_TAGS for tag in pair]
_ANY_TAG = re.compile("|".join(map(re.escape, _TAGS)))


def _visible(text: str) -> str:
    return "".join(_ANY_TAG.sub("", text).split())


@given(
    st.lists(st.sampled_from([*_TAGS, "a", "b c", "\n", "`", "<", "\0", "\ud835"]), max_size=30).map("".join)
)
def test_no_text_is_lost_in_the_split(raw: str) -> None:
    split = split_reasoning(raw)
    assert _visible((split.reasoning or "") + split.answer) == _visible(raw)


@given(st.text(), st.text())
def test_text_split_by_the_server_splits_the_same_again(reasoning: str, text: str) -> None:
    if "<|channel|>" in reasoning + text or _ANY_TAG.search(reasoning + text) or not reasoning.strip():
        return
    split = split_reasoning(join_reasoning(reasoning, text))
    assert (split.answer, split.reasoning) == (text.strip(), reasoning.strip())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "`</think>`", "`<think>`", "<", "x", "<|channel|>final", "[THINK"]
)
def test_ten_megabytes_of_anything_are_split_in_linear_time(piece: str) -> None:
    raw = piece * (10_000_000 // len(piece))
    split = split_reasoning(raw)
    assert len(split.answer) + len(split.reasoning or "") <= len(raw)


@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        ((), "a\nQuestion: b"),
        (("Question:",), "a\n"),
        (("b", "Q"), "a\n"),
        (("",), "a\nQuestion: b"),
        (("zz",), "a\nQuestion: b"),
    ],
)
def test_the_earliest_stop_cuts_the_answer(stops: tuple[str, ...], expected: str) -> None:
    assert apply_stops("a\nQuestion: b", stops)[0] == expected
