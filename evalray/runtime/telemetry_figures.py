"""From what telemetry recorded and the journals to the figures of each run's requests.

Pure but for reading and writing the sweep's directory: repeated, it gives the same files.  Each node is taken
for itself, and of it each stretch of the sweep: nobody measured what came between two.  Whoever shared a
device with a run's engines in the same time is taken together with them, other models and judges on the
cluster included, since they share its joules.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from evalray.errors import StoreError
from evalray.runtime.recording import EngineLife, RecordedTicks, read_engines, read_judged, read_ticks
from evalray.runtime.run_figures import FIGURES, Asked, Part, run_parts, write_run
from evalray.store import RunFiles, iter_generations
from evalray.telemetry import (
    ClockMap,
    DeviceSeries,
    PowerTimeline,
    RequestColumns,
    RequestLog,
    analyse,
    node_series,
    power_timeline,
)
from evalray.types import Generation

#: Seconds of readings before the first request and after the last that are looked at.  The latter have been
#: fetched when figures are first worked out, so that later readings change nothing.
_BEFORE, _AFTER = 30.0, 0.9


def _raise(error: Exception) -> None:
    raise error


def figures_of_runs(
    directory: Path,
    runs: Sequence[str],
    trouble: Callable[[Exception], None] = _raise,
    *,
    stretch: str = "",
) -> list[str]:
    """Write ``<run>/telemetry/`` for those of ``runs`` that engines of record worked for; their names.

    ``stretch`` is the one under way, if one is: where others still work on the devices in it, what they have
    in flight is not known yet, and the figures are provisional.
    ``trouble`` is told of each run whose power could not be drawn; it has its figures all the same.
    Raises ``OSError`` and :class:`StoreError`.
    """
    from evalray.reports import write_power  # here, since actors import this module and no report

    sizes = {name: _journal_bytes(directory, name) for name in runs}
    lives = read_engines(directory)
    asked, parts = _analysed(directory, runs)
    written = [name for name in runs if asked[name]]
    for name in written:
        provisional = any(parts[each.part].is_shared_in(stretch) for each in asked[name])
        state = {"journal_bytes": sizes[name], "provisional": provisional, "facts": _facts(lives, name)}
        write_run(directory / name, asked[name], parts, state)
    for name in written:
        try:
            write_power(directory / name, power_timeline(run_parts(asked[name], parts)))
        except Exception as error:  # noqa: BLE001 -- no picture is worth the figures
            why = f"{type(error).__name__}: {error}"[:150]
            trouble(StoreError(f"power was not plotted ({why}); `evalray telemetry {directory}` tries again"))
    return written


def timeline_of_run(directory: Path, run: str) -> PowerTimeline | None:
    """A run's power over time, from what was recorded; ``None`` where nothing was.  Writes nothing.

    Raises ``OSError`` and :class:`StoreError`.
    """
    asked, parts = _analysed(directory, [run])
    return power_timeline(run_parts(asked[run], parts)) if asked[run] else None


def _analysed(directory: Path, runs: Sequence[str]) -> tuple[dict[str, list[Asked]], list[Part]]:
    """The requests of each of ``runs``, and the parts that they are in."""
    lives = _Lives(read_engines(directory))
    parts: list[Part] = []
    asked: dict[str, list[Asked]] = {name: [] for name in runs}
    for own in lives.of_runs(runs):
        part = _part(directory, own, lives, asked, len(parts))
        if part is not None:
            parts.append(part)
    return asked, parts


def is_overdue(directory: Path, run: str) -> bool:
    """Whether engines of record worked for a run after its figures were worked out last, or others who shared
    their devices went on after that, or more is known of its engines' shapes and peaks than then.

    That is so where the process that ran them was killed before it came to the figures, or to the last of them.
    """
    known = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        known = json.loads((directory / run / "telemetry" / FIGURES).read_text(encoding="utf-8"))
    if isinstance(known, dict) and known.get("journal_bytes") == _journal_bytes(directory, run):
        if known.get("provisional") is True:
            return True
        return known.get("facts") != _facts(read_engines(directory), run)
    return any(run in life.runs for life in read_engines(directory))


def _facts(lives: Iterable[EngineLife], run: str) -> str:
    """A digest of what is known of the shapes and peaks of a run's engines."""
    known = {json.dumps(life.facts(), sort_keys=True) for life in lives if run in life.runs}
    return hashlib.sha256("\n".join(sorted(known)).encode()).hexdigest()[:16]


def _journal_bytes(directory: Path, run: str) -> int:
    try:
        return RunFiles(directory / run).generations.stat().st_size
    except OSError:
        return 0


class _Lives:
    """All lives of a sweep's replicas, found by who answered when."""

    def __init__(self, lives: Sequence[EngineLife]) -> None:
        self._all = lives
        self._of_replica: dict[tuple[str, str], list[EngineLife]] = defaultdict(list)
        for life in sorted(lives, key=lambda life: life.ready_at):
            self._of_replica[life.engine_id, life.node_id].append(life)

    def of_runs(self, runs: Iterable[str]) -> list[list[EngineLife]]:
        """The lives that worked for any of ``runs``, those of one node and stretch together."""
        wanted = set(runs)
        found: dict[tuple[str, str], list[EngineLife]] = defaultdict(list)
        for life in self._all:
            if wanted & set(life.runs):
                found[life.node_id, life.stretch].append(life)
        return list(found.values())

    def beside(self, own: Sequence[EngineLife]) -> list[EngineLife]:
        """The other lives that shared a device with one of ``own`` in the same time."""
        return [life for life in self._all if life not in own and any(map(life.shares_device, own))]

    def that_answered(self, generation: Generation, run: str | None) -> EngineLife | None:
        """The replica's last life that had begun by then, of those that worked for ``run`` (``None``: as a judge).

        By the node's monotonic clock where that is known: those of driver and node may differ by any amount.
        """
        sent, mark = generation.timeline.sent_at, generation.timeline.sent_monotonic
        replica = self._of_replica.get((generation.engine_id, generation.node_id), ())
        fitting = [life for life in replica if (life.judge if run is None else run in life.runs)]
        if sent is None or not fitting:
            return None
        begun = [
            life
            for life in fitting
            if (
                life.ready_at <= sent
                if mark is None or life.placed_monotonic is None
                else life.placed_monotonic <= mark
            )
        ]
        return begun[-1] if begun else fitting[0]


def _part(
    directory: Path,
    own: list[EngineLife],
    lives: _Lives,
    asked: dict[str, list[Asked]],
    number: int,
) -> Part | None:
    """One node's part in one stretch, and into ``asked`` who of the runs is in it; ``None`` where nobody is."""
    ticks = list(read_ticks(directory, own[0].node_id, own[0].stretch))
    if not ticks:
        return None
    together = [*own, *lives.beside(own)]
    index_of = {id(life): index for index, life in enumerate(together)}
    log, clock = RequestLog(), ClockMap([pair for part in ticks for pair in part.clocks])

    def add(run: str | None, generation: Generation) -> int | None:
        life = lives.that_answered(generation, run)
        engine = index_of.get(id(life))
        return None if engine is None or generation.cached else log.add_generation(engine, generation, clock)

    names = dict.fromkeys(name for life in own for name in life.runs)
    for name in names:
        for position, epoch, generation in iter_generations(directory / name):
            index, line = add(name, generation), generation.timeline
            if index is not None and name in asked and line.sent_at is not None:
                tokens, took = generation.completion_tokens, line.latency_seconds
                asked[name].append(Asked(position, epoch, line.sent_at, number, index, tokens, took))
    if not len(log):
        return None
    requests, count = log.columns(), len(log)
    start, end = float(requests.sent.min()) - _BEFORE, float(requests.end.max()) + _AFTER
    for run, generation in _of_others(directory, together, names):
        add(run, generation)
    if len(log) > count:
        requests = _within(log.columns(), count, start, end)
    done = analyse(_series(ticks, start, end), requests, [life.use() for life in together])
    notes = tuple(dict.fromkeys(note for part in ticks for note in part.node.notes))
    lost = sum(part.dropped for part in ticks), sum(part.damaged for part in ticks)
    return Part(together, done, notes, *lost)


def _of_others(
    directory: Path, together: Iterable[EngineLife], names: Iterable[str]
) -> Iterator[tuple[str | None, Generation]]:
    """Requests of runs that are not in ``names``, by run, and of judges."""
    known = set(names)
    for name in dict.fromkeys(name for life in together for name in life.runs if name not in known):
        for _, _, generation in iter_generations(directory / name):
            yield name, generation
    if any(life.judge for life in together):
        for generation in read_judged(directory):
            yield None, generation


def _within(requests: RequestColumns, first: int, start: float, end: float) -> RequestColumns:
    """Without those from ``first`` on that were not active between ``start`` and ``end``."""
    touching = (requests.end >= start) & (requests.sent <= end)
    return requests.take(np.flatnonzero(touching | (np.arange(len(requests)) < first)))


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
