"""What telemetry leaves in a sweep's ``telemetry/`` folder, and how it is read back.

``ticks-<node>-<incarnation>-<number>.parquet``: readings of a node's devices, in parts of some minutes, each
whole once it is there; its metadata has the node and its pairs of clock readings.  ``engines.jsonl``: one
line per life of an engine replica, with the devices it computed on, its model's shape and its peaks.
The driver alone writes; everything that is derived can be derived again from these and the journals.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

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

FOLDER = "telemetry"
_PART_SECONDS = 120.0
_META = b"evalray"
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
    """Names of the run directories it works for."""
    shape: ModelShape | None = None
    shape_reason: str = ""
    peak: Peak | None = None
    devices: int = 1
    max_batched_tokens: int | None = None
    param_count_b: float | None = None
    active_params_b: float | None = None
    energy_reason: str = ""
    """Why no device's energy is attributed to it, where that is meant."""
    ended_at: float = float("inf")
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
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; without the end and what is known only then, which have a line of their own."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("ended_at", "counters")}
        plain["shape"] = None if self.shape is None else _SHAPE.dump_python(self.shape, mode="json")
        plain["peak"] = None if self.peak is None else _PEAK.dump_python(self.peak, mode="json")
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EngineLife:
        known = {key: value for key, value in values.items() if key in cls.__slots__}
        known["device_ids"], known["runs"] = tuple(known["device_ids"]), tuple(known["runs"])
        known["shape"] = None if known["shape"] is None else _SHAPE.validate_python(known["shape"])
        known["peak"] = None if known["peak"] is None else _PEAK.validate_python(known["peak"])
        return cls(**known)


@dataclass(slots=True)
class _Series:
    """What of one monitor is not on disk yet."""

    node: NodeInfo
    ticks: list[Tick] = field(default_factory=list)
    clocks: list[ClockPair] = field(default_factory=list)
    dropped: int = 0
    part: int = 0


class Recorder:
    """Writes a sweep's ``telemetry/``.  Raises ``OSError`` where that is impossible.  Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / FOLDER
        self._open: dict[tuple[str, int], _Series] = {}
        self._lock = threading.Lock()

    def keep(self, incarnation: int, node: NodeInfo, batch: Batch) -> None:
        """Add a batch of a node's monitor; writes a part every two minutes."""
        with self._lock:
            series = self._open.setdefault((node.node_id, incarnation), _Series(node))
            series.ticks += batch.ticks
            series.clocks.append(batch.clock)
            series.dropped += batch.dropped
            first = series.clocks[0].monotonic_seconds
            if batch.clock.monotonic_seconds - first >= _PART_SECONDS:
                self._write(incarnation, series)

    def flush(self) -> None:
        """Write what is not on disk yet."""
        with self._lock:
            for (_, incarnation), series in self._open.items():
                if series.ticks or not series.part:
                    self._write(incarnation, series)

    def _write(self, incarnation: int, series: _Series) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = {
            "node": series.node.to_dict(),
            "clocks": [list(pair) for pair in series.clocks],
            "dropped": series.dropped,
        }
        table = pa.table(columns(series.ticks), schema=_tick_schema())
        table = table.replace_schema_metadata({_META: json.dumps(about)})
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"ticks-{series.node.node_id[:16]}-{incarnation}-{series.part:05}.parquet"
        beside = self.folder / f".{name}.tmp"
        pq.write_table(table, beside, compression="zstd")
        beside.replace(self.folder / name)
        series.part += 1
        series.ticks, series.clocks, series.dropped = [], series.clocks[-1:], 0

    def engine(self, life: EngineLife) -> None:
        self._line(life.to_dict())

    def ended(self, life: EngineLife, at: float) -> None:
        life.ended_at = at
        end = {"engine_id": life.engine_id, "ready_at": life.ready_at, "ended_at": at}
        self._line(end if life.counters is None else {**end, "counters": life.counters})

    def _line(self, value: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock, (self.folder / "engines.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def _tick_schema() -> Any:
    import pyarrow as pa

    kinds = {
        "device": pa.int32(),
        "memory_used_bytes": pa.int64(),
        "throttle_reasons": pa.int64(),
        "error": pa.string(),
    }
    return pa.schema([pa.field(name, kinds.get(name, pa.float64())) for name in TICK_COLUMNS])


def read_engines(directory: Path) -> list[EngineLife]:
    """The lives of a sweep's engines, in the order they began; lines that cannot be read are left out."""
    found: dict[tuple[str, float], EngineLife] = {}
    try:
        lines = (directory / FOLDER / "engines.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            value = json.loads(line)
            key = str(value["engine_id"]), float(value["ready_at"])
            if "ended_at" in value:
                found[key].ended_at = float(value["ended_at"])
                found[key].counters = value.get("counters")
            else:
                found[key] = EngineLife.from_dict(value)
        except (ValueError, TypeError, KeyError):
            continue
    return list(found.values())


@dataclass(slots=True)
class RecordedTicks:
    """The readings of one monitor: its node, its pairs of clock readings, its ticks by column."""

    node: NodeInfo
    clocks: list[ClockPair]
    columns: dict[str, Any]
    dropped: int


def read_ticks(directory: Path, node_id: str) -> Iterator[RecordedTicks]:
    """What each monitor of a node recorded, one after another."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts: dict[str, list[Path]] = {}
    for path in sorted((directory / FOLDER).glob(f"ticks-{node_id[:16]}-*.parquet")):
        parts.setdefault(path.stem.rsplit("-", 1)[0], []).append(path)
    for paths in parts.values():
        tables, clocks, dropped, node = [], [], 0, None
        for path in paths:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[_META])
            node = NodeInfo.from_dict(about["node"])
            clocks += [ClockPair(*pair) for pair in about["clocks"]]
            dropped += about["dropped"]
            tables.append(table.replace_schema_metadata(None))
        if node is None or node.node_id != node_id:
            continue
        whole = pa.concat_tables(tables)
        # Missing numbers become NaN, missing texts None.
        as_arrays = {
            name: np.asarray(whole[name].to_pylist(), dtype=object)
            if name == "error"
            else whole[name].to_numpy(zero_copy_only=False)
            for name in TICK_COLUMNS
        }
        yield RecordedTicks(node, [node.clock, *clocks], as_arrays, dropped)
