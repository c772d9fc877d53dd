"""What a judge may answer: a closed set of values under one key, with some free text before it.

One :class:`VerdictFormat` makes all three forms of the same agreement, so that they cannot drift
apart: the JSON schema for servers that enforce one, the words in the prompt, and the tokens that
are accepted when the reply is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: What stands around a value without changing it.
_EDGE_MARKS = " \t\n*_`\"'.,;:!()[]{}<>$#\u201c\u201d\u2018\u2019"


@dataclass(slots=True, frozen=True)
class Verdict:
    """What was read: one of the format's values, and the texts that came with it."""

    value: str
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class VerdictFormat:
    """``values`` maps each value to the other spellings that mean it; case never counts.

    ``labels`` are words accepted before the value on a line beside ``key``; ``texts`` the free-text
    keys asked for before it, each with what is wanted, and ``text_labels`` other names of them.
    ``style``: ``line`` reads ``key: value``, ``brackets`` reads ``[[value]]``.
    """

    key: str
    values: Mapping[str, tuple[str, ...]]
    labels: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    text_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    style: Literal["line", "brackets"] = "line"
    _spellings: dict[str, str] = field(init=False, repr=False, compare=False)
    _statement: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _addition: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spellings = {
            _folded(spelling): value for value, others in self.values.items() for spelling in (value, *others)
        }
        object.__setattr__(self, "_spellings", spellings)
        longest_first = sorted(spellings, key=len, reverse=True)
        values = "|".join(re.escape(spelling).replace("_", "[ _-]?") for spelling in longest_first)
        object.__setattr__(self, "_statement", self._compile(spellings, values))
        labels = "|".join(map(re.escape, (self.key, *self.labels)))
        addition = rf"{_DOUBT}(?:[\"']?(?:{labels})[\"']?[ :=]{{1,3}})?[\"']?(?P<value>{values}){_ENDS}"
        object.__setattr__(self, "_addition", re.compile(addition, re.IGNORECASE))

    def _compile(self, spellings: Mapping[str, str], values: str) -> re.Pattern[str]:
        if self.style == "brackets":
            inside = "".join(sorted(set("".join(spellings)) | {"<", ">", "="}))
            pattern = rf"\[\[ ?(?:(?P<value>{values})|(?P<other>[{re.escape(inside)} ]{{1,20}})) ?\]\]"
        else:
            labels = "|".join(re.escape(label).replace("_", "[ _-]?") for label in (self.key, *self.labels))
            pattern = (
                rf"(?<![\w-])(?<!\bis )(?<!\bare )(?<!\bbe )(?:{labels})(?![\w-])[*_`\"')\]]{{0,3}} ?(?:(?:is|was) ?:?|:|=|->|=>|\u2192)"
                rf"[*_`]{{0,3}} ?(?:{_OPENING}(?P<value>{values}){_WHOLE_WORD}|(?P<other>\S))"
            )
        return re.compile(pattern, re.IGNORECASE)

    def statements(self, text: str) -> list[tuple[int, int, str | None]]:
        """``(start, end, value)`` of every place that states a value; ``None`` for one that is not valid."""
        return [
            (match.start(), match.end(), self._spellings[_folded(match["value"])] if match["value"] else None)
            for match in self._statement.finditer(text)
        ]

    def added_value(self, text: str, start: int) -> str | None:
        """The value that follows at ``start`` on the same line with nothing but marks and words of
        doubt before it: the ``no`` of ``correct: yes? no``."""
        match = self._addition.match(text, start)
        return self._spellings[_folded(match["value"])] if match else None

    def value_of(self, text: object) -> str | None:
        """The value that ``text`` as a whole spells."""
        if not isinstance(text, str | bool) or (isinstance(text, str) and len(text) > 100):
            return None
        return self._spellings.get(_folded(str(text).strip(_EDGE_MARKS)))

    @property
    def response_schema(self) -> dict[str, Any]:
        """The reply as JSON schema, with every key required and none besides."""
        properties: dict[str, Any] = {name: {"type": "string"} for name in self.texts}
        properties[self.key] = {"type": "string", "enum": list(self.values)}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    @property
    def instructions(self) -> str:
        """What the prompt says about the form of the reply."""
        keys = [f'"{name}": {wanted}' for name, wanted in self.texts.items()]
        keys.append(f'"{self.key}": one of ' + ", ".join(f'"{value}"' for value in self.values))
        example = next(iter(self.values))
        last = f"[[{example}]]" if self.style == "brackets" else f"{self.key}: {example}"
        return (
            "Reply with one JSON object and nothing else, its keys in this order:\n"
            + "\n".join(f"- {key}" for key in keys)
            + "\nIf you cannot write JSON, write each key and its value on a line of its own, and end with"
            + f" the verdict in exactly this form (here for {example!r}):\n{last}"
        )


_OPENING = r"[*_`\"'(\[{<$\u201c\u2018]{0,4} ?"
# Not the start of another word or grade, of a phrase ("no errors"), nor the first of several alternatives.
_WHOLE_WORD = r"(?![\w+\u2019'-]|\.\d| ?[/|] ?\w| (?!because\b|since\b|as\b)\w)"

# Between a value and another one that takes it back: marks, and words that add or correct.
_DOUBT = (
    r"[^\w\n]{1,12}(?:(?:or|and|but|then|wait|hmm|actually|rather|sorry|maybe|perhaps|possibly|i mean|make that)"
    r"\b[^\w\n]{1,6}){0,3}"
)
_ENDS = r"(?![\w+\u2019'-])(?= ?(?:[^\w\s:=+<>]|\n|$))"


def _folded(text: str) -> str:
    return re.sub(r"[ -]", "_", " ".join(text.split())).casefold()
