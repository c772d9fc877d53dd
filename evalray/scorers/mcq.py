"""The multiple-choice scorer: the letter an answer names against the reference letter.

Rules read the letter.  Where they cannot, a judge may be asked which letter the answer names; it
does not see the reference, and a letter that the question does not have is no reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from evalray.judges import VerdictFormat, judge_prompt, read_reply
from evalray.scorers.base import Answer, JudgeCall, Scorer
from evalray.scorers.choice import ALPHABET, extract_choice
from evalray.scorers.judged import answer_text, reply_metadata, unreadable
from evalray.scorers.text import Extraction, normalize_text
from evalray.scorers.verdict import unusable_reference, verdict
from evalray.types import EvalRecord, Outcome, Score

_NO_REFERENCE = "missing_reference_letter"
_NO_LETTER = "no_choice_letter_extracted"

_NONE = "none"
_CRITERIA = (
    "Read what the answer chooses. Do not solve the question and do not judge whether the choice is right.",
    "The last choice counts where the answer changes its mind.",
    f'"{_NONE}" where the answer chooses nothing, chooses several options, or chooses what is no option.',
)


@lru_cache(maxsize=64)
def _letter_format(letters: str) -> VerdictFormat:
    return VerdictFormat(
        key="letter",
        values={**dict.fromkeys(letters, ()), _NONE: ()},
        labels=("answer", "choice", "option"),
    )


@dataclass(slots=True, frozen=True)
class MCQScorer(Scorer):
    """Compares letters.

    The valid letters are those of the record: ``metadata["options"]`` (a list of texts, or a
    mapping from letter to text), else ``metadata["letters"]``, else the ``letters`` argument.  The
    reference is a letter, or the exact text of one option.

    ``judge = true`` asks a judge for the letter of an answer that the rules cannot read.  An empty
    answer is not asked about, nor one cut off by the token limit: there a guess would be graded.
    Where no judge is configured such an answer stays unread.
    """

    scorer_id: ClassVar[str] = "mcq"
    version: ClassVar[int] = 2

    letters: str = "ABCDEFGHIJ"
    judge: bool = False

    @property
    def uses_judge(self) -> bool:
        return self.judge

    @property
    def needs_judge(self) -> bool:
        return False

    def __post_init__(self) -> None:
        if not self.letters or any(letter not in ALPHABET for letter in self.letters):
            raise ValueError(f"letters must be capital letters A-Z, got {self.letters!r}")

    def assess(self, record: EvalRecord, answer: Answer) -> Score | JudgeCall:
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
        score = verdict(answer, extraction, _same_option(reference, letters, options).__contains__, metadata)
        if score.outcome is not Outcome.UNPARSED or not self.judge or not answer_text(answer):
            return score
        prompt = judge_prompt(
            task="You read which option of a multiple-choice question an answer chooses.",
            pieces={"question": record.problem, "answer": answer_text(answer)},
            criteria=_CRITERIA,
            form=_letter_format(letters),
        )
        return JudgeCall((prompt,), metadata, unjudged=score)

    def read_verdict(self, record: EvalRecord, answer: Answer, call: JudgeCall, replies: list[str]) -> Score:
        read = read_reply(replies[0], _letter_format(call.metadata["valid_letters"]))
        metadata = reply_metadata(call.metadata, replies[0], read)
        if read is None:
            return unreadable(metadata)
        letter = None if read.value == _NONE else read.value
        if letter is not None:
            metadata["candidate_letter"] = letter
            del metadata["reason"]
        right = _same_option(call.metadata["reference_letter"], *self._choices(record.metadata))
        return verdict(answer, Extraction(letter, "judge"), right.__contains__, metadata)

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


def _same_option(reference: str, letters: str, options: list[str]) -> set[str]:
    """The reference and the letters of options with the very same text: no answer can tell them apart."""
    texts = dict(zip(letters, (option.strip() for option in options), strict=False))
    return {reference} | {letter for letter in texts if texts[letter] == texts.get(reference)}


def _reference_letter(reference: str, letters: str, options: list[str]) -> str | None:
    bare = reference.strip().strip("()[]{}.:*$ ").upper()
    if len(bare) == 1 and bare in letters:
        return bare
    wanted = normalize_text(reference)
    same = [letter for letter, text in zip(letters, options, strict=False) if normalize_text(text) == wanted]
    return same[0] if wanted and len(same) == 1 else None
