"""Bring OpenJarvis's result files into a run directory."""

from evalray.importing.files import FileScan, find_files, scan
from evalray.importing.rows import ImportedRow, RowError, convert, identify
from evalray.importing.run import ImportedRun, ImportReport, import_path

__all__ = [
    "FileScan",
    "ImportReport",
    "ImportedRow",
    "ImportedRun",
    "RowError",
    "convert",
    "find_files",
    "identify",
    "import_path",
    "scan",
]
