"""A run's summary, computed from its rows and from nothing else but what was planned and when.

Reads the Parquet file a column at a time, so that memory does not follow the length of the answers.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evalray.stats import (
    clustered_standard_error,
    clustered_wilson_interval,
    metric_stats,
    pass_at_k,
    standard_error,
    wilson_interval,
)
from evalray.store.activity import Activity
from evalray.store.energy import set_device_figures
from evalray.store.layout import RunManifest
from evalray.store.rows import TELEMETRY
from evalray.types import Outcome, RunSummary
from evalray.wording import counted

_ERRORS = (Outcome.ENGINE_ERROR, Outcome.SCORER_ERROR, Outcome.JUDGE_ERROR)
_JUDGE_FIGURES = ("calls", "prompt_tokens", "completion_tokens", "cost_usd")
_WARN_RATE = 0.01
_BATCH_ROWS = 1024
_STATS = {
    "latency_stats": "latency_seconds",
    "ttft_stats": "ttft",
    "energy_stats": "energy_joules",
    "power_stats": "power_watts",
    "gpu_utilization_stats": "gpu_utilization_pct",
    "throughput_stats": "throughput_tok_per_sec",
    "mfu_stats": "mfu_pct",
    "mbu_stats": "mbu_pct",
    "ipw_stats": "ipw",
    "ipj_stats": "ipj",
    "itl_stats": "mean_itl_ms",
    "input_token_stats": "prompt_tokens",
    "output_token_stats": "completion_tokens",
    "queue_stats": "queue_seconds",
    "energy_per_output_token_stats": "energy_per_output_token_joules",
}

#: From here on a headline that takes the better of both orders says little.
_WARN_POSITION_BIAS = 0.3
#: In a run's ``info``: how its last process ended it, where the journal does not tell.
ENDED = "ended"
#: In a run's ``info``: what was wrong with its judge, and whether the run was to be judged no more.
JUDGE_PROBLEM, JUDGING_STOPPED = "judge_problem", "judging_stopped"


class _Rows:
    """Columns of the exported rows, one at a time."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)

    def numbers(self, name: str) -> np.ndarray:
        """Floats, NaN where not measured."""
        import pyarrow as pa

        column = self._file.read(columns=[name], use_threads=False).column(0)
        array: np.ndarray = column.cast(pa.float64()).to_numpy()
        return array

    def texts(self, name: str) -> tuple[np.ndarray, list[str | None]]:
        """``(codes, values)``: ``values[code]`` is the text of a row."""
        column = self._file.read(columns=[name], use_threads=False).column(0)
        encoded = column.dictionary_encode(null_encoding="encode").combine_chunks()
        if not len(encoded):
            return np.zeros(0, dtype=np.int64), []
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def mappings(self, name: str) -> Iterator[dict[str, Any]]:
        """The mappings of a column stored as JSON, a batch of rows in memory at a time."""
        for batch in self._file.iter_batches(_BATCH_ROWS, columns=[name], use_threads=False):
            for text in batch.column(0).to_pylist():
                value = json.loads(text) if text else None
                yield value if isinstance(value, dict) else {}

    def close(self) -> None:
        self._file.close()


def summarize(
    parquet: Path,
    manifest: RunManifest,
    activity: Activity,
    warnings: list[str],
    device_figures: dict[str, Any] | None = None,
) -> RunSummary:
    """The summary of the rows in ``parquet``; ``warnings`` come before its own.

    ``device_figures``: what telemetry says of the run as a whole.
    """
    rows = _Rows(parquet)
    try:
        summary = _summarize(rows, manifest, activity, warnings)
        intensity = manifest.config.grid_gco2e_per_kwh
        set_device_figures(summary, rows.numbers, device_figures or {}, intensity)
        return summary
    finally:
        rows.close()


def _summarize(rows: _Rows, manifest: RunManifest, activity: Activity, warnings: list[str]) -> RunSummary:
    config = manifest.config
    codes, names = rows.texts("outcome")
    outcomes = {str(o): 0 for o in Outcome}
    outcomes |= {str(names[code]): int(n) for code, n in enumerate(np.bincount(codes, minlength=len(names)))}
    outcomes["skipped"] += max(0, manifest.planned - int(codes.size))

    correct_flags = rows.numbers("is_correct")
    scored = np.isfinite(correct_flags)
    positions = rows.numbers("position")[scored].astype(np.int64)
    flags = correct_flags[scored]
    correct, n_scored = int(flags.sum()), int(flags.size)
    attempted = manifest.planned - outcomes["skipped"]
    errors = sum(outcomes[o] for o in _ERRORS)

    summary = RunSummary(
        benchmark=config.benchmark,
        category=_category(rows, manifest),
        backend=config.backend,
        model=config.model,
        total_samples=attempted,
        scored_samples=n_scored,
        correct=correct,
        accuracy=_ratio(correct, n_scored),
        errors=errors,
        mean_latency_seconds=None,
        total_cost_usd=_total(rows.numbers("cost_usd")),
        started_at=activity.started_at,
        ended_at=activity.ended_at,
        accuracy_stats=metric_stats(flags),
        planned_samples=manifest.planned,
        outcomes=outcomes,
        accuracy_parsed=_ratio(correct, n_scored - outcomes["unparsed"]),
        accuracy_completed=_ratio(correct, n_scored - outcomes["truncated"]),
        truncated_rate=_ratio(outcomes["truncated"], n_scored),
        epochs=manifest.epochs,
        num_records=manifest.num_records,
        bad_rows=int(manifest.info.get("bad_rows") or 0),
        engine=manifest.engine,
        scorer=manifest.scorer,
        fingerprint=manifest.fingerprint,
        scorer_fingerprint=manifest.scorer_fingerprint,
    )
    _set_intervals(summary, flags, positions)
    _set_measurements(summary, rows, _answered(codes, names), activity)
    summary.per_subject = _per_subject(rows, codes, names, correct_flags)
    summary.scorer_rates = _scorer_rates(rows, manifest.info.get("summary_rates") or {})
    if manifest.info.get("judge"):
        _set_judge_figures(summary, rows)
    if activity.is_shared:
        warnings = [*warnings, "wall time and throughput are not known: more samples were run with these"]
    summary.warnings = [*warnings, *_warnings(summary)]
    summary.pass_at_k = _pass_at_k(summary, config.pass_k, flags, positions)
    summary.judge_problem = str(manifest.info.get(JUDGE_PROBLEM) or "")
    summary.status = _status(summary, config.max_error_rate)
    _set_end(summary, manifest)
    return summary


def _set_end(summary: RunSummary, manifest: RunManifest) -> None:
    """What the rows do not tell of how the run ended: an engine that did not start, a judge that was given up."""
    ended = manifest.info.get(ENDED)
    if summary.status == "partial" and isinstance(ended, dict):
        summary.reason = str(ended.get("reason") or "")
        if ended.get("status") == "failed":
            summary.status = "failed"
    if manifest.info.get(JUDGING_STOPPED) and summary.outcomes[Outcome.JUDGE_ERROR] and not summary.reason:
        summary.status, summary.reason = "partial", summary.judge_problem


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def _total(values: np.ndarray) -> float | None:
    measured = values[np.isfinite(values)]
    return float(measured.sum()) if measured.size else None


def _category(rows: _Rows, manifest: RunManifest) -> str:
    """The one category of the records, else the benchmark's name."""
    declared = manifest.info.get("category")
    if declared:
        return str(declared)
    _, names = rows.texts("category")
    found = [name for name in names if name]
    return found[0] if len(found) == 1 else manifest.config.benchmark


def _answered(codes: np.ndarray, names: list[str | None]) -> np.ndarray:
    """Rows whose request succeeded: the time a failed one took says nothing of the model."""
    failed = [code for code, name in enumerate(names) if name == Outcome.ENGINE_ERROR]
    return ~np.isin(codes, failed)


def _set_intervals(summary: RunSummary, flags: np.ndarray, positions: np.ndarray) -> None:
    if summary.epochs == 1:
        summary.accuracy_stderr = standard_error(flags)
        summary.accuracy_ci95 = wilson_interval(summary.correct, summary.scored_samples)
        return
    summary.accuracy_stderr = clustered_standard_error(flags, positions)
    summary.accuracy_ci95 = clustered_wilson_interval(flags, positions)


def _set_measurements(summary: RunSummary, rows: _Rows, answered: np.ndarray, activity: Activity) -> None:
    warm = rows.numbers("warmup") == 1
    for field_name, column in _STATS.items():
        values = rows.numbers(column)[answered & ~warm if column in TELEMETRY else answered]
        setattr(summary, field_name, metric_stats(values))
        total = _total(values)
        if column == "prompt_tokens":
            summary.total_input_tokens = None if total is None else int(total)
        elif column == "completion_tokens":
            summary.total_output_tokens = None if total is None else int(total)
    if summary.latency_stats is not None:
        summary.mean_latency_seconds = summary.latency_stats.mean
    cached = rows.numbers("cached") == 1
    summary.cached_samples = int(cached.sum())
    sent_at, completed_at = rows.numbers("sent_at"), rows.numbers("completed_at")
    summary.wall_seconds = activity.wall_seconds(sent_at[~cached])
    summary.generation_seconds = activity.generation_seconds(sent_at[~cached], completed_at[~cached])
    # Imported rows have no times of their own.
    if seconds := summary.generation_seconds or activity.seconds:
        sent = answered & ~cached
        completed = np.isfinite(rows.numbers("attempts")) & sent
        summary.samples_per_second = float(completed.sum()) / seconds
        tokens = _total(rows.numbers("completion_tokens")[sent])
        if tokens is not None:
            summary.output_tokens_per_second = tokens / seconds


def _per_subject(
    rows: _Rows, codes: np.ndarray, names: list[str | None], correct_flags: np.ndarray
) -> dict[str, dict[str, float | int | None]]:
    """Breakdown by subject over the attempted samples; records without a subject are in none."""
    subject_codes, subjects = rows.texts("subject")
    skipped = [code for code, name in enumerate(names) if name == Outcome.SKIPPED]
    attempted = ~np.isin(codes, skipped)
    scored = np.isfinite(correct_flags)
    right = scored & (correct_flags == 1)
    size = len(subjects)
    totals, scores, rights = (
        np.bincount(subject_codes[mask], minlength=size).tolist() for mask in (attempted, scored, right)
    )
    found = sorted((str(name), code) for code, name in enumerate(subjects) if name)
    return {
        name: {
            "accuracy": _ratio(rights[code], scores[code]),
            "total": totals[code],
            "scored": scores[code],
            "correct": rights[code],
        }
        for name, code in found
    }


def _scorer_rates(rows: _Rows, keys: dict[str, str]) -> dict[str, float | None]:
    """Share of true among the samples whose scoring metadata is true or false at a key, by the rate's name."""
    if not keys:
        return {}
    known, true = Counter[str](), Counter[str]()
    for metadata in rows.mappings("scoring_metadata"):
        for name, key in keys.items():
            if isinstance(flag := metadata.get(key), bool):
                known[name] += 1
                true[name] += flag
    return {name: _ratio(true[name], known[name]) for name in keys}


def _set_judge_figures(summary: RunSummary, rows: _Rows) -> None:
    """What asking the judge took, of the verdicts that stand; a figure no reply had is not measured."""
    sums: dict[str, float | None] = dict.fromkeys(_JUDGE_FIGURES)
    latencies = []
    for metadata in rows.mappings("scoring_metadata"):
        took = metadata.get("judge")
        if not isinstance(took, dict):
            continue
        for name, total in sums.items():
            if (value := took.get(name)) is not None:
                sums[name] = (total or 0) + value
        if took.get("latency_seconds") is not None:
            latencies.append(took["latency_seconds"])
    whole = {name: None if value is None else int(value) for name, value in sums.items()}
    summary.judge_calls, summary.judge_cost_usd = whole["calls"], sums["cost_usd"]
    summary.judge_input_tokens, summary.judge_output_tokens = (
        whole["prompt_tokens"],
        whole["completion_tokens"],
    )
    summary.judge_latency_stats = metric_stats(np.array(latencies, dtype=float))


def _pass_at_k(
    summary: RunSummary, ks: list[int], flags: np.ndarray, positions: np.ndarray
) -> dict[str, float | None]:
    """Mean over the records with at least ``k`` scored epochs; each left out is said in a warning."""
    if not ks:
        return {}
    tries, wins = np.bincount(positions), np.bincount(positions, weights=flags).astype(np.int64)
    counts = Counter(zip(tries[tries > 0].tolist(), wins[tries > 0].tolist(), strict=True))
    result: dict[str, float | None] = {}
    for k in sorted(set(ks)):
        totals: defaultdict[bool, float] = defaultdict(float)
        value = 0.0
        for (n, c), records in counts.items():
            chance = pass_at_k(n, c, k)
            totals[chance is not None] += records
            value += (chance or 0.0) * records
        result[str(k)] = value / totals[True] if totals[True] else None
        left_out = summary.num_records - int(totals[True])
        if left_out:
            summary.warnings.append(
                f"pass@{k}: {left_out} of {counted(summary.num_records, 'record')} "
                f"{'has' if left_out == 1 else 'have'} fewer than {counted(k, 'scored epoch')} "
                + (
                    f"and {'is' if left_out == 1 else 'are'} left out"
                    if totals[True]
                    else "so it cannot be estimated"
                )
            )
    return result


def _warnings(summary: RunSummary) -> list[str]:
    found = []
    if summary.planned_samples == 0:
        found.append("no records: the benchmark's data is empty, or max_samples is 0")
    for outcome, advice in (
        (Outcome.TRUNCATED, "raise max_tokens"),
        (Outcome.UNPARSED, "look at raw_text and the prompt's answer format"),
    ):
        count = summary.outcomes[outcome]
        rate = _ratio(count, summary.scored_samples)
        if rate is not None and rate > _WARN_RATE:
            found.append(f"{rate:.1%} of the scored samples are {outcome} ({count}): {advice}")
    bias = summary.scorer_rates.get("position_bias_rate")
    if bias is not None and bias >= _WARN_POSITION_BIAS:
        strict = summary.scorer_rates.get("win_or_tie_both_orders")
        both = "" if strict is None else f"; in both orders it is {strict:.1%}"
        found.append(
            f"the judge prefers a place: in {bias:.1%} of the pairs its verdict changed with the order{both}"
        )
    return found


def _status(summary: RunSummary, max_error_rate: float) -> str:
    error_rate: Any = _ratio(summary.errors, summary.total_samples)
    if summary.planned_samples == 0:
        return "failed"
    if error_rate is not None and (error_rate > max_error_rate or summary.scored_samples == 0):
        return "failed"
    return "partial" if summary.outcomes["skipped"] else "complete"
