"""From what telemetry recorded and the journals to each run's ``telemetry/``: a row per request, and the run's own.

Pure but for reading and writing the sweep's directory: repeated, it gives the same files.  Requests of
every run whose engines shared a device in the same time are taken together, since they share its joules.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evalray.errors import StoreError
from evalray.runtime.cross_check import cross_check
from evalray.runtime.recording import EngineLife, RecordedTicks, read_engines, read_ticks
from evalray.store import iter_generations
from evalray.telemetry import (
    TELEMETRY_VERSION,
    ClockMap,
    DeviceSeries,
    NodeAnalysis,
    PowerTimeline,
    RequestLog,
    RunFigures,
    RunPart,
    analyse,
    node_series,
    power_timeline,
    request_utilization,
)
from evalray.types import Generation

#: Seconds of readings before the first request and after the last that are looked at.  The latter have been
#: fetched when figures are first worked out, so that later readings change nothing.
_BEFORE, _AFTER = 30.0, 0.9

SAMPLES = "samples.parquet"
FIGURES = "run.json"


@dataclass(slots=True, frozen=True)
class _Asked:
    """One request of a run that is looked at: which sample, and its index on its node."""

    position: int
    epoch: int
    sent_at: float
    node: int
    index: int
    output_tokens: int | None
    latency_seconds: float | None


@dataclass(slots=True)
class _Node:
    """One node's part: its engines' lives, the analysis, and why it is as it is."""

    lives: list[EngineLife]
    done: NodeAnalysis
    notes: tuple[str, ...]
    dropped: int


def _raise(error: Exception) -> None:
    raise error


def figures_of_runs(
    directory: Path, runs: Sequence[str], trouble: Callable[[Exception], None] = _raise
) -> list[str]:
    """Write ``<run>/telemetry/`` for those of ``runs`` that engines of record worked for; their names.

    ``trouble`` is told of each run whose power could not be drawn; it has its figures all the same.
    Raises ``OSError`` and :class:`StoreError`.
    """
    from evalray.reports import write_power  # here, since actors import this module and no report

    asked, nodes = _analysed(directory, runs)
    written = [name for name in runs if asked[name]]
    for name in written:
        _write_run(directory / name, asked[name], nodes)
    for name in written:
        try:
            write_power(directory / name, power_timeline(_run_parts(asked[name], nodes)))
        except Exception as error:  # noqa: BLE001 -- no picture is worth the figures
            why = f"{type(error).__name__}: {error}"[:150]
            trouble(StoreError(f"power was not plotted ({why}); `evalray telemetry {directory}` tries again"))
    return written


def timeline_of_run(directory: Path, run: str) -> PowerTimeline | None:
    """A run's power over time, from what was recorded; ``None`` where nothing was.  Writes nothing.

    Raises ``OSError`` and :class:`StoreError`.
    """
    asked, nodes = _analysed(directory, [run])
    return power_timeline(_run_parts(asked[run], nodes)) if asked[run] else None


def _analysed(directory: Path, runs: Sequence[str]) -> tuple[dict[str, list[_Asked]], list[_Node]]:
    """The requests of each of ``runs``, and the nodes that their engines were on."""
    lives = read_engines(directory)
    wanted = set(runs)
    own = [life for life in lives if wanted & set(life.runs)]
    nodes: list[_Node] = []
    asked: dict[str, list[_Asked]] = {name: [] for name in runs}
    for node_id in dict.fromkeys(life.node_id for life in own):
        together = _together([life for life in lives if life.node_id == node_id], own)
        ticks = list(read_ticks(directory, node_id))
        if not ticks:
            continue
        log = RequestLog()
        clock = ClockMap([pair for part in ticks for pair in part.clocks])
        names = dict.fromkeys(name for life in together for name in life.runs)
        for name in names:
            for position, epoch, generation in iter_generations(directory / name):
                number = _life_of(together, node_id, generation)
                if number is None or generation.cached:
                    continue
                index = log.add_generation(number, generation, clock)
                line = generation.timeline
                if index is not None and name in asked and line.sent_at is not None:
                    tokens, took = generation.completion_tokens, line.latency_seconds
                    asked[name].append(_Asked(position, epoch, line.sent_at, len(nodes), index, tokens, took))
        requests = log.columns()
        series = (
            _series(ticks, requests.sent.min() - _BEFORE, requests.end.max() + _AFTER)
            if len(requests)
            else {}
        )
        done = analyse(series, requests, [life.use() for life in together])
        notes = tuple(dict.fromkeys(note for part in ticks for note in part.node.notes))
        nodes.append(_Node(together, done, notes, sum(part.dropped for part in ticks)))
    return asked, nodes


def _run_parts(asked: Sequence[_Asked], nodes: Sequence[_Node]) -> list[RunPart]:
    """A run's requests, node by node."""
    parts = []
    for number, node in enumerate(nodes):
        own = [each for each in asked if each.node == number]
        if own:
            first = min(own, key=lambda each: each.sent_at)
            offset = first.sent_at - float(node.done.requests.sent[first.index])
            indices = np.array([each.index for each in own], dtype=np.intp)
            parts.append(RunPart(node.lives[0].node_id, node.done, indices, offset, node.notes))
    return parts


def _together(of_node: list[EngineLife], own: list[EngineLife]) -> list[EngineLife]:
    """The lives in ``own`` and all that shared a device with one of them in the same time."""

    def shares(life: EngineLife) -> bool:
        return any(
            set(life.device_ids) & set(mine.device_ids)
            and life.ready_at < mine.ended_at
            and mine.ready_at < life.ended_at
            for mine in own
            if mine.node_id == life.node_id
        )

    mine = [life for life in of_node if life in own]
    return mine + [life for life in of_node if life not in mine and shares(life)]


def _life_of(lives: Sequence[EngineLife], node_id: str, generation: Generation) -> int | None:
    """Which life answered: the replica's last that had begun by then."""
    sent = generation.timeline.sent_at
    if generation.node_id != node_id or sent is None:
        return None
    fitting = [
        (life.ready_at, number) for number, life in enumerate(lives) if life.engine_id == generation.engine_id
    ]
    begun = [each for each in fitting if each[0] <= sent]
    return max(begun)[1] if begun else min(fitting)[1] if fitting else None


def _series(parts: Sequence[RecordedTicks], start: float, end: float) -> dict[str, DeviceSeries]:
    """A node's devices over ``start`` to ``end``, the recordings of all its monitors together."""
    whole: dict[str, DeviceSeries] = {}
    for part in parts:
        seconds = part.columns["monotonic_seconds"]
        inside = (seconds >= start) & (seconds <= end)
        cut = {name: values[inside] for name, values in part.columns.items()}
        for device_id, series in node_series(part.node, cut).items():
            whole[device_id] = whole[device_id] + series if device_id in whole else series
    return whole


def _write_run(run_directory: Path, asked: list[_Asked], nodes: list[_Node]) -> None:
    warm = _warmup(run_directory, asked)
    rows = [_row(each, nodes[each.node], each in warm) for each in asked]
    folder = run_directory / "telemetry"
    folder.mkdir(exist_ok=True)
    _write_rows(folder / SAMPLES, rows)
    measured = [each for each in asked if each not in warm]
    about = _run_figures(measured or asked, nodes)
    about["warmup_samples_excluded"] = len(warm)
    beside = folder / f".{FIGURES}.tmp"
    beside.write_text(json.dumps(_finite(about), indent=1), encoding="utf-8")
    beside.replace(folder / FIGURES)


def _warmup(run_directory: Path, asked: Sequence[_Asked]) -> set[_Asked]:
    """The run's first requests, as many as its ``warmup_samples``: they pay for compiling and cold caches."""
    config = json.loads((run_directory / "run.json").read_text(encoding="utf-8")).get("config") or {}
    number = int(config.get("warmup_samples") or 0)
    return set(sorted(asked, key=lambda each: each.sent_at)[:number]) if number < len(asked) else set()


def _row(each: _Asked, node: _Node, warmup: bool) -> dict[str, Any]:
    row = node.done.figures.row(each.index)
    life = node.lives[int(node.done.requests.engine[each.index])]
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
    beside = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), beside, compression="zstd")
    beside.replace(path)


def _run_figures(asked: list[_Asked], nodes: list[_Node]) -> dict[str, Any]:
    of_node: dict[int, list[int]] = defaultdict(list)
    for each in asked:
        of_node[each.node].append(each.index)
    parts = [(nodes[number], figures) for number, figures in _parts(of_node, nodes)]
    figures = [each for _, each in parts]
    bases = [
        node.done.figures.basis[engine]
        for number, node in enumerate(nodes)
        for engine in sorted({int(node.done.requests.engine[i]) for i in of_node.get(number, ())})
    ]
    lives = [life for node, _ in parts for life in node.lives]
    methods = {basis.energy_method for basis in bases}
    scopes = {basis.energy_scope for basis in bases if basis.energy_scope}
    notes = dict.fromkeys(note for node, _ in parts for note in node.notes)
    reasons = dict.fromkeys(basis.reason for basis in bases if basis.reason)
    warnings = dict.fromkeys(
        [
            *(w for each in figures for w in each.warnings),
            *(w for node, _ in parts for w in node.done.warnings),
        ]
    )
    checks, doubts = cross_check(
        (node.lives[engine], node.done.activities[engine])
        for number, node in enumerate(nodes)
        for engine in sorted({int(node.done.requests.engine[i]) for i in of_node.get(number, ())})
    )
    warnings |= dict.fromkeys(doubts)
    dropped = sum(node.dropped for node, _ in parts)
    if dropped:
        warnings[f"{dropped} readings were lost because nobody fetched them in time"] = None
    peaks = dict.fromkeys(
        f"{life.peak.flops_label}, {life.peak.bandwidth_label}"
        for life in lives
        if life.peak is not None and (life.peak.flops_per_second or life.peak.bytes_per_second)
    )
    missing = dict.fromkeys(life.shape_reason for life in lives if life.shape is None and life.shape_reason)
    missing |= dict.fromkeys(
        (life.peak.detail if life.peak else "")
        or "no peak is known: run `evalray hardware probe`, or give gpu_peak_tflops and gpu_peak_bandwidth_gb_s"
        for life in lives
        if life.shape is not None and not (life.peak and life.peak.flops_per_second)
    )
    steady = figures[0].steady if len(figures) == 1 else None
    seconds = sum(each.seconds for each in figures)
    return {
        "telemetry_version": TELEMETRY_VERSION,
        "energy_method": methods.pop() if len(methods) == 1 else "mixed",
        "energy_scope": scopes.pop() if len(scopes) == 1 else "mixed" if scopes else None,
        "energy_reason": "; ".join([*reasons, *notes]) or None,
        "peak": "; ".join(peaks) or None,
        "utilization_reason": "; ".join(missing) or None,
        "energy_joules": _sum([each.energy_joules for each in figures]),
        "idle_joules": _sum([each.idle_joules for each in figures]),
        "device_joules": _sum([each.device_joules for each in figures]),
        "avg_power_watts": _mean_power(asked, of_node, nodes, dict(_parts(of_node, nodes))),
        "peak_power_watts": max(
            (e.peak_power_watts for e in figures if e.peak_power_watts is not None), default=None
        ),
        "mfu_pct": _weighted([(each.mfu_pct, each.seconds) for each in figures]),
        "mbu_pct": _weighted([(each.mbu_pct, each.seconds) for each in figures]),
        "seconds": seconds,
        "invalid_seconds": sum(each.invalid_seconds for each in figures),
        "steady_state_reached": steady.reached if steady else None,
        "steady": asdict(steady) if steady else None,
        "engine_counters": checks,
        "warnings": list(warnings),
        "devices": [_ledger(ledger, node) for node, _ in parts for ledger in node.done.ledgers],
        "nodes": sorted({life.node_id for life in lives}),
    }


def _mean_power(
    asked: Sequence[_Asked],
    of_node: dict[int, list[int]],
    nodes: list[_Node],
    figures: dict[int, RunFigures],
) -> float | None:
    """Mean power of all devices together over the time that any node was at work.

    Of each device it is over its valid windows, so that what was not measured does not count as 0 W.
    """
    joules = 0.0
    for number, each in figures.items():
        done = nodes[number].done
        engines = {int(done.requests.engine[index]) for index in of_node[number]}
        devices = len({device for engine in engines for device in done.figures.basis[engine].device_ids})
        valid = each.seconds * devices - each.invalid_seconds
        if each.device_joules is None or valid <= 0:
            return None
        joules += each.device_joules / valid * devices * each.seconds
    spans = sorted(
        (
            min(each.sent_at for each in asked if each.node == number),
            max(each.sent_at + (each.latency_seconds or 0.0) for each in asked if each.node == number),
        )
        for number in figures
    )
    seconds, until = 0.0, -math.inf
    for start, end in spans:
        seconds += max(0.0, end - max(start, until))
        until = max(until, end)
    return joules / seconds if seconds > 0 else None


def _parts(of_node: dict[int, list[int]], nodes: list[_Node]) -> Iterator[tuple[int, RunFigures]]:
    for number, members in sorted(of_node.items()):
        done = nodes[number].done
        indices = np.array(sorted(members), dtype=np.intp)
        used = set(done.requests.engine[indices].tolist())
        latest = {nodes[number].lives[i].engine_id: nodes[number].lives[i].concurrency for i in sorted(used)}
        if (figures := done.run(indices, sum(latest.values()))) is not None:
            yield number, figures


def _ledger(ledger: Any, node: _Node) -> dict[str, Any]:
    """One device's account over the time of its deployment, other runs of it included."""
    return {
        "device_id": ledger.info.device_id,
        "name": ledger.info.name,
        "kind": str(ledger.info.kind),
        "energy_method": str(ledger.info.energy_method),
        "reason": ledger.info.reason,
        "measured_joules": ledger.measured_joules,
        "attributed_joules": ledger.attributed_joules,
        "idle_joules": ledger.idle_joules,
        "idle_watts": ledger.idle_watts,
        "idle_seconds": ledger.idle_seconds,
        "valid_seconds": ledger.valid_seconds,
        "invalid_seconds": ledger.invalid_seconds,
        "resolution_seconds": ledger.resolution_seconds,
        "weight": ledger.weight,
        "engines": sorted(
            {life.engine_id for life in node.lives if ledger.info.device_id in life.device_ids}
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
