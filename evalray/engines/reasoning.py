"""Tell a model's reasoning from its answer, in one place for every engine.

The answer is the text after the last closing reasoning tag.  A tag that was opened and never
closed means that the model did not get to an answer: the answer is empty, whatever the reasoning
says.  A closing tag without an opening one is a chat template that opened it in the prompt.
Stop sequences of a task concern the answer alone, so they are applied here, after the split.

Nothing is lost: answer, reasoning and the tags themselves make up the raw text, white space at
the seams aside.  Everything runs in time linear in the text, which is untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Opening and closing tags in use: most open models; Anthropic-style; Mistral; Kimi; Seed; Command A.
REASONING_TAGS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)

#: gpt-oss's format: ``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``
_HARMONY_START = re.compile(r"<\|channel\|>(?:analysis|commentary|final)")
_HARMONY_TOKEN = re.compile(r"<\|(start|channel|constrain|message|end|return|call)\|>")


class SplitText(NamedTuple):
    """``reasoning`` is ``None`` where the reply holds none; ``complete`` is false where it never ended."""

    answer: str
    reasoning: str | None
    complete: bool = True


def split_reasoning(text: str, *, template_opened: bool = False) -> SplitText:
    """Split a raw reply into answer and reasoning.

    ``template_opened`` says that the chat template puts the opening tag into the prompt: a reply
    without any tag is then reasoning that was cut off.  A tag between backticks is a quotation.
    """
    if _HARMONY_START.search(text):
        return _split_channels(text)
    close_start, close_end = _last_closing_tag(text)
    opened = _first_opening_tag(text, close_end)
    if opened is not None:
        start, end = opened
        before, rest = text[:start].strip(), text[end:].strip()
        reasoning = f"{_without_opening_tag(before)}\n{rest}" if before else rest
        return SplitText("", reasoning, complete=False)
    if close_end:
        return SplitText(text[close_end:].strip(), _without_opening_tag(text[:close_start].strip()))
    if template_opened:
        return SplitText("", text, complete=False)
    return SplitText(text, None)


def join_reasoning(reasoning: str, text: str) -> str:
    """The raw text of a reply whose reasoning the server had split off: what the model wrote, tags put back."""
    if not reasoning:
        return text
    opening, closing = REASONING_TAGS[0]
    return f"{opening}{reasoning}{closing}{text}" if text else f"{opening}{reasoning}"


def apply_stops(answer: str, stops: Iterable[str]) -> tuple[str, bool]:
    """Cut ``answer`` before the first stop string; says whether one was there."""
    hits = [position for stop in stops if stop and (position := answer.find(stop)) >= 0]
    return (answer[: min(hits)], True) if hits else (answer, False)


def _is_quoted(text: str, start: int, end: int) -> bool:
    return start > 0 and text[start - 1] == "`" and text[end : end + 1] == "`"


def _last_closing_tag(text: str) -> tuple[int, int]:
    """Start and end of the last closing tag, or ``(0, 0)``."""
    best = (0, 0)
    for _, tag in REASONING_TAGS:
        end_of_search = len(text)
        while (start := text.rfind(tag, best[1], end_of_search)) >= 0:
            end = start + len(tag)
            if not _is_quoted(text, start, end):
                best = (start, end)
                break
            end_of_search = start
    return best


def _first_opening_tag(text: str, begin: int) -> tuple[int, int] | None:
    best: tuple[int, int] | None = None
    for tag, _ in REASONING_TAGS:
        start = begin - 1
        limit = best[0] if best else len(text)
        while (start := text.find(tag, start + 1, limit)) >= 0:
            end = start + len(tag)
            if not _is_quoted(text, start, end):
                best = (start, end)
                break
    return best


def _without_opening_tag(reasoning: str) -> str:
    for tag, _ in REASONING_TAGS:
        if reasoning.startswith(tag):
            return reasoning[len(tag) :].lstrip()
    return reasoning


def _split_channels(text: str) -> SplitText:
    """Only the ``final`` channel is an answer; without one the model was still reasoning."""
    answer: list[str] = []
    reasoning: list[str] = []
    has_final = False
    channel, token = "", "message"
    pieces = _HARMONY_TOKEN.split(text)
    for index in range(0, len(pieces), 2):
        piece = pieces[index]
        if index:
            token = pieces[index - 1]
        if token == "channel":
            channel = piece.strip().split(" ", 1)[0]
        elif token in ("message", "end", "return", "call"):
            if channel == "final":
                has_final = True
                answer.append(piece)
            elif piece.strip():
                reasoning.append(piece.strip())
    return SplitText("".join(answer).strip(), "\n".join(reasoning) or None, complete=has_final)
