"""EvalRay: large model × benchmark sweeps on a Ray cluster."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("evalray")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
