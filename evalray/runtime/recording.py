"""What telemetry leaves in a sweep's ``telemetry/`` folder, and how it is read back.

``ticks-<node>-<monitor>-<number>.parquet``: readings of a node's devices, in parts of some minutes, each whole
whenever it is there; its metadata has the node and its pairs of clock readings.  ``engines.jsonl``: one line
per life of an engine replica, with the devices it computed on, its model's shape and its peaks.
``judged.jsonl``: one line per request to a judge that computes on the cluster, since no run's journal has them.
A sweep that is continued is another **stretch** of it: its readings and engines are kept apart from those
before, also where its nodes are the same.

The driver alone writes; everything that is derived can be derived again from these and the journals.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from evalray.files import replacing
from evalray.telemetry import (
    TICK_COLUMNS,
    Batch,
    ClockPair,
    EngineUse,
    ModelShape,
    NodeInfo,
    Peak,
    Tick,
    columns,
)
from evalray.types import Generation, Timeline

FOLDER = "telemetry"
_PART_SECONDS = 120.0
#: A part that is still growing is written anew this often: what a killed driver loses.
_WRITE_SECONDS = 5.0
_META = b"evalray"
_ENGINES, _JUDGED = "engines.jsonl", "judged.jsonl"
_SHAPE: TypeAdapter[ModelShape] = TypeAdapter(ModelShape)
_PEAK: TypeAdapter[Peak] = TypeAdapter(Peak)


@dataclass(slots=True)
class EngineLife:
    """One life of a replica: from when it could be asked (Unix seconds, the driver's) to the end of its pool."""

    engine_id: str
    node_id: str
    model: str
    ready_at: float
    device_ids: tuple[str, ...]
    concurrency: int
    runs: tuple[str, ...]
    """Names of the run directories it works for; none for a judge."""
    shape: ModelShape | None = None
    shape_reason: str = ""
    peak: Peak | None = None
    devices: Annotated[int, Field(ge=1)] = 1
    max_batched_tokens: int | None = None
    param_count_b: float | None = None
    active_params_b: float | None = None
    energy_reason: str = ""
    """Why no device's energy is attributed to it, where that is meant."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Devices that split each layer; ``devices`` counts pipeline stages too."""
    judge: bool = False
    placed_monotonic: float | None = None
    """When it got its place, by its node's monotonic clock, which orders it and its requests whatever the wall
    clocks of driver and node are at."""
    stretch: str = ""
    """Which process of the sweep it is of."""
    ended_at: float = math.inf
    counters: dict[str, float] | None = None
    """The engine's own estimate of its work in this life: ``flops``, ``read_bytes``, ``write_bytes``."""

    def use(self) -> EngineUse:
        return EngineUse(
            self.engine_id,
            self.device_ids,
            self.shape,
            self.peak,
            self.devices,
            self.max_batched_tokens,
            self.energy_reason,
            self.tensor_parallel,
        )

    def shares_device(self, other: EngineLife) -> bool:
        """Whether both computed on one device in the same time."""
        return (
            (self.node_id, self.stretch) == (other.node_id, other.stretch)
            and bool(set(self.device_ids) & set(other.device_ids))
            and self.ready_at < other.ended_at
            and other.ready_at < self.ended_at
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; without the end and what is known only then, which have a line of their own."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("ended_at", "counters")}
        plain["shape"] = None if self.shape is None else _SHAPE.dump_python(self.shape, mode="json")
        plain["peak"] = None if self.peak is None else _PEAK.dump_python(self.peak, mode="json")
        return plain

    def facts(self) -> tuple[Any, ...]:
        """What its requests' FLOPs, MFU and MBU depend on beside themselves, as plain values."""
        plain = self.to_dict()
        return tuple(plain[name] for name in ("shape", "peak", "param_count_b", "active_params_b"))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EngineLife:
        """Raises ``ValueError`` where a value is of the wrong kind; keys it does not know are ignored."""
        return _LIFE.validate_python(values)


_LIFE: TypeAdapter[EngineLife] = TypeAdapter(EngineLife)


@dataclass(slots=True)
class _Series:
    """The part of one monitor's readings that is still growing."""

    node: NodeInfo
    monitor: int
    ticks: list[Tick] = field(default_factory=list)
    clocks: list[ClockPair] = field(default_factory=list)
    dropped: int = 0
    part: int = 0
    written_at: float = -math.inf

    def next_part(self) -> None:
        self.part += 1
        self.ticks, self.clocks, self.dropped = [], self.clocks[-1:], 0


class Recorder:
    """Writes a sweep's ``telemetry/``.  Raises ``OSError`` where that is impossible.  Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / FOLDER
        self.stretch = f"{time.time():.6f}"
        self._open: dict[tuple[str, int], _Series] = {}
        self._first_monitor: dict[str, int] = {}
        self._lock = threading.Lock()

    def keep(self, incarnation: int, node: NodeInfo, batch: Batch) -> None:
        """Add a batch of a node's monitor, its ``incarnation``-th of this process."""
        with self._lock:
            series = self._open.get((node.node_id, incarnation))
            if series is None:
                monitor = self._first_of(node.node_id) + incarnation
                series = self._open[node.node_id, incarnation] = _Series(node, monitor)
            series.ticks += batch.ticks
            series.clocks.append(batch.clock)
            series.dropped += batch.dropped
            now = batch.clock.monotonic_seconds
            if now - series.clocks[0].monotonic_seconds >= _PART_SECONDS:
                self._write(series)
                series.next_part()
            elif now - series.written_at >= _WRITE_SECONDS:
                self._write(series)

    def flush(self) -> None:
        """Write what is not on disk yet."""
        with self._lock:
            for series in self._open.values():
                if series.ticks or not series.part:
                    self._write(series)

    def _first_of(self, node_id: str) -> int:
        """The number of this process's first monitor of a node: earlier processes' readings stay."""
        if node_id not in self._first_monitor:
            taken = [_monitor_of(path) for path in _parts(self.folder, node_id)]
            self._first_monitor[node_id] = max(taken, default=-1) + 1
        return self._first_monitor[node_id]

    def _write(self, series: _Series) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = {
            "node": series.node.to_dict(),
            "clocks": [list(pair) for pair in series.clocks],
            "dropped": series.dropped,
            "stretch": self.stretch,
        }
        table = pa.table(columns(series.ticks), schema=_tick_schema())
        table = table.replace_schema_metadata({_META: json.dumps(about)})
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"ticks-{series.node.node_id[:16]}-{series.monitor}-{series.part:05}.parquet"
        with replacing(self.folder / name) as beside:
            pq.write_table(table, beside, compression="zstd")
        series.written_at = series.clocks[-1].monotonic_seconds

    def engine(self, life: EngineLife) -> None:
        self._lines(_ENGINES, [life.to_dict()])

    def ended(self, life: EngineLife, at: float) -> None:
        life.ended_at = at
        end = {"engine_id": life.engine_id, "ready_at": life.ready_at, "ended_at": at}
        self._lines(_ENGINES, [end if life.counters is None else {**end, "counters": life.counters}])

    def known_later(self, life: EngineLife) -> None:
        """Keep what has become known of a replica of an earlier process, in place of what its line says."""
        self.engine(life)
        if math.isfinite(life.ended_at):
            self.ended(life, life.ended_at)

    def judged(self, generations: Sequence[Generation]) -> None:
        """Keep the requests that a judge answered, without what was said."""
        self._lines(_JUDGED, [_judged_line(generation) for generation in generations])

    def _lines(self, name: str, values: Sequence[dict[str, Any]]) -> None:
        text = "".join(json.dumps(value) + "\n" for value in values)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock, (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(text)


def _tick_schema() -> Any:
    import pyarrow as pa

    kinds = {
        "device": pa.int32(),
        "memory_used_bytes": pa.int64(),
        "throttle_reasons": pa.int64(),
        "error": pa.string(),
    }
    return pa.schema([pa.field(name, kinds.get(name, pa.float64())) for name in TICK_COLUMNS])


_JUDGED_FIELDS = ("engine_id", "node_id", "prompt_tokens", "completion_tokens", "cached_tokens")


def _judged_line(generation: Generation) -> dict[str, Any]:
    plain = {name: getattr(generation, name) for name in _JUDGED_FIELDS}
    times = {name: value for name, value in asdict(generation.timeline).items() if value is not None}
    return {**plain, "timeline": times}


def read_judged(directory: Path) -> Iterator[Generation]:
    """The requests to judges that computed on the cluster; lines that cannot be read are left out."""
    for value in _read_lines(directory / FOLDER / _JUDGED):
        try:
            timeline = Timeline(**value["timeline"])
            yield Generation(**{name: value[name] for name in _JUDGED_FIELDS}, timeline=timeline)
        except (TypeError, KeyError):
            continue


def read_engines(directory: Path) -> list[EngineLife]:
    """The lives of a sweep's engines, in the order they began; lines that cannot be read are left out."""
    found: dict[tuple[str, float], EngineLife] = {}
    for value in _read_lines(directory / FOLDER / _ENGINES):
        try:
            key = str(value["engine_id"]), float(value["ready_at"])
            if "ended_at" in value:
                end = {"ended_at": value["ended_at"], "counters": value.get("counters")}
                found[key] = EngineLife.from_dict({**found[key].to_dict(), **end})
            else:
                found[key] = EngineLife.from_dict(value)
        except (ValueError, TypeError, KeyError):
            continue
    return list(found.values())


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; none where there is no such file."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        for line in file:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


@dataclass(slots=True)
class RecordedTicks:
    """The readings of one monitor: its node, its pairs of clock readings, its ticks by column."""

    node: NodeInfo
    clocks: list[ClockPair]
    columns: dict[str, Any]
    dropped: int
    damaged: int
    """Parts that cannot be read, whose readings are missing."""


def _parts(folder: Path, node_id: str) -> list[Path]:
    return sorted(folder.glob(f"ticks-{node_id[:16]}-*.parquet"))


def _monitor_of(path: Path) -> int:
    number = path.stem.split("-")[-2]
    return int(number) if number.isdigit() else 0


def read_ticks(directory: Path, node_id: str, stretch: str) -> Iterator[RecordedTicks]:
    """What each monitor of a node recorded in one stretch, one after another.

    A part that cannot be read is left out and counted.
    """
    import numpy as np
    import pyarrow as pa

    parts: dict[str, list[Path]] = {}
    for path in _parts(directory / FOLDER, node_id):
        parts.setdefault(path.stem.rsplit("-", 1)[0], []).append(path)
    for paths in parts.values():
        read = [part for path in paths if (part := _read_part(path)) is not None]
        own = [part for part in read if (part.stretch, part.node.node_id) == (stretch, node_id)]
        if not own:
            continue
        whole = pa.concat_tables([part.table for part in own])
        # Missing numbers become NaN, missing texts None.
        as_arrays = {
            name: np.asarray(whole[name].to_pylist(), dtype=object)
            if name == "error"
            else whole[name].to_numpy(zero_copy_only=False)
            for name in TICK_COLUMNS
        }
        node = own[-1].node
        clocks = [node.clock, *(pair for part in own for pair in part.clocks)]
        dropped, damaged = sum(part.dropped for part in own), len(paths) - len(read)
        yield RecordedTicks(node, clocks, as_arrays, dropped, damaged)


def recorded_node(directory: Path, node_id: str, stretch: str) -> NodeInfo | None:
    """A node as one of its monitors described it in a stretch; ``None`` where nothing readable says so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in _parts(directory / FOLDER, node_id):
        with contextlib.suppress(
            OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException
        ):
            about = json.loads(pq.read_schema(path).metadata[_META])
            node = NodeInfo.from_dict(about["node"])
            if (about.get("stretch", ""), node.node_id) == (stretch, node_id):
                return node
    return None


@dataclass(slots=True)
class _Part:
    """One file of readings."""

    table: Any
    node: NodeInfo
    clocks: list[ClockPair]
    dropped: int
    stretch: str


def _read_part(path: Path) -> _Part | None:
    """``None`` where it is damaged or holds something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[_META])
        return _Part(
            table.select(TICK_COLUMNS).replace_schema_metadata(None).cast(_tick_schema()),
            NodeInfo.from_dict(about["node"]),
            [ClockPair(float(monotonic), float(wall)) for monotonic, wall in about["clocks"]],
            int(about["dropped"]),
            str(about.get("stretch", "")),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException):
        return None
