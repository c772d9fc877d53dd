"""From a run's journals to what users read: rows as JSONL and Parquet, and the summary.

A pure function of the run directory: it may be called at any time, by anyone, again and again.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from evalray.store.activity import Activity
from evalray.store.device_figures import DeviceFigures
from evalray.store.index import RunIndex
from evalray.store.journal import Damage
from evalray.store.jsonlines import pretty, written_beside
from evalray.store.layout import RunFiles, RunManifest
from evalray.store.rows import RowWriter, iter_rows
from evalray.store.summary import summarize
from evalray.types import RunSummary


def finalize_run(run_directory: Path) -> RunSummary:
    """Write ``<name>.jsonl``, ``<name>.parquet`` and ``<name>.summary.json`` beside the run directory.

    All three replace their predecessors only once they are complete; when anything fails the old
    ones stay.  Journals are only read.  Raises :class:`StoreError`.
    """
    files = RunFiles(Path(run_directory))
    manifest = RunManifest.read(files.manifest)
    activity = Activity.read(files.activity)
    figures = DeviceFigures.read(files.directory)
    with (
        written_beside(files.summary) as summary_file,
        written_beside(files.results) as results,
        written_beside(files.parquet) as parquet,
    ):
        damage = _write_rows(files, manifest, activity, figures, RowWriter(results, parquet))
        # Flushed before any is renamed: a full disk must not leave a mixture of old and new.
        parquet.flush()
        results.flush()
        stated = manifest.info.get("warnings") or []
        told = [*map(str, stated), *map(str, damage), *figures.problems]
        summary = summarize(Path(parquet.name), manifest, activity, told, figures.run)
        summary_file.write(pretty(asdict(summary)))
        summary_file.flush()
    return summary


def _write_rows(
    files: RunFiles, manifest: RunManifest, activity: Activity, figures: DeviceFigures, writer: RowWriter
) -> list[Damage]:
    """Join the journals into ``writer``; returns what could not be read."""
    index = RunIndex.read(
        files.generations,
        files.scores,
        num_records=manifest.num_records,
        epochs=manifest.epochs,
        scorer=manifest.scorer_fingerprint,
        on_time=activity.saw,
    )
    damage = list(index.damage)
    for row in iter_rows(files, manifest, index, damage, figures):
        writer.write(row)
    writer.close()
    return damage
