"""Numbers: reading the one a model gives as its answer, and comparing exactly.

Reading: ``#### 18`` first (the first one: base models run on into new questions), then the last of
``\\boxed{18}`` and ``answer is 18``, then a single bold number on the last line, then the last
number of the text.  Which rule fired is reported.

What is a number: an optional sign (also U+2212), digits, a decimal point, ``1,234`` (commas only
as thousands separators, so ``0,1`` is a list and no number), ``1e3`` and ``3 x 10^5``, ``1/2``,
``3 1/2``, ``\\frac{1}{2}``, and a following scale word (``5 million``).  Currency signs, ``%`` and
unit words beside it do not count: ``$29.00`` and ``29 dollars`` are 29.  A date, a ratio, a range,
a power, a version or a digit inside a word (``H2O``, ``2x``) is not read as a number.  Number words
(``five``) are not read.

Comparing: as exact fractions, ``18.00 == 18``, ``1/2 == 0.5``; signs count.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.text import (
    NOTHING,
    TAKING_BACK,
    Extraction,
    before_run_on,
    boxed_contents,
    lower_in_place,
    squeeze_lines,
    window,
)
from evalray.scorers.verdict import shown, unusable_reference, verdict
from evalray.types import EvalRecord, Score
from evalray.untrusted import strip_invisible

#: A longer numeral is not an answer.
_MAX_NUMERAL_CHARS = 300

_SIGNS: dict[int, int | str] = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},  # full-width forms
    **dict.fromkeys(map(ord, "\u2212\ufe63\u2013"), "-"),
    **dict.fromkeys(map(ord, "\u20ac\u00a3\u00a5\u20b9"), "$"),
}
_THIN_THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))")
_LATEX_THOUSANDS = re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))")
_LATEX_FRACTION = re.compile(r"(\d?)\\[dtc]?frac ?(?:\{ ?(-?\d{1,20}) ?\} ?\{ ?(\d{1,20}) ?\}|(\d)(\d))")
_LATEX_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it)|mbox|left|right)(?![A-Za-z])|\\[()\[\]; ]"
)
_SIGNED_CURRENCY = re.compile(r"([-+]) ?\\?\$ ?")

_NUMERAL = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?>(?P<whole>\d{1,20}) (?P<top>\d{1,20})/(?P<bottom>\d{1,20})(?!\d)"
    r"|(?P<numerator>\d{1,20}) ?/ ?(?P<denominator>\d{1,20})(?!\d)"
    r"|(?P<decimal>\d+(?:,\d+)*(?:\.\d+)?|\.\d+))"
    r"(?:[eE](?P<exponent>[-+]?\d{1,3})(?![\d.]))?"
    r"(?: ?(?:[xX\u00d7*]|\\times|\\cdot) ?10 ?(?:\^|\*\*) ?\{?(?P<power>-?\d{1,3})\}?)?"
    r"(?: (?P<scale>hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
# What makes of a numeral a date, a ratio, a power, a version.
_GOES_ON = re.compile(r"[/:]\d|\.\d| ?\^| ?\*\*|[\u00b2\u00b3\u00b9\u2070-\u2079]|,\d")
_LIST_GOES_ON = re.compile(
    r"%?(?:(?:,| and| or| to|;| -|-| [+*/\u00d7\u00f7]|[+*\u00d7\u00f7]| \\times) ?\$?[-+]?\d| \d)"
)
_TAKEN_BACK = re.compile(r"[)\]}\"'$% ]{0,3}" + TAKING_BACK + r"\$?")
_LINE_ENDS = re.compile(r"[)\]\"'.!$ ]{0,3}(?:$|\n)")
_GROUP_OF_DIGITS = re.compile(r"0\d\d(?!\d)")
_GLUED_WORD = re.compile(r"[^\W\d_]+")
_UNITS = frozenset(
    "m cm mm km kg g mg lb lbs oz ml l ft in mi mph kmh h hr hrs hour hours min mins minutes s sec secs seconds ms"  # noqa: SIM905
    " w kw kwh v c f am pm usd eur gbp dollars dollar cents cent".split()
)

_KEYWORD = re.compile(r"answer|antwort|respuesta|risposta|resposta|r\u00e9ponse|reponse")
_STATEMENT = re.compile(
    r"s?(?: (?:to|for|of|von|zu|auf)\b[^.:!?\n]{0,80}?)?[\"')]{0,2}"
    r"(?: ?(?:[:=]|->|\u2192|\u21d2)| (?:is|are|was|would be|should be|must be|will be|ist|lautet|w\u00e4re|est|es|\u00e8|\u00e9)\b ?:?)",
    re.IGNORECASE,
)
_SEGMENT_END = re.compile(r"\n|[.!?;](?=\s|$)")
_SEGMENT_CHARS = 400
_LEAD_IN = re.compile(
    r"[ ({\[\"':*\u2248~$#]{0,8}(?:(?:approximately|about|around|exactly|roughly|only|just|simply|therefore|thus|equal to"
    r"|the number|\\approx|\\boxed) ?[{(:]{0,2} ?){0,2}[ ({\[\"':*$-]{0,4}$",
    re.IGNORECASE,
)
_EDGE_MARKS = " \n\"',;:!?*_`()[]{}#"
_DENIED = re.compile(r"\b(?:not|never|cannot|nicht|neither|unknown|unless)\b|n't\b|n\u2019t\b", re.IGNORECASE)
_DENIED_HERE = re.compile(r"(?:\bnot|n't|n\u2019t) $", re.IGNORECASE)
_HASHES = re.compile(r"#### {0,3}(?:\$ ?)?(?=[-+]? ?[.\d])")
_HEADER_REST = re.compile(r"[.):] ?[A-Za-z]|[^\n]{0,60}:")
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*|__([^_\n]{1,80})__")
_ENUMERATION = re.compile(r"[.)] ?[A-Za-z]")


@dataclass(slots=True, frozen=True)
class _Found:
    """One numeral in a text.  ``value`` is ``None`` where it is a date, a list, a power, ..."""

    value: Fraction | None
    text: str
    start: int
    end: int


def parse_number(text: str) -> Fraction | None:
    """The exact value of a text that is one number and nothing but units, currency and punctuation."""
    text = _clean(text[: 2 * _MAX_NUMERAL_CHARS + 1]).rstrip(_EDGE_MARKS + ".").lstrip(_EDGE_MARKS)
    if len(text) > 2 * _MAX_NUMERAL_CHARS:
        return None
    found = list(_numerals(text))
    if len(found) != 1 or found[0].value is None:
        return None
    before, after = text[: found[0].start], text[found[0].end :]
    if before.strip(" ~+-") or any(char in after for char in "+*/=^<>"):
        return None
    return -found[0].value if before.strip(" ~+") == "-" else found[0].value


def numbers_equal(left: str, right: str) -> bool:
    """Whether both are numbers, and the same one: ``18.00 == 18``, ``$1,234 == 1234``, ``-5 != 5``."""
    value = parse_number(left)
    return value is not None and value == parse_number(right)


# What follows a number and makes another answer of it ("and a half", "or 13", "out of 20").
_CHANGES_NUMBER = re.compile(r"\b(?:and|or|not|half|quarter|to|per|out|of|squared|cubed|dozen)\b")
_MAX_UNIT_WORDS = 3


def unit_words(text: str) -> list[str] | None:
    """The lower-case words of unit beside the one number of ``text``, scale words and ``%`` aside.

    ``None`` where ``text`` is not a number with at most a few words that leave its value alone.
    """
    if parse_number(text) is None:
        return None
    beside = re.sub(r"^[^A-Za-z]*", "", text.lower())
    words = [word for word in re.findall(r"[^\W\d]+", beside) if word not in _SCALES]
    return None if len(words) > _MAX_UNIT_WORDS or _CHANGES_NUMBER.search(beside) else words


def extract_number(text: str, *, explicit_only: bool = False) -> Extraction:
    """The number ``text`` gives as its answer, as written without its decoration, and the rule.

    ``explicit_only`` is for an answer cut off by the token limit: only ``####``, a closed box and
    ``answer is`` count, and not with a number that the text ends in, which may lack digits.
    """
    text = window(text)
    if explicit_only:
        text = text.rstrip("0123456789.,/-+$")
    raw = _clean(text, keep_bold=True)
    own = before_run_on(raw)
    if own is not None:
        found = _stated(own) or (None if explicit_only else _implied(own))
        if found is not None:
            return found
    return _stated(raw) or (None if explicit_only else _implied(raw)) or NOTHING


def _stated(text: str) -> Extraction | None:
    """What an explicit marker says."""
    plain = text.replace("**", " ").replace("__", " ")
    for mark in _HASHES.finditer(plain):
        found = _number_at(plain, mark.end())
        if found is not None and found.value is not None and not _HEADER_REST.match(plain, found.end):
            if _is_taken_back(plain, found):
                return Extraction(None, "not_one_number")
            return Extraction(found.text, "hashes")
    statements = [(position, "boxed", content) for position, content in boxed_contents(plain)]
    for word in _KEYWORD.finditer(lower_in_place(plain)):
        statement = _STATEMENT.match(plain, word.end())
        if statement is not None and not plain[word.start() - 1 : word.start()].isalpha():
            statements.append(
                (word.start(), "answer", plain[statement.end() : statement.end() + _SEGMENT_CHARS])
            )
    for _, rule, content in sorted(statements, reverse=True, key=lambda item: item[0]):
        stated = _boxed(content) if rule == "boxed" else _segment(content)
        if stated is not None:
            return stated
    return None


def _implied(text: str) -> Extraction | None:
    """Without a marker: one bold number on the last line, else the last number."""
    last_line = text.rstrip().rpartition("\n")[2]
    bold = [match.group(1) or match.group(2) for match in _BOLD.finditer(last_line)]
    bold_numbers = [found for content in bold if (found := _only_number(content)) is not None]
    if len(bold_numbers) == 1:
        return Extraction(bold_numbers[0].text, "bold")
    plain = text.replace("**", " ").replace("__", " ")
    last = _last_numeral(plain)
    if last is None:
        return None
    if last.value is None:
        return Extraction(None, "not_one_number")
    if _DENIED_HERE.search(plain, max(0, last.start - 12), last.start):
        return Extraction(None, "denied")
    return Extraction(last.text, "last_number")


def _last_numeral(text: str) -> _Found | None:
    # Reading all numerals of a long answer to use the last one would be most of the scorer's cost.
    cut = text.rfind(" ", 0, max(0, len(text) - 120))
    while cut > 0 and text[cut - 1].isdigit():
        cut = text.rfind(" ", 0, cut)
    if cut > 0:
        near = deque(_numerals(text[cut:]), maxlen=1)
        if near and near[0].start > 60:
            return replace(near[0], start=near[0].start + cut, end=near[0].end + cut)
    found = deque(_numerals(text), maxlen=1)
    return found[0] if found else None


def _boxed(content: str) -> Extraction | None:
    found = _only_number(content.rpartition("=")[2])
    return Extraction(found.text, "boxed") if found is not None else None


def _only_number(text: str) -> _Found | None:
    """The number of a short text that is one number with its units."""
    if len(text) > 2 * _MAX_NUMERAL_CHARS:
        return None
    text = text.strip()
    found = list(_numerals(text))
    if len(found) != 1 or found[0].value is None or parse_number(text) is None:
        return None
    if text[: found[0].start].strip(" ({[$") == "-":
        return _Found(-found[0].value, "-" + found[0].text, 0, found[0].end)
    return found[0]


def _segment(rest: str) -> Extraction | None:
    """What follows ``answer is``: its first number, if it is plainly the one that is meant."""
    body = rest.lstrip(" \n")
    on_new_line = "\n" in rest[: len(rest) - len(body)]
    end = _SEGMENT_END.search(body)
    segment = body[: end.start()] if end else body
    numerals = list(_numerals(segment))
    if not numerals or _DENIED.search(segment, 0, numerals[0].start):
        return None
    equals = segment.rfind("=")
    if equals >= 0 and segment[equals - 1 : equals] not in ("<", ">", "!"):
        numerals = [found for found in numerals if found.start > equals]
        lead = segment[equals + 1 : numerals[0].start] if numerals else ""
    else:
        lead = segment[: numerals[0].start]
    if not numerals:
        return None
    first = numerals[0]
    if on_new_line and _ENUMERATION.match(body, first.end):
        return None
    if not _LEAD_IN.match(lead) and len(numerals) > 1:
        return None
    if first.value is None or _LIST_GOES_ON.match(segment, first.end) or _is_taken_back(body, first):
        return Extraction(None, "not_one_number")
    negative = lead.rstrip(" $").endswith("-") and first.text[0] not in "+-"
    return Extraction("-" + first.text if negative else first.text, "answer")


def _is_taken_back(text: str, found: _Found) -> bool:
    """Whether another number follows at once that ends the line: ``5? 6``, ``5. No, 6``."""
    doubt = _TAKEN_BACK.match(text, found.end)
    other = _number_at(text, doubt.end()) if doubt else None
    return other is not None and other.value != found.value and bool(_LINE_ENDS.match(text, other.end))


def _number_at(text: str, position: int) -> _Found | None:
    sign = ""
    if text[position : position + 2] in ("- ", "+ "):
        sign, position = text[position], position + 2
    match = _NUMERAL.match(text, position)
    found = _judge(text, match) if match else None
    if found is None or found.value is None or sign != "-":
        return found
    return _Found(-found.value, "-" + found.text, found.start, found.end)


def _numerals(text: str) -> Iterator[_Found]:
    """Every numeral that is not part of a word, left to right."""
    position = 0
    while (digit := _DIGIT.search(text, position)) is not None:
        start = digit.start()
        if start > position and text[start - 1] == ".":
            start -= 1
        if start > position and text[start - 1] in "+-":
            start -= 1
        match = _NUMERAL.match(text, start)
        if match is None:  # a digit that is no ASCII digit's kin
            position = digit.end()
            continue
        position = match.end()
        found = _judge(text, match)
        if found is not None:
            yield found


def _judge(text: str, match: re.Match[str]) -> _Found | None:
    start, end = match.span()
    sign = match["sign"]
    before = text[start - 1] if start else " "
    before_that = text[start - 2] if start > 1 else " "
    value: Fraction | None = None
    malformed = False
    if before.isalpha() or before in "_\\":
        return None
    if before.isdigit() or before == "^" or (sign and before in ".)") or before_that + before == "^{":
        # A range, a difference, an exponent: the sign is an operator.
        malformed = True
    elif before in "/:" and before_that.isdigit():
        malformed = True
    elif before == " " and before_that.isdigit() and _GROUP_OF_DIGITS.match(text, start):
        malformed = True  # digits grouped by blanks
    word = _GLUED_WORD.match(text, end)
    if word is not None and match["scale"] is None and word.group().lower() not in _UNITS:
        return None
    if not malformed and not _GOES_ON.match(text, end):
        value = _value(match)
    return _Found(value, match.group().strip(), start, end)


def _value(match: re.Match[str]) -> Fraction | None:
    """The value of a matched numeral; ``None`` if it is not a single finite number."""
    if len(match.group()) > _MAX_NUMERAL_CHARS:
        return None
    if match["whole"] is not None:
        bottom = int(match["bottom"])
        if not bottom:
            return None
        value = int(match["whole"]) + Fraction(int(match["top"]), bottom)
    elif match["numerator"] is not None:
        if not int(match["denominator"]):
            return None
        value = Fraction(int(match["numerator"]), int(match["denominator"]))
    else:
        numeral = match["decimal"]
        if "," in numeral:
            if not _THOUSANDS.match(numeral):
                return None
            numeral = numeral.replace(",", "")
        value = Fraction(numeral if numeral[0] != "." else "0" + numeral)
    exponent = (
        int(match["exponent"] or 0)
        + int(match["power"] or 0)
        + _SCALES.get((match["scale"] or "").lower(), 0)
    )
    if exponent:
        value *= Fraction(10) ** exponent
    return -value if match["sign"] == "-" else value


def _clean(text: str, *, keep_bold: bool = False) -> str:
    """``text`` without currency signs and LaTeX style, minus signs unified, blanks squeezed."""
    if not text.isascii():
        text = _THIN_THOUSANDS.sub(",", strip_invisible(text)).translate(_SIGNS)
    if "\\" in text:
        text = _LATEX_THOUSANDS.sub(",", text)
        text = (
            text.replace("\\!", "")
            .replace("\\,", " ")
            .replace("\\$", "$")
            .replace("\\%", "%")
            .replace("\\#", "#")
        )
        text = _LATEX_FRACTION.sub(_plain_fraction, text)
        text = _LATEX_STYLE.sub(" ", text)
    if "{,}" in text:
        text = text.replace("{,}", ",")
    if "$" in text:
        text = _SIGNED_CURRENCY.sub(r"\1", text).replace("$", " ")
    if not keep_bold:
        text = text.replace("**", " ").replace("__", " ")
    return squeeze_lines(text)


def _plain_fraction(match: re.Match[str]) -> str:
    whole, top, bottom, digit, other = match.groups()
    if match.group(4) is not None:
        top, bottom = digit, other
    return f"{whole} {top}/{bottom}" if whole else f"{top}/{bottom}"


@dataclass(slots=True, frozen=True)
class NumberScorer(Scorer):
    """Compares the number that an answer gives with the reference, exactly.

    A GSM8K solution as reference is read after its last ``####``.
    """

    scorer_id: ClassVar[str] = "number"
    version: ClassVar[int] = 2

    def assess(self, record: EvalRecord, answer: Answer) -> Score:
        gold = record.reference.rpartition("####")[2].strip()
        expected = parse_number(gold)
        if expected is None:
            return unusable_reference(gold, "reference_is_no_number")
        extraction = extract_number(answer.text, explicit_only=answer.truncated)
        return verdict(
            answer, extraction, lambda value: parse_number(value) == expected, {"reference": shown(gold)}
        )
