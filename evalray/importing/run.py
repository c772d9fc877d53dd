"""Import result files into a sweep directory, through the store's own journals.

What comes out is a run like any other: ``summarize``, ``compare``, the reports and MLflow read it.
Importing the same file again does nothing; a file that grew continues its run; one whose verdicts
changed is scored anew.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalray.errors import ConfigError, Problem
from evalray.importing.files import FileScan, RunKey, RunScan, find_files, read_rows, scan
from evalray.importing.rows import convert
from evalray.reports import write_reports
from evalray.runtime.result import RunStatus
from evalray.store import RunStore, SweepStore, find_origin, list_runs, read_sweep
from evalray.store.jsonlines import read_json, write_json
from evalray.types import EvalRecord, RunConfig, RunSummary
from evalray.wording import counted

#: Raised when :mod:`evalray.importing.rows` reads a row differently: verdicts are then taken anew.
_RULES = 1
_SCORER = "openjarvis"
#: Of the year 2100, in Unix time; what is later is no time at which anything ran.
_LATEST = 4_102_444_800
_DONE = "imported.json"
_SUMMARY_COPY = "openjarvis.summary.json"
_STATUS: dict[str, RunStatus] = {"complete": "complete", "partial": "partial", "failed": "failed"}
_REPORTED = (
    "accuracy",
    "total_samples",
    "scored_samples",
    "correct",
    "errors",
    "total_cost_usd",
    "total_energy_joules",
    "framework_commit",
)


@dataclass(slots=True)
class ImportedRun:
    """One run that is in the sweep directory now."""

    name: str
    directory: Path
    source: Path
    results: Path
    summary_path: Path
    summary: RunSummary
    unchanged: bool
    """It was there already, from the same file."""

    @property
    def status(self) -> RunStatus:
        return _STATUS.get(self.summary.status, "partial")


@dataclass(slots=True)
class ImportReport:
    directory: Path
    runs: list[ImportedRun] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Files of a folder that are no results, with the reason."""


def import_path(
    path: Path, *, output_dir: Path = Path("results"), sweep_id: str = "imported"
) -> ImportReport:
    """Import a results ``.jsonl``, its ``.summary.json``, or a folder of them.

    Runs go to ``output_dir/sweep_id``.  Raises :class:`ConfigError` where nothing can be imported,
    before anything is written, and :class:`~evalray.errors.StoreError` for what cannot be read or written.
    """
    directory = output_dir.expanduser() / sweep_id
    scans, skipped = _scan_all(path)
    _refuse_own(scans, directory)
    report = ImportReport(directory.absolute(), skipped=skipped)
    with SweepStore.open(directory) as sweep:
        _describe(sweep)
        for found in scans:
            for key, run in found.runs.items():
                report.runs.append(_import_run(sweep, found, key, run))
    write_reports(directory)
    return report


def _scan_all(path: Path) -> tuple[list[FileScan], list[str]]:
    files = find_files(path)
    scans: list[FileScan] = []
    refused: list[ConfigError] = []
    for file in files:
        try:
            found = scan(file)
        except ConfigError as error:
            refused.append(error)
            continue
        if found.ours and path.is_dir():
            origin = find_origin(file)
            whose = "`evalray summarize` reads their sweep"
            if origin is not None:
                whose = f"they are of run {origin[1]}: `evalray summarize {origin[0]}` reads their sweep"
            hint = f"{whose}; to import them all the same, name the file itself"
            refused.append(ConfigError([Problem(str(file), "", "holds rows of EvalRay's own", hint)]))
        else:
            scans.append(found)
    if not scans:
        raise ConfigError([problem for error in refused for problem in error.problems])
    return scans, [str(error) for error in refused]


def _refuse_own(scans: list[FileScan], directory: Path) -> None:
    """Rows must not be read from where they are written."""
    for found in scans:
        if found.path.absolute().parent == directory.absolute():
            raise ConfigError(
                f"{found.path} lies in the sweep it would go to; choose another --sweep-id", "import"
            )


def _describe(sweep: SweepStore) -> None:
    if (sweep.directory / "sweep.json").is_file() and read_sweep(sweep.directory).get("kind") != "import":
        return  # a sweep that ran here keeps its own description
    name = sweep.directory.name
    sweep.write_sweep(
        {
            "sweep_id": name,
            "name": name,
            "kind": "import",
            "description": "Imported from OpenJarvis's results",
        }
    )


def _import_run(sweep: SweepStore, found: FileScan, key: RunKey, scanned: RunScan) -> ImportedRun:
    benchmark, model, backend = key
    fingerprint = _hash("import", benchmark, model, backend, scanned.identity)[:32]
    done = _already_there(sweep.directory, fingerprint, found.sha256)
    config = RunConfig(
        benchmark=benchmark,
        backend=backend,
        model=model,
        epochs=scanned.epochs,
        max_error_rate=1.0,  # OpenJarvis has no such threshold: what it finished is finished
        scorer=scanned.scorer or _SCORER,
    )
    run = sweep.open_run(
        config,
        fingerprint=fingerprint,
        scorer_fingerprint=f"{_SCORER}-{_hash(found.sha256, str(_RULES))[:16]}",
        num_records=len(scanned.positions),
        info=_info(found, scanned),
    )
    try:
        if not done:
            _fill(run, found, key, scanned)
        summary = run.finalize()
        if found.summary is not None:
            write_json(run.directory / _SUMMARY_COPY, found.summary)
        write_json(run.directory / _DONE, {"sha256": found.sha256, "rules": _RULES, "rows": scanned.rows})
        return ImportedRun(
            run.name, run.directory, found.path, run.results_path, run.summary_path, summary, unchanged=done
        )
    finally:
        run.close()


def _hash(*parts: str) -> str:
    joined = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        joined.update(len(data).to_bytes(8, "big") + data)
    return joined.hexdigest()


def _already_there(directory: Path, fingerprint: str, sha256: str) -> bool:
    """The mark is written last, so that an import cut short is taken up again."""
    for entry in list_runs(directory):
        mark = entry.directory / _DONE
        if entry.manifest.fingerprint == fingerprint and mark.is_file():
            value = read_json(mark)
            return value.get("sha256") == sha256 and value.get("rules") == _RULES
    return False


def _info(found: FileScan, scanned: RunScan) -> dict[str, Any]:
    """What ``run.json`` says of where the run came from; the sampling settings are not in the files."""
    summary = found.summary or {}
    warnings = found.warnings_of_rows
    if scanned.has_positional_ids:
        warnings.append(
            "record ids are positions in OpenJarvis's shuffled order: under another seed or sample "
            "limit the same id is another question"
        )
    return {
        "engine": scanned.engine or _SCORER,
        "category": summary.get("category") if isinstance(summary.get("category"), str) else None,
        "bad_rows": found.bad_rows,
        "warnings": warnings + _reported_warnings(summary),
        "imported": {
            "from": _SCORER,
            "file": found.path.name,
            "sha256": found.sha256,
            "positional_ids": scanned.has_positional_ids,
            "reported": {name: summary[name] for name in _REPORTED if name in summary},
            "hardware": summary.get("hardware_info"),
        },
    }


def _reported_warnings(summary: dict[str, Any]) -> list[str]:
    found = []
    total, scored, errors = (summary.get(name) for name in ("total_samples", "scored_samples", "errors"))
    if isinstance(total, int) and isinstance(scored, int) and isinstance(errors, int):
        undecided = total - scored - errors
        accuracy = summary.get("accuracy")
        if undecided > 0 and isinstance(accuracy, int | float) and 0 <= accuracy <= 1:
            found.append(
                f"OpenJarvis left {counted(undecided, 'undecided answer')} out of its accuracy ({accuracy:.1%}); "
                "here an answer that cannot be read counts as wrong"
            )
    if summary.get("total_energy_joules"):
        found.append(
            "energy is OpenJarvis's: the whole host's during each request, counted once per overlapping request"
        )
    return found


def _fill(run: RunStore, found: FileScan, key: RunKey, scanned: RunScan) -> None:
    category = str((found.summary or {}).get("category") or "")
    skipped: list[tuple[int, int, EvalRecord, str]] = []
    for identity, row in read_rows(found.path, key):
        position, epoch = scanned.positions[identity.record_id], identity.epoch
        imported = convert(row, category)
        if imported.generation is None:
            skipped.append((position, epoch, imported.record, imported.skipped))
            continue
        run.append_generation(position, epoch, 1, imported.record, imported.generation)
        if imported.score is not None:
            run.append_score(position, epoch, identity.record_id, imported.score)
    run.write_skipped(skipped)
    _set_clock(run, found)


def _set_clock(run: RunStore, found: FileScan) -> None:
    """The summary's times, once: the run was active when OpenJarvis worked, not when it was imported."""
    summary = found.summary or {}
    started_at, ended_at = summary.get("started_at"), summary.get("ended_at")
    if not isinstance(started_at, int | float) or not isinstance(ended_at, int | float):
        return
    if len(found.runs) == 1 and 0 < started_at <= ended_at < _LATEST:
        run.record_stretch(float(started_at), float(ended_at))
