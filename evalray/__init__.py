"""EvalRay: large model × benchmark sweeps on a Ray cluster."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalray.api import plan_suite, run_suite

try:
    __version__ = version("evalray")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"

__all__ = ["__version__", "plan_suite", "run_suite"]


def __getattr__(name: str) -> Any:
    """``run_suite`` and ``plan_suite`` on first use, so that ``import evalray`` stays light."""
    if name in ("plan_suite", "run_suite"):
        from evalray import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
