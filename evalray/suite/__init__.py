"""Suite files: from TOML, or flags, to the resolved cells of a models x benchmarks matrix."""

from __future__ import annotations

from evalray.suite.cell import Cell
from evalray.suite.expand import expand, merge_layers, suite_from_flags, suite_name
from evalray.suite.load import load_suite, suite_from_table
from evalray.suite.models import BenchmarkEntry, ModelEntry, Suite
from evalray.suite.names import slug
from evalray.suite.overrides import Overrides
from evalray.suite.registry import Registry

__all__ = [
    "BenchmarkEntry",
    "Cell",
    "ModelEntry",
    "Overrides",
    "Registry",
    "Suite",
    "expand",
    "load_suite",
    "merge_layers",
    "slug",
    "suite_from_flags",
    "suite_from_table",
    "suite_name",
]
