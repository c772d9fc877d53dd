"""One run's figures of energy and utilisation: ``telemetry/samples.parquet``, a row per request, and ``run.json``."""

from __future__ import annotations

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evalray.files import replacing
from evalray.runtime.cross_check import cross_check
from evalray.runtime.recording import EngineLife
from evalray.runtime.unmeasured import much_unmeasured, why_no_joules
from evalray.telemetry import (
    TELEMETRY_VERSION,
    DeviceLedger,
    NodeAnalysis,
    RunFigures,
    RunPart,
    request_utilization,
)

SAMPLES = "samples.parquet"
FIGURES = "run.json"


@dataclass(slots=True, frozen=True)
class Asked:
    """One request of a run: which sample, and its index in its part."""

    position: int
    epoch: int
    sent_at: float
    part: int
    index: int
    output_tokens: int | None
    latency_seconds: float | None


@dataclass(slots=True)
class Part:
    """One node in one stretch of the sweep: its engines' lives, the analysis, and why it is as it is."""

    lives: list[EngineLife]
    done: NodeAnalysis
    notes: tuple[str, ...]
    dropped: int
    """Readings that nobody fetched in time."""
    damaged: int
    """Files of readings that cannot be read."""

    def is_shared_in(self, stretch: str) -> bool:
        """Whether somebody may still work on its devices in ``stretch``."""
        return any(life.stretch == stretch and math.isinf(life.ended_at) for life in self.lives)


def write_run(run_directory: Path, asked: list[Asked], parts: list[Part], state: Mapping[str, Any]) -> None:
    """Write both files.  ``state``: by what they are known to be out of date later: ``journal_bytes``, how much
    of the run's journal is in them; ``provisional``, whether others that share its devices are still at work;
    ``facts``, a digest of its engines' shapes and peaks.  Raises ``OSError``."""
    warm = _warmup(run_directory, asked)
    rows = [_row(each, parts[each.part], each in warm) for each in asked]
    folder = run_directory / "telemetry"
    folder.mkdir(exist_ok=True)
    _write_rows(folder / SAMPLES, rows)
    measured = [each for each in asked if each not in warm]
    about = _run_figures(measured or asked, parts)
    about["warmup_samples_excluded"] = len(warm)
    about |= state
    with replacing(folder / FIGURES) as beside:
        beside.write_text(json.dumps(_finite(about), indent=1), encoding="utf-8")


def run_parts(asked: Sequence[Asked], parts: Sequence[Part]) -> list[RunPart]:
    """A run's requests, part by part, as its power is drawn."""
    found = []
    for number, part in enumerate(parts):
        own = [each for each in asked if each.part == number]
        if own:
            first = _first(own, part)
            offset = first.sent_at - float(part.done.requests.sent[first.index])
            indices = np.array([each.index for each in own], dtype=np.intp)
            found.append(RunPart(part.lives[0].node_id, part.done, indices, offset, part.notes))
    return found


def _first(asked: Sequence[Asked], part: Part) -> Asked:
    """The first of a part's requests, by the clock that is never moved."""
    return min(asked, key=lambda each: float(part.done.requests.sent[each.index]))


def _warmup(run_directory: Path, asked: Sequence[Asked]) -> set[Asked]:
    """The run's first requests, as many as its ``warmup_samples``: they pay for compiling and cold caches."""
    config = json.loads((run_directory / "run.json").read_text(encoding="utf-8")).get("config") or {}
    number = int(config.get("warmup_samples") or 0)
    return set(sorted(asked, key=lambda each: each.sent_at)[:number]) if number < len(asked) else set()


def _row(each: Asked, part: Part, warmup: bool) -> dict[str, Any]:
    row = part.done.figures.row(each.index)
    life = part.lives[int(part.done.requests.engine[each.index])]
    if life.peak and life.param_count_b and each.output_tokens and each.latency_seconds:
        seed = request_utilization(
            param_count_b=life.param_count_b,
            active_params_b=life.active_params_b,
            tokens_per_second=each.output_tokens / each.latency_seconds,
            peak=life.peak,
            devices=life.devices,
        )
        row |= {"mfu_request_pct": seed.mfu_pct, "mbu_request_pct": seed.mbu_pct}
    head = {"position": each.position, "epoch": each.epoch, "sent_at": each.sent_at, "warmup": warmup}
    return {**head, "mfu_request_pct": None, "mbu_request_pct": None, **row}


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "position": pa.int64(), "epoch": pa.int64(), "telemetry_version": pa.int64(), "warmup": pa.bool_(),
        "energy_low_resolution": pa.bool_(), "energy_method": pa.string(), "energy_scope": pa.string(),
    }  # fmt: skip
    schema = pa.schema([pa.field(name, kinds.get(name, pa.float64())) for name in rows[0]])
    with replacing(path) as beside:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), beside, compression="zstd")


@dataclass(slots=True)
class _Share:
    """What one part contributes to a run: its requests there, their engines, and the figures of both."""

    part: Part
    asked: list[Asked]
    engines: list[int]
    figures: RunFigures

    @property
    def lives(self) -> list[EngineLife]:
        return [self.part.lives[engine] for engine in self.engines]

    @property
    def ledgers(self) -> list[DeviceLedger]:
        """Of the devices whose joules are those of its engines."""
        devices = self.part.done.energy_devices(self.engines)
        return [ledger for ledger in self.part.done.ledgers if ledger.info.device_id in devices]


def _shares(asked: Sequence[Asked], parts: Sequence[Part]) -> Iterator[_Share]:
    of_part: dict[int, list[Asked]] = defaultdict(list)
    for each in asked:
        of_part[each.part].append(each)
    for number, members in sorted(of_part.items()):
        part = parts[number]
        indices = np.array(sorted(each.index for each in members), dtype=np.intp)
        engines = part.done.engines_of(indices)
        # Of a replica that was replaced, the last life: they were not there at once.
        at_once = {part.lives[engine].engine_id: part.lives[engine].concurrency for engine in engines}
        if (figures := part.done.run(indices, sum(at_once.values()))) is not None:
            yield _Share(part, members, engines, figures)


def _run_figures(asked: Sequence[Asked], parts: Sequence[Part]) -> dict[str, Any]:
    shares = list(_shares(asked, parts))
    figures = [share.figures for share in shares]
    bases = [share.part.done.figures.basis[engine] for share in shares for engine in share.engines]
    lives = [life for share in shares for life in share.lives]
    methods = {basis.energy_method for basis in bases}
    scopes = {basis.energy_scope for basis in bases if basis.energy_scope}
    notes = dict.fromkeys(note for share in shares for note in share.part.notes)
    reasons = dict.fromkeys(basis.reason for basis in bases if basis.reason)
    warnings = dict.fromkeys(
        [
            *(warning for each in figures for warning in each.warnings),
            *(warning for share in shares for warning in share.part.done.warnings),
        ]
    )
    ledgers = [ledger for share in shares for ledger in share.ledgers]
    joules = _sum([each.energy_joules for each in figures])
    invalid = _sum([each.invalid_seconds for each in figures])
    if joules is None and any(ledger.info.has_energy for ledger in ledgers):
        reasons[why_no_joules(ledgers)] = None
    elif joules is not None:
        seconds = sum(share.figures.seconds * len(share.ledgers) for share in shares)
        if warning := much_unmeasured(ledgers, invalid, seconds):
            warnings[warning] = None
    checks, doubts = cross_check(
        (share.part.lives[engine], share.part.done.activities[engine])
        for share in shares
        for engine in share.engines
    )
    warnings |= dict.fromkeys(doubts)
    dropped = sum(share.part.dropped for share in shares)
    if dropped:
        warnings[f"{dropped} readings were lost because nobody fetched them in time"] = None
    damaged = sum(share.part.damaged for share in shares)
    if damaged:
        warnings[
            f"{damaged} of the sweep's telemetry/ticks-*.parquet cannot be read, and its readings are missing"
        ] = None
    peaks = dict.fromkeys(
        f"{life.peak.flops_label}, {life.peak.bandwidth_label}"
        for life in lives
        if life.peak is not None and (life.peak.flops_per_second or life.peak.bytes_per_second)
    )
    missing = dict.fromkeys(life.shape_reason for life in lives if life.shape is None and life.shape_reason)
    missing |= dict.fromkeys(
        (life.peak.detail if life.peak else "")
        or "no peak is known: give gpu_peak_tflops and gpu_peak_bandwidth_gb_s in the suite, and repeat the command"
        for life in lives
        if life.shape is not None and not (life.peak and life.peak.flops_per_second)
    )
    steady = figures[0].steady if len(figures) == 1 else None
    return {
        "telemetry_version": TELEMETRY_VERSION,
        "energy_method": methods.pop() if len(methods) == 1 else "mixed",
        "energy_scope": scopes.pop() if len(scopes) == 1 else "mixed" if scopes else None,
        "energy_reason": "; ".join([*reasons, *notes]) or None,
        "peak": "; ".join(peaks) or None,
        "utilization_reason": "; ".join(missing) or None,
        "energy_joules": joules,
        "idle_joules": _sum([each.idle_joules for each in figures]),
        "device_joules": _sum([each.device_joules for each in figures]),
        "avg_power_watts": _mean_power(shares),
        "peak_power_watts": max(
            (e.peak_power_watts for e in figures if e.peak_power_watts is not None), default=None
        ),
        "mfu_pct": _weighted([(each.mfu_pct, each.seconds) for each in figures]),
        "mbu_pct": _weighted([(each.mbu_pct, each.seconds) for each in figures]),
        "seconds": sum(each.seconds for each in figures),
        "invalid_seconds": invalid,
        "steady_state_reached": steady.reached if steady else None,
        "steady": asdict(steady) if steady else None,
        "engine_counters": checks,
        "warnings": list(warnings),
        "devices": [_ledger(ledger, share.part) for share in shares for ledger in share.part.done.ledgers],
        "nodes": sorted({life.node_id for life in lives}),
    }


def _mean_power(shares: Sequence[_Share]) -> float | None:
    """Mean power of all devices together over the time that any node was at work.

    Of each device it is over its valid windows, so that what was not measured does not count as 0 W.
    """
    joules, total, until = 0.0, 0.0, -math.inf
    for share in shares:
        each, devices = share.figures, len(share.part.done.energy_devices(share.engines))
        valid = each.seconds * devices - (each.invalid_seconds or 0.0)
        if each.device_joules is None or valid <= 0:
            return None
        joules += each.device_joules / valid * devices * each.seconds
    starts = [(_first(share.asked, share.part).sent_at, share.figures.seconds) for share in shares]
    spans = sorted((start, start + seconds) for start, seconds in starts)
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return joules / total if total > 0 else None


def _ledger(ledger: DeviceLedger, part: Part) -> dict[str, Any]:
    """One device's account over the time of its deployment, other runs and judges on it included.

    ``attributed_joules + judge_joules + idle_joules`` is ``measured_joules``.
    """
    of_engines: dict[str, float] = defaultdict(float)
    judged = 0.0
    for engine, joules in ledger.engine_joules.items():
        life = part.lives[engine]
        of_engines[life.engine_id] += joules
        judged += joules if life.judge else 0.0
    attributed = ledger.attributed_joules
    return {
        "device_id": ledger.info.device_id,
        "name": ledger.info.name,
        "kind": str(ledger.info.kind),
        "energy_method": str(ledger.info.energy_method),
        "reason": ledger.info.reason,
        "measured_joules": ledger.measured_joules,
        "attributed_joules": None if attributed is None else attributed - judged,
        "judge_joules": None if attributed is None else judged,
        "idle_joules": ledger.idle_joules,
        "engine_joules": None if attributed is None else dict(sorted(of_engines.items())),
        "idle_watts": ledger.idle_watts,
        "idle_seconds": ledger.idle_seconds,
        "valid_seconds": ledger.valid_seconds,
        "invalid_seconds": ledger.invalid_seconds,
        "resolution_seconds": ledger.resolution_seconds,
        "weight": ledger.weight,
        "engines": sorted(
            {life.engine_id for life in part.lives if ledger.info.device_id in life.device_ids}
        ),
    }


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _weighted(values: Sequence[tuple[float | None, float]]) -> float | None:
    """Mean by seconds of what is known."""
    known = [(value, seconds) for value, seconds in values if value is not None and seconds > 0]
    total = sum(seconds for _, seconds in known)
    return sum(value * seconds for value, seconds in known) / total if total else None


def _finite(value: Any) -> Any:
    """Without NaN and infinities, which JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    with contextlib.suppress(AttributeError):
        return value.item()
    return value
