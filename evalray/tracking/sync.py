"""Bring MLflow up to date with a sweep directory, as often as one likes.

The directory is the truth and MLflow a copy: a run is found again by its key, a summary already
there is not sent twice, and the mark that it is there is written last, so that a sync cut short is
simply done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalray.errors import TrackingError
from evalray.reports import PowerFiles, ReportedRun, SweepReport, collect
from evalray.store import RunEntry, list_runs, read_sweep
from evalray.store.sweep import SWEEP_NAME
from evalray.tracking import payload
from evalray.tracking.client import KEY_TAG, NOTE_TAG, PARENT_TAG, SYNCED_TAG, TABLES_TAG, Store
from evalray.tracking.limits import MAX_PARAM_VALUE, fit, legal_keys
from evalray.tracking.redact import redact, redact_text
from evalray.tracking.samples import write_samples_table
from evalray.tracking.uri import mask_uri, resolve_tracking_uri

if TYPE_CHECKING:
    from mlflow.entities import Run

#: How long a store may take to open: a new database makes its tables first.
OPEN_SECONDS = 120.0

_STATUS = {"complete": "FINISHED", "failed": "FAILED", "partial": "KILLED"}
_REPORTS = ("report.md", "report.html", "report.csv")
_SAMPLES_TABLE = "samples.json"
#: A power plot or its data that is larger stays on disk: a sweep has many runs.
_MAX_POWER_BYTES = 8_000_000
#: Raised when what is logged changes, so that the next sync logs it anew.
_FORMAT = "2"


@dataclass(slots=True)
class SyncReport:
    """What a sync did.  ``uri`` has no credentials; ``url`` is the parent's page on a server."""

    uri: str
    experiment: str
    parent_run_id: str
    logged: list[str] = field(default_factory=list)
    """Names of the runs that were sent."""
    unchanged: list[str] = field(default_factory=list)
    url: str | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SweepHandle:
    """A sweep's parent run in an open store, and its children by key."""

    store: Store
    directory: Path
    sweep: dict[str, Any]
    experiment: str
    experiment_id: str
    parent: Run
    children: dict[str, Run] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    """What this handle set, by run id: the runs themselves are as they were found."""

    @property
    def parent_id(self) -> str:
        return str(self.parent.info.run_id)


def sync_sweep(sweep_dir: Path, *, uri: str | None = None, experiment: str | None = None) -> SyncReport:
    """Bring MLflow up to date with ``sweep_dir``; what is there already is left alone.

    ``uri`` defaults to the sweep's own, then ``MLFLOW_TRACKING_URI``, then the SQLite store beside the
    sweep; ``experiment`` to the sweep's own, then the suite's name.  Imports MLflow.
    Raises :class:`~evalray.errors.TrackingError` where the store fails, and
    :class:`~evalray.errors.StoreError` for a path that is no sweep directory.
    """
    report = collect(sweep_dir, with_excerpts=False)
    address = _address(sweep_dir, report.sweep, uri)
    handle = _opened_in_time(address, lambda: open_sweep(Store(address), sweep_dir, report.sweep, experiment))
    return sync_open(handle, report)


def sweep_uri(sweep_dir: Path, uri: str | None = None) -> str:
    """The store that :func:`sync_sweep` fills.  Raises :class:`~evalray.errors.StoreError`."""
    return _address(sweep_dir, read_sweep(sweep_dir), uri)


def _address(sweep_dir: Path, sweep: dict[str, Any], uri: str | None) -> str:
    suite_uri = sweep.get("tracking_uri") or _tracking_of(sweep).get("uri")
    return resolve_tracking_uri(sweep_dir.absolute().parent, flag=uri, suite=suite_uri)


def _opened_in_time(address: str, opening: Callable[[], SweepHandle]) -> SweepHandle:
    """The open sweep.  A database is tried again and again by MLflow: past the deadline it is given up."""
    found: Future[SweepHandle] = Future()

    def work() -> None:
        try:
            found.set_result(opening())
        except BaseException as error:  # noqa: BLE001 -- raised again where it is waited for
            found.set_exception(error)

    threading.Thread(target=work, name="evalray-mlflow", daemon=True).start()
    try:
        return found.result(OPEN_SECONDS)
    except TimeoutError:
        if found.done():
            raise
        raise TrackingError(
            f"MLflow at {mask_uri(address)} did not open within {OPEN_SECONDS:g} s: check the address, "
            "and that no other process holds its database"
        ) from None


def open_sweep(
    store: Store, sweep_dir: Path, sweep: dict[str, Any], experiment: str | None = None
) -> SweepHandle:
    """Find or make the sweep's parent run."""
    name = fit(experiment or experiment_name(sweep, sweep_dir), 500)
    experiment_id = store.experiment(name)
    key = sweep_key(sweep, sweep_dir)
    parent = store.find_run(experiment_id, key)
    if parent is None:
        tags = {
            KEY_TAG: key,
            "evalray.kind": "sweep",
            "evalray.sweep_id": str(sweep.get("sweep_id") or sweep_dir.name),
        }
        parent = store.create_run(experiment_id, sweep_dir.name, tags, _number(sweep.get("started_at")))
    handle = SweepHandle(store, sweep_dir, sweep, name, experiment_id, parent)
    handle.children = store.children(experiment_id, handle.parent_id)
    return handle


def child_run(handle: SweepHandle, run: RunEntry, started_at: float | None = None) -> Run:
    """Find or make the child of one run."""
    key, config = run.manifest.fingerprint, run.config
    child = handle.children.get(key)
    if child is None:
        tags = {
            KEY_TAG: key,
            PARENT_TAG: handle.parent_id,
            "evalray.kind": "run",
            "evalray.model": redact_text(config.model),
            "evalray.benchmark": config.benchmark,
        }
        name = f"{config.model} · {config.benchmark}"
        child = handle.store.create_run(handle.experiment_id, name, tags, started_at)
        handle.children[key] = child
    return child


def sync_open(handle: SweepHandle, report: SweepReport) -> SyncReport:
    """Send every run of ``report`` that changed, then the parent's totals and description."""
    done = SyncReport(
        mask_uri(handle.store.uri),
        handle.experiment,
        handle.parent_id,
        url=handle.store.run_url(handle.experiment_id, handle.parent_id),
        warnings=list(report.warnings),
    )
    entries = {entry.name: entry for entry in list_runs(handle.directory)}
    for run in report.runs:
        sent = sync_run(handle, entries[run.name], run)
        (done.logged if sent else done.unchanged).append(run.name)
    for name in report.unfinished:
        child = child_run(handle, entries[name])
        folder = entries[name].directory
        _settle(handle, child, "KILLED", _last_written(folder / "run.json", folder / "generations.jsonl"))
        done.warnings.append(f"{name}: no summary yet; run `evalray summarize {handle.directory}` first")
    _sync_parent(handle, report)
    return done


def sync_run(handle: SweepHandle, entry: RunEntry, run: ReportedRun) -> bool:
    """Send one run's parameters, metrics, dataset and artifacts; ``False`` where they are there."""
    summary, store = run.summary, handle.store
    # A run whose engine did not start has a summary and no times.
    ended_at = _last_written(entry.summary_path) if summary.ended_at is None else summary.ended_at
    child = child_run(handle, entry, summary.started_at or _number(handle.sweep.get("started_at")))
    run_id = child.info.run_id
    power = _power_files(entry)
    contents = [path.read_bytes() for path in power]
    state = _digest(_FORMAT, entry.summary_path.read_bytes(), _json(asdict(entry.manifest)), *contents)
    status = _STATUS.get(summary.status, "FINISHED")
    if child.data.tags.get(SYNCED_TAG) == state:
        _settle(handle, child, status, ended_at)
        return False
    params, changed = _new_params(child, payload.flat_params(_run_facts(entry)))
    tags = {
        NOTE_TAG: payload.run_note(run),
        "evalray.status": summary.status,
        "evalray.fingerprint": summary.fingerprint,
        "evalray.scorer_fingerprint": summary.scorer_fingerprint,
        "evalray.energy_method": summary.energy_method,
        "evalray.energy_scope": summary.energy_scope,
        "evalray.energy_reason": summary.energy_reason,
        "evalray.utilization_peak": summary.utilization_peak,
        "evalray.utilization_reason": summary.utilization_reason,
        **changed,
    }
    store.log(
        run_id,
        metrics=payload.run_metrics(summary),
        params=params,
        tags={key: value for key, value in tags.items() if value},
        at=summary.ended_at,
        step=summary.scored_samples,
    )
    _log_dataset(store, run_id, entry)
    tables = _log_run_artifacts(store, run_id, entry)
    for path in power:
        store.log_artifact(run_id, path, "telemetry")
    store.log(run_id, tags={TABLES_TAG: json.dumps(tables), SYNCED_TAG: state})
    _settle(handle, child, status, ended_at)
    child.data.tags[SYNCED_TAG] = state
    return True


def _sync_parent(handle: SweepHandle, report: SweepReport) -> None:
    store, run_id = handle.store, handle.parent_id
    metrics, note = payload.sweep_metrics(report), payload.sweep_note(report)
    files = [handle.directory / name for name in _REPORTS]
    contents = [path.read_bytes() for path in files if path.exists()]
    state = _digest(_FORMAT, _json(metrics), note, _json(handle.sweep), *contents)
    ends = [run.summary.ended_at for run in report.runs if run.summary.ended_at is not None]
    written = [handle.directory / name for name in (SWEEP_NAME, *_REPORTS)]
    ended_at = max(ends, default=None) or _last_written(*written)
    if handle.parent.data.tags.get(SYNCED_TAG) == state:
        _settle(handle, handle.parent, sweep_status(report), ended_at)
        return
    params, changed = _new_params(handle.parent, payload.flat_params(_sweep_facts(handle.sweep)))
    scored = sum(run.summary.scored_samples for run in report.runs)
    store.log(
        run_id, metrics=metrics, params=params, tags={NOTE_TAG: note, **changed}, at=ended_at, step=scored
    )
    for path in files:
        if path.exists():
            store.log_artifact(run_id, path)
    with tempfile.TemporaryDirectory(prefix="evalray-") as folder:
        store.log_artifact(run_id, _json_file(Path(folder) / "suite.json", handle.sweep.get("suite") or {}))
        store.log_artifact(run_id, _json_file(Path(folder) / "sweep.json", handle.sweep))
    store.log(run_id, tags={SYNCED_TAG: state})
    _settle(handle, handle.parent, sweep_status(report), ended_at)
    handle.parent.data.tags[SYNCED_TAG] = state


def resume(handle: SweepHandle, run: Run) -> None:
    """Back to ``RUNNING``, unless it is."""
    run_id = run.info.run_id
    if handle.statuses.get(run_id, run.info.status) != "RUNNING":
        handle.store.resume(run_id)
    handle.statuses[run_id] = "RUNNING"


def _settle(handle: SweepHandle, run: Run, status: str, ended_at: float | None) -> None:
    """The final status, unless the run has it."""
    run_id = run.info.run_id
    if handle.statuses.get(run_id, run.info.status) != status:
        handle.store.end(run_id, status, ended_at)
    handle.statuses[run_id] = status


def _last_written(*paths: Path) -> float | None:
    """When the newest of those files that are there was written: a sync may come long after the sweep."""
    return max((path.stat().st_mtime for path in paths if path.exists()), default=None)


def sweep_status(report: SweepReport) -> str:
    """Worst first: a failed run fails the sweep, an unfinished one leaves it resumable.

    A sweep of which no run came to its first sample failed as well.
    """
    states = {run.summary.status for run in report.runs}
    if "failed" in states or not (report.runs or report.unfinished):
        return "FAILED"
    return "KILLED" if "partial" in states or report.unfinished else "FINISHED"


def experiment_name(sweep: dict[str, Any], sweep_dir: Path) -> str:
    """The sweep's experiment, else its suite's name, else its directory's."""
    return str(
        sweep.get("experiment")
        or _tracking_of(sweep).get("experiment")
        or sweep.get("name")
        or sweep_dir.name
    )


def sweep_key(sweep: dict[str, Any], sweep_dir: Path) -> str:
    """What finds this sweep's parent again, from this machine or another: its id and the moment it
    began.  Not its configuration, to which a resume may add models."""
    return f"sweep-{_digest(str(sweep.get('sweep_id') or sweep_dir.name), str(sweep.get('started_at')))}"


def _log_dataset(store: Store, run_id: str, entry: RunEntry) -> None:
    manifest, config = entry.manifest, entry.config
    source = {
        "data": config.data or manifest.info.get("data") or config.benchmark,
        "split": config.dataset_split,
        "subset": config.dataset_subset,
        "records": manifest.num_records,
    }
    digest = str(manifest.info.get("data_digest") or manifest.fingerprint)
    store.log_dataset(run_id, name=config.benchmark, digest=digest, source=redact(source))


def _log_run_artifacts(store: Store, run_id: str, entry: RunEntry) -> list[dict[str, str]]:
    """Upload the run's files; returns the tables MLflow's page is to show."""
    tables: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="evalray-") as folder:
        place = Path(folder)
        store.log_artifact(run_id, _json_file(place / "config.json", asdict(entry.manifest)))
        store.log_artifact(
            run_id, _json_file(place / "summary.json", json.loads(entry.summary_path.read_bytes()))
        )
        if entry.parquet_path.exists():
            store.log_artifact(run_id, _linked(entry.parquet_path, place / "samples.parquet"))
        if entry.results_path.exists():
            write_samples_table(entry.results_path, place / _SAMPLES_TABLE)
            store.log_artifact(run_id, place / _SAMPLES_TABLE)
            tables.append({"path": _SAMPLES_TABLE, "type": "table"})
    return tables


def _power_files(entry: RunEntry) -> list[Path]:
    """The run's power timeline and its plots, where they are there."""
    present = PowerFiles(entry.directory).present()
    return [path for path in present if path.stat().st_size <= _MAX_POWER_BYTES]


def _new_params(run: Run, params: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters the run does not have yet, and tags for those that changed: MLflow keeps the first
    value of a parameter for good, and a resumed run may plan more samples than it began with."""
    known = run.data.params
    legal = legal_keys(params)
    new = {legal[key]: value for key, value in params.items() if legal[key] not in known}
    changed = {
        f"evalray.now.{legal[key]}"[:250]: value
        for key, value in params.items()
        if legal[key] in known and known[legal[key]] != fit(value, MAX_PARAM_VALUE)
    }
    return new, changed


def _run_facts(entry: RunEntry) -> dict[str, Any]:
    """The run's configuration, engine and size as parameters."""
    manifest = entry.manifest
    return {
        **asdict(manifest.config),
        "engine": manifest.engine,
        "num_records": manifest.num_records,
        "info": {key: value for key, value in manifest.info.items() if key not in ("engine", "warnings")},
    }


def _sweep_facts(sweep: dict[str, Any]) -> dict[str, Any]:
    """What of ``sweep.json`` reads well as parameters; all of it is an artifact."""
    return {key: value for key, value in sweep.items() if key not in ("suite", "environment")}


def _tracking_of(sweep: dict[str, Any]) -> dict[str, Any]:
    suite = sweep.get("suite")
    tracking = suite.get("tracking") if isinstance(suite, dict) else None
    return tracking if isinstance(tracking, dict) else {}


def _json_file(path: Path, value: Any) -> Path:
    path.write_bytes(_json(redact(value)))
    return path


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=True, default=str).encode("ascii") + b"\n"


def _linked(source: Path, name: Path) -> Path:
    """``source`` under another name without a copy, where the system has links."""
    with contextlib.suppress(OSError):
        name.symlink_to(source.absolute())
        return name
    return source


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _digest(*parts: bytes | str) -> str:
    joined = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "replace") if isinstance(part, str) else part
        joined.update(len(data).to_bytes(8, "big"))
        joined.update(data)
    return joined.hexdigest()[:32]
