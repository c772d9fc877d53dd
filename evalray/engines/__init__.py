"""Engines: what answers a request.  Importing this package imports no engine's SDK."""

from __future__ import annotations

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage, WorkCounters
from evalray.engines.concurrency import ConcurrencyController, Gate
from evalray.engines.model_path import resolve_model_path
from evalray.engines.reasoning import SplitText, apply_stops, split_reasoning
from evalray.engines.registry import ENGINES, engine_class
from evalray.engines.session import RetryPolicy, run_request, start_engine

__all__ = [
    "ENGINES",
    "Chunk",
    "ConcurrencyController",
    "Engine",
    "EngineConfig",
    "EngineInfo",
    "Gate",
    "RetryPolicy",
    "SplitText",
    "Usage",
    "WorkCounters",
    "apply_stops",
    "engine_class",
    "resolve_model_path",
    "run_request",
    "split_reasoning",
    "start_engine",
]
