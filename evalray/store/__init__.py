"""The run directory: journals, resume, finalize, reading back."""

from evalray.store.failures import why_failed
from evalray.store.finalize import finalize_run
from evalray.store.fingerprint import run_fingerprint, run_name
from evalray.store.jsonlines import is_disk_full, store_errors
from evalray.store.layout import RunFiles
from evalray.store.origin import find_origin, holds_own_rows
from evalray.store.reading import iter_generations, iter_results, read_summary
from evalray.store.run import RunStore
from evalray.store.stored import StoredRun
from evalray.store.summary import ENDED, JUDGE_PROBLEM, JUDGING_STOPPED
from evalray.store.sweep import RunEntry, SweepStore, list_runs, read_run, read_sweep, scan_runs, why_no_run

__all__ = [
    "ENDED",
    "JUDGE_PROBLEM",
    "JUDGING_STOPPED",
    "RunEntry",
    "RunFiles",
    "RunStore",
    "StoredRun",
    "SweepStore",
    "finalize_run",
    "find_origin",
    "holds_own_rows",
    "is_disk_full",
    "iter_generations",
    "iter_results",
    "list_runs",
    "read_run",
    "read_summary",
    "read_sweep",
    "run_fingerprint",
    "run_name",
    "scan_runs",
    "store_errors",
    "why_failed",
    "why_no_run",
]
