"""The requests of a node's engines, as columns: who, when, how many tokens.

Kept as arrays of machine numbers, 60 bytes a request, so that a million fit in memory.  Times are on the
node's monotonic clock, where device windows are too; an engine's wall-clock marks are mapped there with
the pairs of clock readings that the sampler took.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalray.telemetry.peaks import Peak
from evalray.telemetry.series import ClockPair
from evalray.telemetry.shape import ModelShape
from evalray.types import Generation, Timeline

Floats = NDArray[np.float64]


@dataclass(slots=True, frozen=True)
class EngineUse:
    """One engine replica: the devices it computes on and what one token costs it.

    ``device_ids`` are ids of the node's devices (:class:`~evalray.telemetry.meters.base.DeviceInfo`); work is
    taken as spread evenly over those of one kind (tensor and pipeline parallel ranks).  Without a ``shape``
    all work on its devices is weighed by tokens.  ``devices`` is how many devices of its ``peak`` it has,
    for MFU and MBU, also where none of them can be measured.
    """

    engine_id: str
    device_ids: tuple[str, ...] = ()
    shape: ModelShape | None = None
    peak: Peak | None = None
    devices: int = 1
    max_batched_tokens: int | None = None
    """Prompt tokens per step (chunked prefill); ``None``: a prompt is one step."""
    energy_reason: str = ""
    """Why it has no ``device_ids``, where that is known."""
    tensor_parallel: int = 1
    """Ranks that split each layer and keep copies of what cannot be split; pipeline stages are not among them."""


#: A mark whose offset is so far from all pairs' is of another clock: an engine in a time namespace of its own.
_SAME_CLOCK_SECONDS = 10.0
#: Marks of an engine this far outside of the time its client saw are of another clock too.
_OUTSIDE_SECONDS = 1.0


class ClockMap:
    """Unix seconds of a node to its monotonic seconds, by pairs read on both clocks.

    Between two pairs the offset is interpolated, so a clock that is slewed is followed.  A wall clock that was
    moved back has shown the same seconds twice, so marks of the monotonic clock itself go first.
    """

    def __init__(self, pairs: Sequence[ClockPair]) -> None:
        """Raises ``ValueError`` without a pair."""
        if not pairs:
            raise ValueError("a clock map needs at least one pair of clock readings")
        ordered = sorted(set(pairs))
        self._wall = np.maximum.accumulate([pair.wall_seconds for pair in ordered])
        self._offset = np.array([pair.wall_seconds - pair.monotonic_seconds for pair in ordered])

    def to_monotonic(self, wall_seconds: float) -> float:
        return wall_seconds - float(np.interp(wall_seconds, self._wall, self._offset))

    def sent(self, line: Timeline) -> float | None:
        """When a request was sent: its own monotonic mark where that is of this node's clock, else by the wall
        clock, which a time server may have moved back.  ``None`` where it was not."""
        if line.sent_at is None or not math.isfinite(line.sent_at):
            return None
        mark = line.sent_monotonic
        if mark is not None:
            low, high = self._offset.min() - _SAME_CLOCK_SECONDS, self._offset.max() + _SAME_CLOCK_SECONDS
            if low <= line.sent_at - mark <= high:
                return mark
        return self.to_monotonic(line.sent_at)


@dataclass(slots=True)
class RequestColumns:
    """Requests as arrays; NaN where a time is not known.  Seconds are monotonic."""

    engine: NDArray[np.int32]
    """Index into the engines."""
    sent: Floats
    prefill_start: Floats
    """When the engine scheduled it; ``sent`` where it does not say."""
    first_token: Floats
    """NaN: not streamed, so its work is taken as uniform from start to end."""
    end: Floats
    """The last token, or the failure."""
    prompt_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats

    def __len__(self) -> int:
        return len(self.engine)

    def take(self, index: NDArray[np.intp]) -> RequestColumns:
        return RequestColumns(*(getattr(self, name)[index] for name in self.__slots__))


class RequestLog:
    """Collects requests one by one; :meth:`columns` gives them as arrays, in the order they came."""

    def __init__(self) -> None:
        self._engine = array("i")
        self._numbers = tuple(array("d") for _ in range(7))

    def __len__(self) -> int:
        return len(self._engine)

    def add(
        self,
        engine: int,
        *,
        sent: float,
        end: float,
        prefill_start: float | None = None,
        first_token: float | None = None,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> int:
        """Add a request by its monotonic times; returns its index.  Times out of order are put in order."""
        start = min(max(sent, sent if prefill_start is None else prefill_start), max(end, sent))
        end = max(end, start)
        first = float("nan") if first_token is None else min(max(first_token, start), end)
        self._engine.append(engine)
        values = (sent, start, first, end, prompt_tokens or 0, cached_tokens or 0, output_tokens or 0)
        for column, value in zip(self._numbers, values, strict=True):
            column.append(value)
        return len(self._engine) - 1

    def add_generation(self, engine: int, generation: Generation, clock: ClockMap) -> int | None:
        """Add what an engine returned, by its own marks where it has them, else by the client's.

        Returns its index; ``None`` where the request has no times, so was never sent.  A failed request is
        added too: what it used is no other sample's.
        """
        line = generation.timeline
        if (sent := clock.sent(line)) is None:
            return None
        end = _end(line, sent, clock)
        if end is None:
            return None
        server = _timings(line)
        first = None if line.ttft_seconds is None else sent + line.ttft_seconds
        # vLLM's engine core runs on the same monotonic clock; its marks leave out queueing and transport.
        marks = [value for name, value in server.items() if name.endswith("_monotonic")]
        if any(not sent - _OUTSIDE_SECONDS <= mark <= end + _OUTSIDE_SECONDS for mark in marks):
            server = {name: value for name, value in server.items() if not name.endswith("_monotonic")}
        if (marked := server.get("first_token_monotonic")) is not None:
            first, end = marked, max(marked, server.get("last_token_monotonic", end))
        return self.add(
            engine,
            sent=sent,
            end=end,
            prefill_start=_prefill_start(server, first),
            first_token=first,
            prompt_tokens=generation.prompt_tokens,
            cached_tokens=generation.cached_tokens,
            output_tokens=generation.completion_tokens,
        )

    def columns(self) -> RequestColumns:
        arrays = [np.array(column, dtype=np.float64) for column in self._numbers]
        return RequestColumns(np.array(self._engine, dtype=np.int32), *arrays)


def _timings(line: Timeline) -> dict[str, float]:
    """What the engine says of its own times, as far as it is numbers."""
    return {
        name: float(value)
        for name, value in (line.server or {}).items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _end(line: Timeline, sent: float, clock: ClockMap) -> float | None:
    if line.latency_seconds is not None:
        return sent + line.latency_seconds if math.isfinite(line.latency_seconds) else None
    return None if line.completed_at is None else clock.to_monotonic(line.completed_at)


#: How long servers say that they worked on a prompt: key, and how many make a second.
_PREFILL_DURATIONS = (("prompt_ms", 1e3), ("prompt_eval_duration_seconds", 1.0), ("prefill_seconds", 1.0))


def _prefill_start(server: dict[str, float], first: float | None) -> float | None:
    """When the engine began with the prompt, which under load is well after it was sent."""
    if (scheduled := server.get("scheduled_monotonic")) is not None:
        return scheduled
    if first is not None:
        for key, per_second in _PREFILL_DURATIONS:
            if (duration := server.get(key, -1.0)) >= 0:
                return first - duration / per_second
    return None
