"""Multiple choice: which letter an answer names.

The last explicit statement wins (``ANSWER: B``, ``the answer is (B)``, ``\\boxed{B}``); weaker ones
(``I choose B``, ``option B is correct``) count where there is none; then a reply that is a letter
and nothing else, or starts as ``B) text``, or quotes one option's text.  A letter counts only as a
whole token, only if the question has that option, never where it is negated, and the English
words *A* and *I* do not count as letters inside a sentence.  Everything else stays unread: a guess
would be graded as if the model had made it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from evalray.scorers.text import (
    NOTHING,
    TAKING_BACK,
    Extraction,
    before_run_on,
    lower_in_place,
    normalize_text,
    squeeze_lines,
    window,
)
from evalray.untrusted import strip_invisible

#: What an answer can name; options beyond these have no letter.
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_LATEX_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|bb)|mbox|operatorname|bf|rm|left|right|bigl?|bigr?)(?![A-Za-z])"
    r"|\\[()\[\],;! ]"
)
_HTML_STYLE = re.compile(r"</?(?:b|i|strong|em|u|p|br|span|code|sup|mark)\s?/?>", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])[*_]|[*_](?![A-Za-z0-9])")

_KEYWORD = re.compile(
    r"(?<![a-z])(?:answer|antwort|respuesta|risposta|resposta|r\u00e9ponse|reponse|boxed"
    r"|option|choice|choose|select|pick|go with|choosing|selecting|w\u00e4hle|l\u00f6sung)"
)
_STATING = frozenset(
    {"answer", "antwort", "respuesta", "risposta", "resposta", "r\u00e9ponse", "reponse", "l\u00f6sung"}
)
_CHOOSING = frozenset({"choose", "select", "pick", "go with", "choosing", "selecting", "w\u00e4hle"})

_FILLER = (
    r"(?:(?:the |clearly |simply |indeed |therefore |thus |definitely |most likely |likely |probably |correct "
    r"|answer |option |choice |letter |buchstabe |die |der )(?:: ?)?){0,4}"
)
_QUOTES = r"[\"'\u201c\u201e\u2018]?"
_BREAK = r" ?\n{0,2}"
# After "answer" and the like: an optional complement, then a colon, a verb or an arrow.
_STATEMENT = re.compile(
    r"(?:s|en)?(?: (?:choice|option|letter|key))?"
    r"(?: (?:to|for|of|von|zu|auf)\b[^.:!?\n]{0,80}?)?"
    r"[\"')\]]{0,2}"
    r"(?: ?(?:[:=>\uff1a]|->|=>|\u2192|\u21d2)"
    + _BREAK
    + r"| (?:is|was|would be|should be|must be|will be|has to be|ist|lautet"
    r"|w\u00e4re|est|es|\u00e8|\u00e9)\b ?:?" + _BREAK + r"| [-\u2013\u2014] "
    # Nothing in between: only a letter that ends the line, as in "Answer (B)".
    r"| (?=[(\[]?(?-i:[A-Z])[)\]]?[.!]?(?:\n|$))) ?" + _QUOTES + _FILLER + _QUOTES,
    re.IGNORECASE,
)
_BOX = re.compile(r" ?\{[({\[ ]{0,6}")
_OPTION_IS = re.compile(
    r"s?(?: (?:is|would be|should be|must be)\b)? ?:? ?" + _QUOTES + r"(?=[(\[{A-Za-z])", re.IGNORECASE
)
_CHOICE_OBJECT = re.compile(r" ?:? ?" + _QUOTES + _FILLER + _QUOTES, re.IGNORECASE)
_IS_CORRECT = re.compile(
    r"[)\]}\"' ]{0,4}(?:,? which)? ?(?:is|must be|would be|ist) (?:therefore |thus |clearly |definitely |indeed |the |die )?"
    r"(?:most )?(?:correct|right|best|true|answer|accurate|appropriate|richtig\w{0,2}|korrekt\w{0,2})\b",
    re.IGNORECASE,
)
_X_IS_THE_ANSWER = re.compile(
    r"(?<![A-Za-z0-9\-'])\(?([A-Z])\)? (?:is|must be|would be) (?:therefore |thus |clearly |definitely |indeed )?the "
    r"(?:(?:most )?(?:correct|right|best|appropriate) )?(?:answer|option|choice)\b"
)

_LETTER = re.compile(r"[({\[<\"' ]{0,6}([A-Za-z])(?![A-Za-z0-9_^\\]|['\u2019][A-Za-z]|-[A-Za-z0-9])")
_CLOSE = r"[)}\]>\"' ]{0,6}"
# What makes of the letter a part of a formula or of a comparison.
_FORMULA = re.compile(
    _CLOSE + r"(?:[+*/^=\u00d7\u00f7\u2264\u2265\u2260]|<(?!/)|\\(?:times|cdot|frac|le|ge|ne)|- ?\d)"
)
_DISOWNED = re.compile(
    _CLOSE
    + r"[,;]? ?(?:(?:is|ist|seems|was) (?:not|in ?correct|wrong|false|nicht|falsch|inkorrekt)|isn'?t|can ?not|can'?t)\b",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    _CLOSE
    + r"(?:(?:,? ?(?:and|or|und|oder|et|ou|y|o)\b|[,&/;|]) ?){1,2}"
    + r"[(\[\"']{0,2}([A-Za-z])(?=$|[)\].,;:!?\"'\n}]| (?:and|or|und|oder|&))"
)
# ``A? B``, ``A ... wait, B.``, ``A. No, B``: what ends its line takes the first letter back.
_TAKEN_BACK = re.compile(
    _CLOSE + TAKING_BACK + r"[(\[\"']{0,2}([A-Z])[)\]\"'.!]{0,3}(?:$|\n)",
    re.MULTILINE,
)
_LOWERCASE_END = re.compile(r"[)}\]>.,;:!?\"']{0,4}(?: ?$|\n|[)\].:,;] )", re.MULTILINE)
# A lone A or I counts inside a sentence only where no English sentence could have the word.
_WORD_LETTERS = frozenset("AI")
_GOES_ON = re.compile(
    r"(?: ?(?:$|[)}\]>.,;:!?\"'\n(\-\u2013\u2014])"
    r"| (?:because|since|as|due|for|given|which|is|was|based|from|per|and|or|with|if|then|so|but|while|where|though"
    r"|although|rather|instead|weil|da|denn|wegen|und|ist)\b)",
    re.MULTILINE,
)

# On a line of its own the letter stands alone or labels its option.
_LABEL_END = re.compile(r"[)}\]>.:\"' ]{0,4}(?:$|\n|(?<=[).:\]]) |(?<=[).:\]] ))")

_NEGATION = re.compile(
    r"(?:\b(?:not|never|nor|neither|cannot|without|nicht|kein\w{0,2}|nie|if|unless|whether|wenn|ob|between)\b|n't\b|n\u2019t\b)"
    r"(?!.*\b(?:but|so|therefore|thus|hence|sondern|because|then)\b)[^.!?\n:;,]*$",
    re.IGNORECASE,
)
_NEGATION_REACH = 40

_WHOLE = re.compile(r"[(\[{<\"' ]{0,4}([A-Za-z])[)\]}>\"' .:,!]{0,5}$")
_OPENING = re.compile(
    r"[(\[]?([A-Z])(?:(?:[)\]][.:,]?|[.:]|,| [-\u2013\u2014])(?= |\n|$)| (?=(?:because|since|is the|weil|as the)\b))"
)
_BRACKETED_OPENING = re.compile(r"[(\[]([a-z])[)\]][.:,]?(?= |\n|$)")
_LISTED = re.compile(r"^[-*\u2022]? ?[(\[]?([A-Za-z])[)\].:](?= |$)", re.MULTILINE)
_MAX_OPTION_CHARS = 2_000


def extract_choice(
    text: str,
    letters: str,
    *,
    options: Sequence[str] | None = None,
    explicit_only: bool = False,
) -> Extraction:
    """The upper-case letter of ``letters`` that ``text`` names, and the rule that found it.

    ``options`` are the texts that the letters stand for, in their order.  ``explicit_only`` is for
    an answer cut off by the token limit: only a marker counts then, since a bare letter or a
    quoted option may have been the start of anything.
    """
    clean = undecorate(window(text))
    reading = _Reading(letters.upper(), tuple(options or ()))
    own = before_run_on(clean)
    if own is not None:
        stated = reading.stated(own)
        if stated is None and not explicit_only:
            stated = reading.bare(own)
        if stated is not None:
            return stated
    stated = reading.stated(clean)
    if stated is None and not explicit_only:
        stated = reading.bare(clean)
    return stated or NOTHING


def undecorate(text: str) -> str:
    """``text`` without LaTeX, markdown and HTML emphasis, blanks squeezed, line structure kept."""
    if not text.isascii():
        # Full-width and enclosed forms become plain letters and colons.
        text = strip_invisible(unicodedata.normalize("NFKC", text))
    if "\\" in text:
        text = _LATEX_STYLE.sub(" ", text)
    if "<" in text:
        text = _HTML_STYLE.sub(" ", text)
    text = text.replace("$", " ").replace("`", " ").replace("~", " ").replace("\0", "")
    if "*" in text or "_" in text:
        text = _EMPHASIS.sub(" ", text)
    return squeeze_lines(text).strip()


@dataclass(slots=True, frozen=True)
class _Reading:
    """The letters of one question, and how to find one of them in cleaned text."""

    letters: str
    options: tuple[str, ...]

    def stated(self, text: str) -> Extraction | None:
        """What the last explicit statement says; ``None`` without one."""
        weaker: Extraction | None = None
        for match in reversed(list(_KEYWORD.finditer(lower_in_place(text)))):
            word = match.group()
            if word == "boxed":
                found = self._boxed(text, match.end())
            elif word in _STATING:
                found = self._statement(text, match)
            elif weaker is None:
                weaker = self._choice(text, match, word)
                continue
            else:
                continue
            if found is not None:
                return found
        if weaker is None and "the" in text:
            for match in reversed(list(_X_IS_THE_ANSWER.finditer(text))):
                if match.group(1) in self.letters and not _is_negated(text, match.start()):
                    return Extraction(match.group(1), "letter_is_answer")
        return weaker

    def _boxed(self, text: str, position: int) -> Extraction | None:
        opened = _BOX.match(text, position)
        if opened is None:
            return None
        closed = text.find("}", opened.end(), opened.end() + _MAX_OPTION_CHARS)
        if closed < 0:
            return None
        content = text[opened.end() : closed].strip(" {}")
        whole = _WHOLE.match(content)
        if whole is not None and whole.group(1).upper() in self.letters:
            return Extraction(whole.group(1).upper(), "boxed")
        letter = self._labelled_option(content) or self._option_text(content)
        return Extraction(letter, "boxed_option") if letter else None

    def _statement(self, text: str, keyword: re.Match[str]) -> Extraction | None:
        connector = _STATEMENT.match(text, keyword.end())
        if connector is None:
            return None
        if _is_negated(text, keyword.start()):
            return None
        found = self._letter_at(text, connector.end(), rule="marker")
        if found is not None:
            return found
        if self.options:
            line_end = text.find("\n", connector.end(), connector.end() + _MAX_OPTION_CHARS)
            line = text[connector.end() : line_end if line_end >= 0 else connector.end() + _MAX_OPTION_CHARS]
            letter = self._option_text(line)
            if letter:
                return Extraction(letter, "marker_option_text")
        return None

    def _choice(self, text: str, keyword: re.Match[str], word: str) -> Extraction | None:
        if _is_negated(text, keyword.start()):
            return None
        if word in _CHOOSING:
            connector = _CHOICE_OBJECT.match(text, keyword.end())
            assert connector is not None  # every part of the pattern is optional
            found = self._letter_at(text, connector.end(), rule="chosen")
            return found if found is not None and found.value is not None else None
        connector = _OPTION_IS.match(text, keyword.end())
        if connector is None:
            return None
        found = self._letter_at(text, connector.end(), rule="option")
        if found is None or found.value is None:
            return None
        before = text[max(0, keyword.start() - 12) : keyword.start()].lower()
        asserted = connector.group().strip(" \"'") != "" and before.rstrip().endswith(
            ("correct", "right", "best", "my", "final")
        )
        letter = _LETTER.match(text, connector.end())
        if asserted or (letter is not None and _IS_CORRECT.match(text, letter.end())):
            return found
        return None

    def _letter_at(self, text: str, position: int, *, rule: str) -> Extraction | None:
        """The letter that starts at ``position``; a value of ``None`` if several are named there."""
        match = _LETTER.match(text, position)
        if match is None:
            return None
        raw, end = match.group(1), match.end()
        letter = raw.upper()
        if letter not in self.letters or _FORMULA.match(text, end) or _DISOWNED.match(text, end):
            return None
        if raw != letter and not _LOWERCASE_END.match(text, end):
            return None
        if (
            letter in _WORD_LETTERS
            and not _GOES_ON.match(text, end)
            and not self._labelled_option(text[end - 1 : end + _MAX_OPTION_CHARS])
        ):
            return None
        if position and text[position - 1] == "\n" and not self._is_labelled_line(text, end, letter):
            return None
        another = _ANOTHER.match(text, end) or _TAKEN_BACK.match(text, end)
        if (
            another is not None
            and another.group(1).upper() in self.letters
            and another.group(1).upper() != letter
        ):
            return Extraction(None, "several_letters")
        return Extraction(letter, rule)

    def _is_labelled_line(self, text: str, end: int, letter: str) -> bool:
        """Whether a line's first letter stands alone or labels the line, and no list of options follows."""
        if not _LABEL_END.match(text, end):
            return False
        line_end = text.find("\n", end, end + _MAX_OPTION_CHARS)
        next_line = line_end + 1 + (text[line_end + 1 : line_end + 2] == "\n")
        following = _LISTED.match(text, next_line) if line_end >= 0 else None
        return following is None or following.group(1).upper() == letter

    def bare(self, text: str) -> Extraction | None:
        """A reply that consists of an answer, with no marker."""
        whole = _WHOLE.match(text)
        if whole is not None and whole.group(1).upper() in self.letters:
            return Extraction(whole.group(1).upper(), "whole_reply")
        listed = {match.group(1).upper() for match in _LISTED.finditer(text)} & set(self.letters)
        opening = _OPENING.match(text) or _BRACKETED_OPENING.match(text)
        if opening is not None and len(listed) <= 1:
            letter = opening.group(1).upper()
            a_sentence = letter in _WORD_LETTERS and opening.group()[-1] == ","
            if letter in self.letters and not a_sentence and not _DISOWNED.match(text, opening.end(1)):
                return Extraction(letter, "opening")
        if len(text) <= _MAX_OPTION_CHARS:
            quoted = self._option_text(text)
            if quoted:
                return Extraction(quoted, "option_text")
        return self._own_line(text)

    def _own_line(self, text: str) -> Extraction | None:
        """A capital alone on the first or the last line, the only such line."""
        lines = [line for line in text.split("\n") if line]
        alone = [index for index, line in enumerate(lines) if len(line) <= 8 and _WHOLE.match(line)]
        if len(lines) < 2 or len(alone) != 1 or alone[0] not in (0, len(lines) - 1):
            return None
        match = _WHOLE.match(lines[alone[0]])
        if match is None or match.group(1) not in self.letters:
            return None
        return Extraction(match.group(1), "last_line" if alone[0] else "first_line")

    def _labelled_option(self, text: str) -> str | None:
        """``B) text`` or ``B text`` where ``text`` starts as that very option does."""
        if not self.options:
            return None
        letter, rest = text[:1].upper(), normalize_text(text[1:_MAX_OPTION_CHARS].lstrip(" )].:-}"))
        index = self.letters.find(letter) if letter else -1
        if not 0 <= index < len(self.options):
            return None
        option = normalize_text(self.options[index])
        return letter if option and rest.startswith(option) else None

    def _option_text(self, text: str) -> str | None:
        """The letter of the one option whose text ``text`` is."""
        wanted = normalize_text(text)
        if not wanted:
            return None
        same = [
            letter
            for letter, option in zip(self.letters, self.options, strict=False)
            if normalize_text(undecorate(option)) == wanted
        ]
        return same[0] if len(same) == 1 else None


def _is_negated(text: str, position: int) -> bool:
    """Whether the words just before ``position``, in its own sentence, deny or suppose what follows."""
    return _NEGATION.search(text[max(0, position - _NEGATION_REACH) : position]) is not None
