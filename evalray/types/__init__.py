"""The shared vocabulary: what a record, a generation, a result, a run and a summary are.

Plain slotted dataclasses, because they are made once per sample in the hot path.
Field names follow OpenJarvis's evaluation types, so that its users' rows and scripts keep working;
EvalRay adds fields and never renames one.  Throughout, ``None`` means "not measured" and ``0`` is
a measurement.  Units stand in the names: ``*_seconds``, ``*_joules``, ``*_pct``.

This package imports nothing else of ours.
"""

from evalray.types.config import RunConfig, SamplingParams
from evalray.types.results import SCHEMA_VERSION, EvalResult, MetricStats, RunSummary
from evalray.types.sample import EvalRecord, Generation, GenerationRequest, Outcome, Score, Timeline

__all__ = [
    "SCHEMA_VERSION",
    "EvalRecord",
    "EvalResult",
    "Generation",
    "GenerationRequest",
    "MetricStats",
    "Outcome",
    "RunConfig",
    "RunSummary",
    "SamplingParams",
    "Score",
    "Timeline",
]
