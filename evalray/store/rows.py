"""A run's rows: its journals joined, in order, one :class:`EvalResult` a sample, and their two file forms.

Rows come one by one from disk, so that a run of any length takes the same memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import IO, Any, get_args, get_type_hints

from evalray.store.device_figures import DeviceFigures
from evalray.store.index import RunIndex
from evalray.store.journal import Damage, LineReader, parse, read_lines
from evalray.store.jsonlines import encode, shallow, without_lone_surrogates
from evalray.store.layout import RunFiles, RunManifest
from evalray.store.lines import read_generation, read_record
from evalray.types import EvalResult, Outcome, Timeline

COLUMNS = tuple(f.name for f in fields(EvalResult))
NOT_SCORED_YET = "not scored yet"


def _kind(hint: Any) -> type:
    """The one type of a column besides ``None``."""
    if isinstance(hint, UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
    origin: type = getattr(hint, "__origin__", hint)
    return origin


KINDS: dict[str, type] = {name: _kind(hint) for name, hint in get_type_hints(EvalResult).items()}
_NUMERIC = tuple(name for name, kind in KINDS.items() if kind in (int, float))
_MEASURES = [*_NUMERIC, "is_correct"]
"""Columns with Parquet statistics: of texts they would only repeat prompts in the footer."""
_TEXTS = tuple(number for number, name in enumerate(COLUMNS) if KINDS[name] is str)
_MAPPINGS = tuple(number for number, name in enumerate(COLUMNS) if KINDS[name] is dict)
TELEMETRY = frozenset(
    {"energy_joules", "power_watts", "gpu_utilization_pct", "mfu_pct", "mbu_pct", "ipw", "ipj", "energy_method",
     "energy_per_output_token_joules", "throughput_per_watt", "estimated_flops"}
)  # fmt: skip
"""Columns of device figures."""
_values = attrgetter(*COLUMNS)
_SHOWN_REPLY_CHARS = 80
_LARGEST = 2**62


def iter_rows(
    files: RunFiles,
    manifest: RunManifest,
    index: RunIndex,
    damage: list[Damage],
    figures: DeviceFigures | None = None,
) -> Iterator[EvalResult]:
    """The rows of a run in order of position, then epoch.

    A sample that was neither generated nor recorded as skipped has none.
    """
    skipped = _skipped_offsets(files.skipped, index, damage)
    figures = figures or DeviceFigures.read(files.directory)
    readers = LineReader(files.generations), LineReader(files.scores), LineReader(files.skipped)
    generations, scores, skips = readers
    try:
        for position in range(manifest.num_records):
            for epoch in range(manifest.epochs):
                offset = index.generation_offset(position, epoch)
                if offset is not None:
                    score_offset = index.score_offset(position, epoch)
                    score = None if score_offset is None else scores.read(score_offset)
                    row = _generated_row(manifest, position, epoch, generations.read(offset), score)
                    figures.join(row)
                    yield row
                elif skipped and skipped[slot := position * manifest.epochs + epoch]:
                    yield _skipped_row(manifest, position, epoch, skips.read(skipped[slot] - 1))
    finally:
        for reader in readers:
            reader.close()


def _skipped_offsets(path: Path, index: RunIndex, damage: list[Damage]) -> array[int] | None:
    """Offset plus one of each skipped sample's line, by slot; 0 where there is none."""
    if not path.exists():
        return None
    offsets = array("q", bytes(8 * index.num_records * index.epochs))
    seen = Damage(path)
    for offset, line in read_lines(path, seen):
        value = parse(line) or {}
        position, epoch = value.get("position"), value.get("epoch")
        if isinstance(position, int) and isinstance(epoch, int) and index.covers(position, epoch):
            offsets[position * index.epochs + epoch] = offset + 1
    if seen.count:
        damage.append(seen)
    return offsets


def _row(manifest: RunManifest, position: int, epoch: int, line: dict[str, Any]) -> EvalResult:
    config, record = manifest.config, read_record(line)
    return EvalResult(
        record_id=record.record_id,
        benchmark=config.benchmark,
        model=config.model,
        backend=config.backend,
        epoch=epoch,
        position=position,
        prompt=record.problem,
        reference=record.reference,
        category=record.category,
        subject=record.subject,
        record_metadata=record.metadata,
        engine=manifest.engine,
        scorer=manifest.scorer,
    )


def _skipped_row(manifest: RunManifest, position: int, epoch: int, line: dict[str, Any]) -> EvalResult:
    row = _row(manifest, position, epoch, line)
    row.outcome = str(Outcome.SKIPPED)
    row.error = line.get("reason") or None
    return row


def _generated_row(
    manifest: RunManifest, position: int, epoch: int, line: dict[str, Any], score: dict[str, Any] | None
) -> EvalResult:
    generation = read_generation(line)
    row = _row(manifest, position, epoch, line)
    for name in ("model_answer", "raw_text", "reasoning", "finish_reason", "prompt_tokens", "completion_tokens",
                 "cached_tokens", "reasoning_tokens", "cost_usd", "attempts", "error", "error_kind",
                 "request_params", "cached"):  # fmt: skip
        setattr(row, name, getattr(generation, name))
    row.engine_id = generation.engine_id or None
    row.node_id = generation.node_id or None
    _set_times(row, generation.timeline)
    for name, value in (generation.telemetry or {}).items():
        if name in TELEMETRY:
            setattr(row, name, value)
    if generation.error is not None:
        row.outcome = str(Outcome.ENGINE_ERROR)
    elif score is None:
        row.outcome = str(Outcome.SKIPPED)
        row.error = NOT_SCORED_YET
    else:
        _set_score(row, score)
    _drop_non_numbers(row)
    # Of figures that are numbers: a journal of other hands may hold an integer beyond any float.
    if row.latency_seconds and row.completion_tokens is not None:
        row.throughput_tok_per_sec = row.completion_tokens / row.latency_seconds
    return row


def _set_times(row: EvalResult, timeline: Timeline) -> None:
    row.latency_seconds = timeline.latency_seconds
    row.ttft = timeline.ttft_seconds
    row.queue_seconds = timeline.queue_seconds
    row.decode_seconds = timeline.decode_seconds
    row.sent_at = timeline.sent_at
    row.completed_at = timeline.completed_at
    row.mean_itl_ms = _milliseconds(timeline.itl_mean_seconds)
    row.itl_p50_ms = _milliseconds(timeline.itl_p50_seconds)
    row.itl_p90_ms = _milliseconds(timeline.itl_p90_seconds)
    row.itl_p99_ms = _milliseconds(timeline.itl_p99_seconds)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _set_score(row: EvalResult, line: dict[str, Any]) -> None:
    outcome = Outcome(line["outcome"])
    metadata = dict(line.get("metadata") or {})
    if line.get("judge") is not None:
        # The replies as such stay in the journal; what was read of them is in the metadata already.
        metadata["judge"] = {name: value for name, value in line["judge"].items() if name != "replies"}
    row.outcome = str(outcome)
    row.is_correct = outcome.is_correct
    row.score = line.get("score")
    row.scoring_metadata = metadata
    if not outcome.is_scored:
        row.error = _why_unscored(metadata) or str(outcome)


def _why_unscored(metadata: Mapping[str, Any]) -> str:
    """Why a scorer or a judge came to no verdict, as far as the score says."""
    reason, reply = metadata.get("reason"), metadata.get("raw_judge_output")
    asked = metadata.get("judge")
    judge = f"judge {asked['model']}" if isinstance(asked, dict) and asked.get("model") else ""
    if metadata.get("error"):
        error = str(metadata["error"])
        return f"{judge}: {error}" if judge and reason == "judge_failed" and judge not in error else error
    if reason == "no judge configured":
        return "no judge was given: --judge-model, or [judge] model in the suite"
    if isinstance(reply, str):
        shown = reply if len(reply) <= _SHOWN_REPLY_CHARS else reply[: _SHOWN_REPLY_CHARS - 1] + "…"
        whose = f"the reply of {judge}" if judge else "the judge's reply"
        return f"{whose} could not be read: {shown!r}"
    return str(reason or "")


def _drop_non_numbers(row: EvalResult) -> None:
    """A server's count that is no number was not measured."""
    for name in _NUMERIC:
        value = getattr(row, name)
        if value is None:
            continue
        if not _is_number(value):
            setattr(row, name, None)
        elif KINDS[name] is int and not isinstance(value, int):
            setattr(row, name, int(value))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST < value < _LARGEST


class RowWriter:
    """Writes rows to a JSONL and a Parquet file at once, in row groups of bounded size.

    In Parquet every column has its type from :class:`EvalResult`; mappings are JSON text.
    """

    def __init__(
        self, jsonl: IO[bytes], parquet: IO[bytes], *, group_rows: int = 2048, group_bytes: int = 4 << 20
    ):
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_(), dict: pa.string()}
        self._schema = pa.schema([pa.field(name, types[KINDS[name]]) for name in COLUMNS])
        self._jsonl = jsonl
        self._parquet = pq.ParquetWriter(
            parquet, self._schema, compression="zstd", write_statistics=_MEASURES
        )
        self._group_rows, self._group_bytes = group_rows, group_bytes
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._bytes = 0

    def write(self, row: EvalResult) -> None:
        values = list(_values(row))
        for number in _TEXTS:
            values[number] = _text(values[number])
        for number in _MAPPINGS:
            values[number] = _valid_mapping(values[number])
        line = encode(dict(zip(COLUMNS, values, strict=True)))
        self._jsonl.write(line.encode("ascii") + b"\n")
        for column, value in zip(self._columns, values, strict=True):
            column.append(encode(value) if isinstance(value, dict) else value)
        self._bytes += len(line)
        if len(self._columns[0]) >= self._group_rows or self._bytes >= self._group_bytes:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        arrays = [
            pa.array(column, type_) for column, type_ in zip(self._columns, self._schema.types, strict=True)
        ]
        self._parquet.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._columns = [[] for _ in COLUMNS]
        self._bytes = 0

    def close(self) -> None:
        """Write the last group and the footer."""
        if self._columns[0]:
            self._write_group()
        self._parquet.close()


def _text(value: Any) -> str | None:
    """``value`` as valid Unicode, whatever a dataset put in a text field."""
    if value is None:
        return None
    return without_lone_surrogates(value if isinstance(value, str) else encode(value))


def _valid_mapping(value: Any) -> Any:
    try:
        return _valid_text(value)
    except RecursionError:
        return _valid_text(shallow(value))


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return without_lone_surrogates(value)
    if isinstance(value, dict):
        return {without_lone_surrogates(str(key)): _valid_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    return value
