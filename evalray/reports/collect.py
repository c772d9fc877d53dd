"""Read a sweep directory into what a report shows: the runs' summaries and a few samples of each.

Rows are read one at a time and only until every outcome has its excerpts, so the size of a run
does not matter.  A run without a summary is listed as unfinished; a file that cannot be read is a
warning and hides nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from evalray.errors import EvalRayError
from evalray.reports.escape import plain
from evalray.store import iter_results, read_run, read_summary, read_sweep, scan_runs, why_failed
from evalray.types import Outcome, RunSummary

#: The outcomes a reader wants examples of, in the order in which they are shown.
EXCERPTED = (
    Outcome.INCORRECT,
    Outcome.UNPARSED,
    Outcome.TRUNCATED,
    Outcome.ENGINE_ERROR,
    Outcome.SCORER_ERROR,
    Outcome.JUDGE_ERROR,
)
EXCERPTS_PER_OUTCOME = 3
EXCERPT_CHARACTERS = 600


@dataclass(slots=True, frozen=True)
class Excerpt:
    """One sample as a report shows it; every text is cut to :data:`EXCERPT_CHARACTERS`."""

    record_id: str
    outcome: str
    prompt: str
    reference: str
    answer: str
    error: str


@dataclass(slots=True, frozen=True)
class ReportedRun:
    """One cell of the matrix that has a summary."""

    name: str
    summary: RunSummary
    excerpts: tuple[Excerpt, ...] = ()
    tag: str = ""
    """``#1a2b``, the beginning of its fingerprint, where another run has the same benchmark and model."""

    why_failed: str = ""
    """What a failed run's samples ended in, where its summary gives no reason; only with excerpts."""

    @property
    def label(self) -> str:
        """The model, with the tag where there is one."""
        return f"{self.summary.model} {self.tag}".rstrip()


@dataclass(slots=True)
class SweepReport:
    """Everything the renderers need; ``sweep`` is the content of ``sweep.json``."""

    directory: Path
    sweep: dict[str, Any] = field(default_factory=dict)
    runs: list[ReportedRun] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.sweep.get("sweep_id") or self.directory.name)

    @property
    def description(self) -> str:
        suite = self.sweep.get("suite")
        meta = suite.get("meta") if isinstance(suite, dict) else None
        found = self.sweep.get("description") or (meta.get("description") if isinstance(meta, dict) else "")
        return str(found or "")

    @property
    def benchmarks(self) -> list[str]:
        return list(dict.fromkeys(run.summary.benchmark for run in self.runs))

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(run.summary.model for run in self.runs))

    def of_benchmark(self, benchmark: str) -> list[ReportedRun]:
        """The benchmark's runs, best accuracy first, those without one last."""
        runs = [run for run in self.runs if run.summary.benchmark == benchmark]
        return sorted(
            runs, key=lambda run: -1.0 if run.summary.accuracy is None else run.summary.accuracy, reverse=True
        )

    def cell(self, model: str, benchmark: str) -> list[ReportedRun]:
        """The runs of one model on one benchmark: more than one where their settings differ."""
        return [run for run in self.runs if (run.summary.model, run.summary.benchmark) == (model, benchmark)]


def collect(sweep_dir: Path, *, with_excerpts: bool = True) -> SweepReport:
    """Read ``sweep_dir``.  Raises :class:`~evalray.errors.StoreError` if it is no sweep directory."""
    report = SweepReport(sweep_dir, sweep=read_sweep(sweep_dir))
    configs: dict[str, dict[str, Any]] = {}
    runs, damaged = scan_runs(sweep_dir)
    report.warnings += [f"{name} is left out: {problem}" for name, problem in damaged.items()]
    for run in runs:
        if not run.summary_path.exists():
            report.unfinished.append(run.name)
            continue
        try:
            summary = read_summary(run.summary_path)
        except (EvalRayError, OSError, ValueError, TypeError, KeyError) as error:
            report.warnings.append(f"{run.summary_path.name} cannot be read: {error}")
            continue
        excerpts: tuple[Excerpt, ...] = ()
        cause = ""
        if with_excerpts and summary.status == "failed" and not summary.reason:
            cause = why_failed(summary, run.config.max_error_rate, run.results_path)
        if with_excerpts and run.results_path.exists():
            try:
                excerpts = read_excerpts(run.results_path, summary.outcomes)
            except (EvalRayError, OSError, ValueError, TypeError, KeyError) as error:
                report.warnings.append(f"{run.results_path.name} cannot be read: {error}")
        report.runs.append(ReportedRun(run.name, summary, excerpts, why_failed=cause))
        configs[run.name] = asdict(run.config)
    _tell_apart(report, configs)
    return report


def _tell_apart(report: SweepReport, configs: dict[str, dict[str, Any]]) -> None:
    """Tag the runs that share benchmark and model, and say in what their settings differ."""
    cells: dict[tuple[str, str], list[ReportedRun]] = {}
    for run in report.runs:
        cells.setdefault((run.summary.benchmark, run.summary.model), []).append(run)
    for (benchmark, model), runs in cells.items():
        if len(runs) == 1:
            continue
        tagged = [replace(run, tag=f"#{run.summary.fingerprint[:4] or run.name}") for run in runs]
        names = {run.name: run for run in tagged}
        report.runs = [names.get(run.name, run) for run in report.runs]
        which = how_they_differ([(run.tag, configs[run.name]) for run in tagged])
        report.warnings.append(f"{model} on {benchmark} has {len(runs)} runs, which differ{which}")


def how_they_differ(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """What follows "they differ", of the tags and settings of runs of one benchmark and model."""
    first = runs[0][1]
    differing = [key for key in first if any(settings[key] != first[key] for _, settings in runs)]
    if not differing:
        return " in their data, prompt or engine settings"
    told = (
        f"{tag} {', '.join(f'{key} {_cut(settings[key])[:60]}' for key in differing)}"
        for tag, settings in runs
    )
    return f": {'; '.join(told)}"


def tag_legend(runs: Sequence[tuple[RunSummary, Path]]) -> list[str]:
    """What the tags ``#1a2b`` mean, a line for each benchmark and model of which there are several runs.

    Takes summaries, each with its file.  Settings that cannot be read are left out of what is said.
    """
    cells: dict[tuple[str, str], list[tuple[RunSummary, Path]]] = {}
    for summary, path in runs:
        cells.setdefault((summary.benchmark, summary.model), []).append((summary, path))
    return [_legend(several) for several in cells.values() if len(several) > 1]


def _legend(runs: Sequence[tuple[RunSummary, Path]]) -> str:
    tags = [f"#{summary.fingerprint[:4]}" for summary, _ in runs]
    try:
        folders = [path.with_name(path.name.removesuffix(".summary.json")) for _, path in runs]
        settings = [asdict(read_run(folder).config) for folder in folders]
        which = how_they_differ(list(zip(tags, settings, strict=True)))
    except EvalRayError:
        which = " in their settings"
    first = runs[0][0]
    head = ", ".join(dict.fromkeys(tags))
    return f"{head}: the runs of {first.model} on {first.benchmark} by their fingerprints; they differ{which}"


def read_excerpts(results: Path, outcomes: dict[str, int]) -> tuple[Excerpt, ...]:
    """The first few samples of each outcome worth a look, reading no further than needed."""
    wanted = {str(o): min(outcomes.get(o, 0), EXCERPTS_PER_OUTCOME) for o in EXCERPTED}
    missing = sum(wanted.values())
    found: dict[str, list[Excerpt]] = {name: [] for name in wanted}
    if not missing:
        return ()
    for row in iter_results(results):
        of_outcome = found.get(row.outcome)
        if of_outcome is None or len(of_outcome) >= wanted[row.outcome]:
            continue
        of_outcome.append(
            Excerpt(
                record_id=_cut(row.record_id),
                outcome=row.outcome,
                prompt=_cut(row.prompt),
                reference=_cut(row.reference),
                answer=_cut(row.model_answer or row.raw_text),
                error=_cut(row.error),
            )
        )
        missing -= 1
        if not missing:
            break
    return tuple(excerpt for of_outcome in found.values() for excerpt in of_outcome)


def _cut(text: object) -> str:
    return plain(str(text), EXCERPT_CHARACTERS) if text is not None else ""
