"""EvalRay from Python: what the command line does, as functions.

``run_suite`` plans and runs a suite, keeps MLflow up to date and writes the reports.  Everything
heavy is imported when a function needs it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalray.errors import ConfigError, DiskFullError, EvalRayError, Problem, StoreError

if TYPE_CHECKING:
    from evalray.backend import InferenceBackend
    from evalray.datasets import DatasetProvider
    from evalray.plan import Plan
    from evalray.runtime.progress import SweepProgress
    from evalray.runtime.result import RunStatus, SweepResult
    from evalray.scorers import Scorer
    from evalray.suite import Overrides, Suite
    from evalray.tracking import MlflowTracker, SyncedSweep
    from evalray.types import RunConfig, RunSummary

Say = Callable[[str], None]

#: How long the end of a sweep waits for MLflow; what it misses, ``evalray mlflow sync`` sends.
_TRACKING_SECONDS = 120.0
_STOPPED_TRACKING_SECONDS = 20.0
_EXIT_INTERRUPTED = 130
_STATUS: dict[str, RunStatus] = {"complete": "complete", "partial": "partial", "failed": "failed"}


def plan_suite(suite: str | Path | Suite | None = None, **overrides: Any) -> Plan:
    """What a suite would run.  Starts nothing and reads no network.

    ``suite`` is a file or a :class:`~evalray.suite.Suite`; ``None`` makes one of the overrides
    ``benchmark`` and ``model``.  ``overrides`` are the fields of :class:`~evalray.suite.Overrides`,
    the flags of the command line; ``None`` leaves a value to the suite.

    Raises :class:`~evalray.errors.ConfigError` with every problem found.
    """
    from evalray.plan import make_plan
    from evalray.suite import Registry, load_suite, suite_from_flags

    flags = _overrides(overrides)
    registry = Registry.installed()
    if suite is None:
        suite = suite_from_flags(flags, registry)
    elif isinstance(suite, str | Path):
        suite = load_suite(suite, registry)
    return make_plan(suite, flags, registry=registry)


def plan_all(models: Sequence[str], benchmarks: Sequence[str] | None = None, **overrides: Any) -> Plan:
    """What every benchmark of the search path on ``models`` would run; ``benchmarks`` leaves only some.

    What is left of a name is ``all_MODEL``: of the plan, its folder and its experiment.  Otherwise as
    :func:`plan_suite`.
    """
    from evalray.catalog import runnable_benchmarks
    from evalray.plan import make_plan
    from evalray.suite import Registry, slug, suite_from_flags

    name = slug("all_" + "+".join(map(slug, models)))
    overrides |= {"model": list(models), "benchmark": list(benchmarks or runnable_benchmarks())}
    overrides["sweep_id"] = overrides.get("sweep_id") or name
    flags = _overrides(overrides)
    registry = Registry.installed()
    return make_plan(suite_from_flags(flags, registry, name=name), flags, registry=registry)


def _overrides(given: dict[str, Any]) -> Overrides:
    from evalray.suite import Overrides

    values = {name: value for name, value in given.items() if value is not None}
    known = {field.name for field in fields(Overrides)}
    if unknown := sorted(values.keys() - known):
        raise ConfigError([Problem("overrides", name, "no such override") for name in unknown])
    for name in ("benchmark", "model"):
        if isinstance(values.get(name), str):
            values[name] = [values[name]]
    if isinstance(values.get("tools"), str):
        values["tools"] = [tool for tool in map(str.strip, values["tools"].split(",")) if tool]
    plain: dict[str, Any] = {}
    plain |= {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    return Overrides(**plain)


def run_suite(
    suite: str | Path | Suite | None = None,
    *,
    fresh: bool = False,
    progress: SweepProgress | None = None,
    on_message: Say | None = None,
    **overrides: Any,
) -> SweepResult:
    """Plan a suite and run it, or continue it where its sweep directory is there already.

    Arguments as for :func:`plan_suite` and :func:`run_plan`.
    """
    plan = plan_suite(suite, **overrides)
    return run_plan(plan, fresh=fresh, progress=progress, on_message=on_message)


def run_plan(
    plan: Plan,
    *,
    fresh: bool = False,
    progress: SweepProgress | None = None,
    on_message: Say | None = None,
    on_kill: Callable[[], None] | None = None,
) -> SweepResult:
    """Run a plan: results, reports and MLflow.

    ``fresh`` moves an earlier sweep of that name aside.  ``progress`` is updated while it runs;
    ``on_message`` is called with one line at a time, from any thread; ``on_kill`` in the handler of a
    second Ctrl-C, before the process ends.  Reports or MLflow failing
    is said, and takes nothing from the result.

    Raises :class:`~evalray.errors.ConfigError` where there can be no sweep directory, and
    :class:`~evalray.errors.StoreError` where it cannot be used.
    """
    from evalray.runtime import run_sweep
    from evalray.runtime.progress import SweepProgress

    _check_folder(plan.directory)
    progress = progress or SweepProgress(sweep_id=plan.sweep_id)
    say: Say = on_message or (lambda _: None)
    tracker = _tracker(plan)
    try:
        with _metrics(plan, progress, say):
            result = run_sweep(
                plan, fresh=fresh, progress=progress, on_message=say, tracker=tracker, on_kill=on_kill
            )
        if not result.disk_full:
            progress.phase = "writing reports"
            _write_reports(result.directory, say)
    except BaseException:
        if tracker is not None:
            tracker.close(0.0)
        raise
    if tracker is not None and result.nothing_ran:
        tracker.close(0.0)
        result.untracked = "nothing ran, so there is nothing to send"
    elif tracker is not None:
        progress.phase = "bringing MLflow up to date (Ctrl-C skips it)"
        _finish_tracking(tracker, plan, result)
    return result


def _metrics(plan: Plan, progress: SweepProgress, say: Say) -> contextlib.AbstractContextManager[None]:
    """What serves the sweep to Prometheus, where that is wanted."""
    if plan.telemetry.prometheus_port is None:
        return contextlib.nullcontext()
    from evalray.prometheus import serving_metrics

    return serving_metrics(progress, plan.telemetry.prometheus_host, plan.telemetry.prometheus_port, say)


def _check_folder(directory: Path) -> None:
    """A folder that can never hold a sweep is a wrong flag; a full disk is not, and is met later."""
    folder = directory.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return
        why = f"it cannot be made ({error.strerror or error})"
    if why:
        hint = "choose a folder that you can write to"
        raise ConfigError([Problem("--output-dir", "", f"{folder}: {why}", hint)])


def _tracker(plan: Plan) -> MlflowTracker | None:
    if not plan.tracking_enabled:
        return None
    from evalray.tracking import MlflowTracker, resolve_tracking_uri

    uri = resolve_tracking_uri(plan.directory.parent, flag=plan.tracking_uri)
    return MlflowTracker(uri, experiment=plan.experiment or None)


def _write_reports(directory: Path, say: Say) -> None:
    from evalray.reports import write_reports

    try:
        write_reports(directory)
    except (EvalRayError, OSError) as error:
        what = "" if isinstance(error, DiskFullError) else f"; `evalray summarize {directory}` tries again"
        say(f"no report was written: {error}{what}")


def _finish_tracking(tracker: MlflowTracker, plan: Plan, result: SweepResult) -> None:
    if result.disk_full:
        tracker.close(0.0)
        result.untracked = "brought up to date when the sweep is continued"
        return
    stopped = result.exit_code == _EXIT_INTERRUPTED
    try:
        status = tracker.close(_STOPPED_TRACKING_SECONDS if stopped else _TRACKING_SECONDS)
    except KeyboardInterrupt:
        tracker.close(0.0)
        result.untracked = f"MLflow was not waited for; `evalray mlflow sync {plan.directory}` refills it"
        return
    if not status.synced:
        result.untracked = status.message


def summarize_path(path: Path) -> SweepResult:
    """Recompute results from the journals under ``path``, and rewrite them and the reports.

    ``path`` is a sweep directory, a run directory, or a run's ``.jsonl`` or ``.summary.json``.  May be
    called while a sweep runs.  Raises :class:`~evalray.errors.ConfigError` for a path that is none of
    these, :class:`~evalray.errors.StoreError` for one that cannot be read.
    """
    from evalray.reports import write_reports
    from evalray.runtime.result import EXIT_DONE, EXIT_FAILED, RunOutcome, SweepResult
    from evalray.store import finalize_run, scan_runs, why_failed, why_no_run

    directory, only = _runs_at(path)
    runs, damaged = scan_runs(directory)
    entries = [entry for entry in runs if only is None or entry.name == only]
    problems = [problem for name, problem in damaged.items() if only is None or name == only]
    result = SweepResult(directory.name, directory.absolute(), EXIT_FAILED if problems else EXIT_DONE)
    result.errors += problems
    for entry in entries:
        try:
            summary = finalize_run(entry.directory)
        except StoreError as error:
            result.errors.append(str(error))
            result.exit_code = EXIT_FAILED
            continue
        status = _STATUS.get(summary.status, "partial")
        outcome = RunOutcome(
            summary.benchmark, summary.model, status, entry.results_path, entry.summary_path, summary
        )
        if status == "failed":
            outcome.reason = why_failed(summary, entry.config.max_error_rate, entry.results_path)
        elif status == "partial":
            outcome.reason = summary.reason
        result.runs.append(outcome)
    if not entries:
        raise StoreError("; ".join(problems) or f"{path}: {why_no_run(directory)}")
    write_reports(directory)
    return result


def run_benchmark(
    config: RunConfig,
    dataset: DatasetProvider | None = None,
    backend: InferenceBackend | type[InferenceBackend] | str | None = None,
    scorer: Scorer | str | None = None,
    *,
    judge: Mapping[str, Any] | None = None,
    fresh: bool = False,
    progress: SweepProgress | None = None,
    on_message: Say | None = None,
    **overrides: Any,
) -> RunSummary:
    """Run one model on one benchmark; the same call again continues it.

    ``dataset``, ``backend`` and ``scorer`` default to what ``config`` names, and may be objects of
    your own; a backend may also be a class or ``"module:Class"``.  It runs in an actor, and so must
    be picklable.  ``judge`` is what a suite's ``[judge]`` would say; ``overrides`` as for
    :func:`plan_suite`: ``output_dir``, ``sweep_id``, ``base_url``, ``address``, ``tracking_uri``.
    MLflow is told only with a ``tracking_uri``.

    Raises :class:`~evalray.errors.ConfigError` for what cannot be run, and
    :class:`~evalray.errors.EvalRayError` where the run ended without results.
    """
    from evalray.benchmark_run import plan_benchmark

    plan = plan_benchmark(config, dataset, backend, scorer, judge=judge, overrides=_overrides(overrides))
    result = run_plan(plan, fresh=fresh, progress=progress, on_message=on_message)
    if result.untracked and on_message is not None:
        on_message(result.untracked)
    summary = result.runs[0].summary
    if summary is None:
        raise EvalRayError("; ".join(filter(None, (result.runs[0].reason, *result.errors))) or "no results")
    return summary


def rescore_path(
    path: Path,
    *,
    judge_model: str | None = None,
    judge_engine: str | None = None,
    judge_base_url: str | None = None,
    scorer: str | None = None,
    reask: bool = False,
    tracking_enabled: bool | None = None,
    progress: SweepProgress | None = None,
    on_message: Say | None = None,
    on_kill: Callable[[], None] | None = None,
) -> tuple[Plan, SweepResult]:
    """Give the runs under ``path`` new verdicts from the generations they have; nothing is generated.

    Rules are applied anew and what a judge replied before is read again, unless a judge is named or
    ``reask`` is set.  The earlier verdicts are kept beside (``scores.<time>.jsonl``).  Results, reports
    and MLflow are brought up to date.  Raises as :func:`summarize_path` does.
    """
    from evalray.rescoring import RescoreOptions, plan_rescore

    options = RescoreOptions(judge_model, judge_engine, judge_base_url, scorer, reask, tracking_enabled)
    plan = plan_rescore(*_runs_at(path), options)
    return plan, run_plan(plan, progress=progress, on_message=on_message, on_kill=on_kill)


def _runs_at(path: Path) -> tuple[Path, str | None]:
    """The sweep directory of ``path``, and the run's name where only one is meant.

    Of a copy that ``run -o`` made, the run that it was copied from.
    """
    if not path.exists():
        raise ConfigError([Problem(str(path), "", "no such file or directory")])
    path = path.absolute()
    if path.is_dir():
        return (path.parent, path.name) if (path / "run.json").is_file() else (path, None)
    for suffix in (".summary.json", ".jsonl", ".parquet"):
        name = path.name.removesuffix(suffix)
        if name != path.name and (path.parent / name / "run.json").is_file():
            return path.parent, name
    from evalray.store import find_origin, holds_own_rows

    if (origin := find_origin(path)) is not None:
        return origin
    message = "no journal beside it to recompute from"
    hint = "give a sweep or run directory; `evalray import` makes one of OpenJarvis's results"
    if holds_own_rows(path):
        message = "a copy of EvalRay's rows, and the sweep that it was copied from is not near"
        hint = "give that sweep's directory: results/SWEEP where it ran, or below its --output-dir"
    raise ConfigError([Problem(str(path), "", message, hint)])


def sync_tracking(path: Path, *, tracking_uri: str | None = None) -> list[SyncedSweep]:
    """Bring MLflow up to date with a sweep, or with each of those in a folder; what was done with each.

    ``path`` is a sweep directory, a folder that holds some, or a run directory or results file within a sweep:
    its whole sweep is sent.  Raises as :func:`summarize_path` does where nothing is there; a sweep that could
    not be sent has its error.
    """
    from evalray.tracking import sync_sweeps

    directory, _ = _runs_at(path)
    return sync_sweeps(directory, uri=tracking_uri)


def tracking_store(path: Path, *, tracking_uri: str | None = None) -> str:
    """The tracking URI of a results folder, or of a sweep or run directory within one.

    Raises :class:`~evalray.errors.ConfigError` if there is no store yet.
    """
    from evalray.tracking import resolve_tracking_uri

    if not tracking_uri:
        for folder in (path, path.parent, path.parent.parent):
            if (folder / "mlflow.db").is_file():
                return resolve_tracking_uri(folder, environment={})
    uri = resolve_tracking_uri(path, flag=tracking_uri)
    if not tracking_uri and not os.environ.get("MLFLOW_TRACKING_URI"):
        hint = "run a suite first, or name the results folder"
        raise ConfigError([Problem(str(path), "", "no MLflow store here (mlflow.db)", hint)])
    return uri


def serve_ui(uri: str, *, port: int, on_message: Say) -> int:
    """Serve the MLflow page of a store until Ctrl-C; returns an exit code.

    Of a server it only says where it is.
    """
    from evalray.tracking import is_server, mask_uri, ui_address, ui_command

    if is_server(uri):
        on_message(f"MLflow runs at {mask_uri(uri)}")
        return 0
    on_message(f"MLflow at {ui_address(port)} in a few seconds, from {mask_uri(uri)}; Ctrl-C ends it")
    server = subprocess.Popen(ui_command(uri, port=port), start_new_session=True)
    try:
        code = server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        _end(server)
    on_message(f"MLflow ended with exit code {code}; is port {port} taken? (--port)")
    return 1


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a process and its children: politely, then not."""
    if server.poll() is not None:
        return
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=5.0)
            return
