"""What one row of OpenJarvis's results means in EvalRay: record, generation and score.

OpenJarvis writes 0 where it measured nothing: of a figure that cannot be 0 -- the time to a first
token, a draw of power, the tokens of a prompt -- a 0 becomes ``None``.  An undecided verdict
(``is_correct: null``) becomes ``unparsed`` where an answer could not be read, which counts as wrong
here and was left out there, and ``judge_error`` where a judge gave none.  What the row said is kept
in ``scoring_metadata["imported"]``.  Rows that EvalRay exported keep their outcome and their zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evalray.errors import EvalRayError
from evalray.types import EvalRecord, Generation, Outcome, Score, Timeline

#: Benchmarks whose answer is a letter that OpenJarvis has a model read.
_LETTER_BENCHMARKS = frozenset({"supergpqa", "gpqa", "mmlu-pro"})
_UNREADABLE_REASONS = frozenset({"no_choice_letter_extracted", "empty_response"})
_NO_REFERENCE_REASONS = frozenset({"missing_reference_letter", "missing_reference", "no_reference"})
_REFERENCE_KEYS = ("reference_letter", "reference", "reference_answer", "gold_answer", "expected_answer")
_REASONING_END = "</think>"

#: Device figures that are 0 only where nothing was measured.
_POSITIVE = (
    "energy_joules",
    "power_watts",
    "mfu_pct",
    "mbu_pct",
    "energy_per_output_token_joules",
    "throughput_per_watt",
    "estimated_flops",
)
_RAILS = (
    "cpu_energy_joules",
    "gpu_energy_joules",
    "dram_energy_joules",
    "ane_energy_joules",
    "soc_energy_joules",
)


#: What is larger is no measurement, and an integer of JSON may be larger than any float.
_LARGEST = 2.0**62


class RowError(EvalRayError):
    """A line that is no result row; the message says why."""


@dataclass(slots=True, frozen=True)
class RowIdentity:
    """Which run and which sample a row belongs to."""

    benchmark: str
    model: str
    backend: str
    record_id: str
    epoch: int


@dataclass(slots=True, frozen=True)
class ImportedRow:
    """One row as the store's journals take it.

    ``score`` is ``None`` where the request failed, ``generation`` too where the sample was skipped.
    """

    record: EvalRecord
    generation: Generation | None
    score: Score | None
    skipped: str = ""
    """Why it was not attempted."""


def identify(row: dict[str, Any]) -> RowIdentity:
    """Raises :class:`RowError` where the row is not one of OpenJarvis's or ours."""
    for name in ("record_id", "benchmark", "model"):
        value = row.get(name)
        if name not in row:
            raise RowError(f"no {name!r}")
        if not isinstance(value, str) or not value:
            raise RowError(f"{name!r} is {value!r}, not a text")
    if "is_correct" not in row and not row.get("error"):
        raise RowError("neither 'is_correct' nor 'error'")
    if row.get("is_correct") not in (True, False, None):
        raise RowError(f"'is_correct' is {row['is_correct']!r}, not true, false or null")
    epoch = row.get("epoch", 0)
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 10_000:
        raise RowError(f"'epoch' is {epoch!r}")
    backend = row.get("backend")
    return RowIdentity(
        row["benchmark"], row["model"], backend if isinstance(backend, str) else "", row["record_id"], epoch
    )


def convert(row: dict[str, Any], category: str) -> ImportedRow:
    """A row that :func:`identify` took.  Never raises for what its other fields hold."""
    ours = "schema_version" in row
    metadata = row["scoring_metadata"] if isinstance(row.get("scoring_metadata"), dict) else {}
    record = EvalRecord(
        record_id=row["record_id"],
        problem=_text(row.get("prompt")),
        reference=_text(row.get("reference")) or _reference(metadata),
        category=_text(row.get("category")) or category,
        subject=_text(row.get("subject")),
        metadata=row["record_metadata"] if isinstance(row.get("record_metadata"), dict) else {},
    )
    outcome = _own_outcome(row) if ours else _outcome(row, metadata)
    if outcome is Outcome.SKIPPED:
        return ImportedRow(record, None, None, _text(row.get("error")))
    generation = _generation(row, outcome, keep_zeros=ours)
    if generation.error is not None:
        return ImportedRow(record, generation, None)
    said = {"is_correct": row.get("is_correct"), "score": row.get("score")}
    if row.get("error"):
        said["error"] = row["error"]
    kept = {**metadata, "imported": said}
    if not outcome.is_scored:
        kept.setdefault("error", _text(row.get("error")) or _text(metadata.get("reason")) or "no verdict")
    return ImportedRow(record, generation, Score(outcome, _score(row.get("score")), kept))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
        return None
    return value


def _score(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else min(1.0, max(0.0, float(number)))


def _reference(metadata: dict[str, Any]) -> str:
    found = (metadata.get(key) for key in _REFERENCE_KEYS)
    return next((value for value in found if isinstance(value, str) and value), "")


def _own_outcome(row: dict[str, Any]) -> Outcome:
    try:
        return Outcome(str(row.get("outcome")))
    except ValueError:
        return _outcome(row, {})


def _outcome(row: dict[str, Any], metadata: dict[str, Any]) -> Outcome:
    """OpenJarvis's verdict in our terms.

    It writes ``error`` for a failed request and for a failed scorer alike; only the second has an answer.
    """
    verdict, reason = row.get("is_correct"), metadata.get("reason")
    if row.get("error"):
        return Outcome.SCORER_ERROR if row.get("model_answer") else Outcome.ENGINE_ERROR
    if verdict is not None:
        return Outcome.CORRECT if verdict else Outcome.INCORRECT
    if reason in _NO_REFERENCE_REASONS:
        return Outcome.SCORER_ERROR
    if reason in _UNREADABLE_REASONS or (reason is None and row["benchmark"] in _LETTER_BENCHMARKS):
        return Outcome.UNPARSED
    return Outcome.JUDGE_ERROR


def _generation(row: dict[str, Any], outcome: Outcome, *, keep_zeros: bool) -> Generation:
    def measured(name: str) -> float | None:
        value = _number(row.get(name))
        return value if keep_zeros or value else None

    raw_text = _text(row.get("raw_text")) or _text(row.get("model_answer"))
    answer = _text(row.get("model_answer"))
    reasoning = _text(row.get("reasoning")) or None
    if reasoning is None and _REASONING_END in answer:
        reasoning, _, answer = answer.rpartition(_REASONING_END)
        reasoning, answer = reasoning.replace("<think>", "", 1).strip(), answer.strip()
    completion_tokens = _number(row.get("completion_tokens"))
    if completion_tokens == 0 and answer and not keep_zeros:
        completion_tokens = None
    error = kind = None
    if outcome is Outcome.ENGINE_ERROR:
        error, kind = _text(row.get("error")) or "failed", _text(row.get("error_kind")) or "engine"
    itl = measured("mean_itl_ms")
    return Generation(
        raw_text=raw_text,
        model_answer=answer,
        reasoning=reasoning,
        finish_reason=_text(row.get("finish_reason")) or None,
        prompt_tokens=_whole(measured("prompt_tokens")),
        completion_tokens=_whole(completion_tokens),
        cached_tokens=_whole(_number(row.get("cached_tokens"))),
        reasoning_tokens=_whole(_number(row.get("reasoning_tokens"))),
        timeline=Timeline(
            latency_seconds=measured("latency_seconds"),
            ttft_seconds=measured("ttft"),
            itl_mean_seconds=None if itl is None else itl / 1000,
        ),
        engine_id=_text(row.get("engine_id")),
        node_id=_text(row.get("node_id")),
        cost_usd=measured("cost_usd"),
        attempts=_whole(_number(row.get("attempts"))) or 1,
        error=error,
        error_kind=kind,
        telemetry=_telemetry(row, keep_zeros=keep_zeros) or None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _telemetry(row: dict[str, Any], *, keep_zeros: bool) -> dict[str, Any]:
    """Device figures; of what was not measured, nothing.

    A utilisation of 0 and an efficiency of 0 (a wrong answer) are real where energy or power was taken.
    """
    found: dict[str, Any] = {}
    for name in (*_POSITIVE, *_RAILS):
        value = _number(row.get(name))
        if value is not None and (keep_zeros or value > 0):
            found[name] = value
    metered = "energy_joules" in found or "power_watts" in found
    utilization = _number(row.get("gpu_utilization_pct"))
    if utilization is not None and (keep_zeros or metered or utilization > 0):
        found["gpu_utilization_pct"] = utilization
    graded = row.get("is_correct") is not None
    for name, basis in (("ipw", "power_watts"), ("ipj", "energy_joules")):
        value = _number(row.get(name))
        if value is not None and (keep_zeros or (graded and basis in found)):
            found[name] = value
    for name in ("energy_method", "energy_basis"):
        if isinstance(row.get(name), str) and row[name] and metered:
            found[name] = row[name]
    return found
