"""EvalRay: large model × benchmark sweeps on a Ray cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalray.api import plan_suite, run_benchmark, run_suite
    from evalray.backend import InferenceBackend
    from evalray.datasets import DatasetProvider
    from evalray.scorers import LLMJudgeScorer, Scorer
    from evalray.types import EvalRecord, RunConfig, RunSummary

    __version__: str

__all__ = [
    "DatasetProvider",
    "EvalRecord",
    "InferenceBackend",
    "LLMJudgeScorer",
    "RunConfig",
    "RunSummary",
    "Scorer",
    "__version__",
    "plan_suite",
    "run_benchmark",
    "run_suite",
]

_HOME = {
    "DatasetProvider": "evalray.datasets",
    "EvalRecord": "evalray.types",
    "InferenceBackend": "evalray.backend",
    "LLMJudgeScorer": "evalray.scorers",
    "RunConfig": "evalray.types",
    "RunSummary": "evalray.types",
    "Scorer": "evalray.scorers",
    "plan_suite": "evalray.api",
    "run_benchmark": "evalray.api",
    "run_suite": "evalray.api",
}


def __getattr__(name: str) -> Any:
    """The names of ``__all__`` on first use, so that ``import evalray`` stays light."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("evalray")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.0.0"
