"""Compare runs on the records they share: differences with intervals, and a verdict for CI."""

from evalray.compare.columns import RunColumns, read_columns
from evalray.compare.figures import Difference, Figures, MeasureChange, Overlap, compute
from evalray.compare.report import TOTALS, Comparison, ComparisonReport, compare_paths
from evalray.compare.sources import RunSource, find_runs, match_runs

__all__ = [
    "TOTALS",
    "Comparison",
    "ComparisonReport",
    "Difference",
    "Figures",
    "MeasureChange",
    "Overlap",
    "RunColumns",
    "RunSource",
    "compare_paths",
    "compute",
    "find_runs",
    "match_runs",
    "read_columns",
]
