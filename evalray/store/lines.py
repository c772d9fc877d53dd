"""What a line of the two journals holds, and how it becomes a record, a generation and a score again.

The keys that decide what is done come first and in fixed order, so that a journal is indexed
without parsing prompts and answers.  A score names the answer it judged by a checksum: it is void
for any other answer, and still good for the same answer generated again.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from evalray.errors import StoreError
from evalray.store.journal import VERSION, parse, seal
from evalray.types import EvalRecord, Generation, Outcome, Score, Timeline

_GENERATION_HEAD = re.compile(
    rb'\{"v":1,"position":(\d+),"epoch":(\d+),"ok":(true|false),"answer":"([0-9a-f]{8})","at":(\d+\.\d+),'
)
_SCORE_HEAD = re.compile(
    rb'\{"v":1,"position":(\d+),"epoch":(\d+),"outcome":"([a-z_]+)","answer":"([0-9a-f]{8})",'
    rb'"at":(\d+\.\d+),"scorer":("(?:[^"\\]|\\.)*"),'
)
_GENERATION_FIELDS = tuple(f.name for f in fields(Generation) if f.name != "timeline")
_TIMELINE_FIELDS = tuple(f.name for f in fields(Timeline))


class GenerationHead(NamedTuple):
    """Which sample a generation line is of, and whether it ends it.  ``at`` is Unix seconds."""

    position: int
    epoch: int
    ok: bool
    answer: int
    at: float


class ScoreHead(NamedTuple):
    """Which sample, answer and scorer a score line is of."""

    position: int
    epoch: int
    outcome: Outcome
    answer: int
    at: float
    scorer: str


def answer_checksum(generation: Generation) -> int:
    """CRC-32 of what a scorer sees of a generation: the answer and how it ended."""
    seen = f"{generation.finish_reason}\n{generation.model_answer}"
    return zlib.crc32(seen.encode("utf-8", "surrogatepass"))


def generation_line(
    position: int,
    epoch: int,
    attempt: int,
    at: float,
    answer: int,
    record: EvalRecord,
    generation: Generation,
) -> bytes:
    """One line of ``generations.jsonl``.  What was not measured is left out."""
    reply: dict[str, Any] = {}
    for name in _GENERATION_FIELDS:
        value = getattr(generation, name)
        if value is not None and value != "":
            reply[name] = value
    if generation.model_answer == generation.raw_text:
        reply.pop("model_answer", None)
    elif not generation.model_answer:
        reply["model_answer"] = ""
    timeline = generation.timeline
    times = {n: value for n in _TIMELINE_FIELDS if (value := getattr(timeline, n)) is not None}
    return seal(
        {
            "v": VERSION,
            "position": position,
            "epoch": epoch,
            "ok": generation.error is None,
            "answer": f"{answer:08x}",
            "at": at,
            "attempt": attempt,
            "record_id": record.record_id,
            "record": record_fields(record),
            "generation": reply,
            "timeline": times,
        }
    )


def score_line(
    position: int,
    epoch: int,
    at: float,
    answer: int,
    record_id: str,
    scorer: str,
    score: Score,
    judge: dict[str, Any] | None,
) -> bytes:
    """One line of ``scores.jsonl``."""
    line = {
        "v": VERSION,
        "position": position,
        "epoch": epoch,
        "outcome": str(score.outcome),
        "answer": f"{answer:08x}",
        "at": at,
        "scorer": scorer,
        "record_id": record_id,
        "score": score.score,
        "metadata": score.metadata,
    }
    if judge is not None:
        line["judge"] = judge
    return seal(line)


def record_fields(record: EvalRecord) -> dict[str, Any]:
    """A record but for its id."""
    return {
        "problem": record.problem,
        "reference": record.reference,
        "category": record.category,
        "subject": record.subject,
        "metadata": record.metadata,
    }


def read_generation_head(line: bytes, path: Path) -> GenerationHead | None:
    """Head of a whole generation line; ``None`` where it is of another kind.

    Raises :class:`StoreError` for a line that a later version wrote.
    """
    match = _GENERATION_HEAD.match(line)
    if match is not None:
        position, epoch, ok, answer, at = match.groups()
        return GenerationHead(int(position), int(epoch), ok == b"true", int(answer, 16), float(at))
    value = _parse_current(line, path)
    try:
        return GenerationHead(
            _index(value["position"]),
            _index(value["epoch"]),
            value["ok"] is True,
            int(value["answer"], 16),
            float(value["at"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def read_score_head(line: bytes, path: Path) -> ScoreHead | None:
    """Head of a whole score line; ``None`` where it is of another kind.

    Raises :class:`StoreError` for a line that a later version wrote.
    """
    match = _SCORE_HEAD.match(line)
    try:
        if match is not None:
            position, epoch, outcome, answer, at, scorer = match.groups()
            name = scorer[1:-1].decode("ascii") if b"\\" not in scorer else _unquote(scorer)
            return ScoreHead(
                int(position), int(epoch), Outcome(outcome.decode()), int(answer, 16), float(at), name
            )
        value = _parse_current(line, path)
        return ScoreHead(
            _index(value["position"]),
            _index(value["epoch"]),
            Outcome(value["outcome"]),
            int(value["answer"], 16),
            float(value["at"]),
            str(value["scorer"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _index(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _unquote(text: bytes) -> str:
    value = parse(b'{"":' + text + b"}")
    if value is None:
        raise ValueError(text)
    return str(value[""])


def _parse_current(line: bytes, path: Path) -> dict[str, Any]:
    value = parse(line) or {}
    version = value.get("v")
    if isinstance(version, int) and version > VERSION:
        raise StoreError(f"{path}: written by a later version of evalray (format {version}); upgrade evalray")
    return value


def read_record(line: dict[str, Any]) -> EvalRecord:
    """The record of a generation or skipped line."""
    record = line.get("record") or {}
    return EvalRecord(
        record_id=str(line.get("record_id", "")),
        problem=record.get("problem", ""),
        reference=record.get("reference", ""),
        category=record.get("category", ""),
        subject=record.get("subject", ""),
        metadata=record.get("metadata") or {},
    )


def read_generation(line: dict[str, Any]) -> Generation:
    """The generation of a generation line."""
    reply = line.get("generation") or {}
    known = {name: reply[name] for name in _GENERATION_FIELDS if name in reply}
    known.setdefault("model_answer", known.get("raw_text", ""))
    times = line.get("timeline") or {}
    return Generation(
        **known, timeline=Timeline(**{name: times[name] for name in _TIMELINE_FIELDS if name in times})
    )
