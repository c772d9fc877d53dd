"""One cell of a suite's matrix."""

from __future__ import annotations

from dataclasses import dataclass

from evalray.definition import Benchmark
from evalray.suite.engine_choice import EngineChoice
from evalray.suite.models import ModelEntry
from evalray.types import RunConfig


@dataclass(frozen=True, slots=True)
class Cell:
    """One model on one benchmark, resolved.  ``unsupported`` has every reason it cannot run."""

    model_index: int
    model: ModelEntry
    engine: EngineChoice
    config: RunConfig
    benchmark: Benchmark | None
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
