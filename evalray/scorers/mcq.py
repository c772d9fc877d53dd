"""The multiple-choice scorer: the letter an answer names against the reference letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.choice import ALPHABET, extract_choice
from evalray.scorers.text import normalize_text
from evalray.scorers.verdict import unusable_reference, verdict
from evalray.types import EvalRecord, Score

_NO_REFERENCE = "missing_reference_letter"
_NO_LETTER = "no_choice_letter_extracted"


@dataclass(slots=True, frozen=True)
class MCQScorer(Scorer):
    """Compares letters.

    The valid letters are those of the record: ``metadata["options"]`` (a list of texts, or a
    mapping from letter to text), else ``metadata["letters"]``, else the ``letters`` argument.  The
    reference is a letter, or the exact text of one option.
    """

    scorer_id: ClassVar[str] = "mcq"

    letters: str = "ABCDEFGHIJ"

    def __post_init__(self) -> None:
        if not self.letters or any(letter not in ALPHABET for letter in self.letters):
            raise ValueError(f"letters must be capital letters A-Z, got {self.letters!r}")

    def assess(self, record: EvalRecord, answer: Answer) -> Score:
        letters, options = self._choices(record.metadata)
        reference = _reference_letter(record.reference, letters, options)
        metadata: dict[str, Any] = {"reference_letter": reference, "valid_letters": letters}
        if reference is None:
            score = unusable_reference(record.reference, _NO_REFERENCE)
            score.metadata.update(metadata)
            return score
        extraction = extract_choice(answer.text, letters, options=options, explicit_only=answer.truncated)
        metadata["candidate_letter"] = extraction.value
        if extraction.value is None:
            metadata["reason"] = _NO_LETTER
        return verdict(answer, extraction, reference.__eq__, metadata)

    def _choices(self, metadata: dict[str, Any]) -> tuple[str, list[str]]:
        """The question's letters, and the option texts in their order (empty if not known)."""
        options = metadata.get("options")
        if isinstance(options, dict):
            labelled = {str(key).strip().upper(): str(text) for key, text in options.items()}
            letters = "".join(key for key in labelled if len(key) == 1 and key in ALPHABET)
            if letters:
                return letters, [labelled[letter] for letter in letters]
        if isinstance(options, list | tuple) and options:
            texts = [str(option) for option in options[: len(ALPHABET)]]
            return ALPHABET[: len(texts)], texts
        given = metadata.get("letters")
        if isinstance(given, list | tuple):
            given = "".join(str(letter) for letter in given)
        if isinstance(given, str):
            letters = "".join(letter for letter in dict.fromkeys(given.upper()) if letter in ALPHABET)
            if letters:
                return letters, []
        return self.letters, []


def _reference_letter(reference: str, letters: str, options: list[str]) -> str | None:
    bare = reference.strip().strip("()[]{}.:*$ ").upper()
    if len(bare) == 1 and bare in letters:
        return bare
    wanted = normalize_text(reference)
    same = [letter for letter, text in zip(letters, options, strict=False) if normalize_text(text) == wanted]
    return same[0] if wanted and len(same) == 1 else None
