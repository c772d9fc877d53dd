"""The tables of a report, as plain strings: one place decides the columns for every format."""

from __future__ import annotations

from dataclasses import dataclass

from evalray.reports.collect import ReportedRun, SweepReport
from evalray.reports.format import (
    DASH,
    count,
    dollars,
    grams,
    interval,
    joules,
    moment,
    percent,
    rate,
    seconds,
    share,
)
from evalray.types import MetricStats, Outcome, RunSummary
from evalray.wording import counted

#: Subjects shown for one run; a report says how many it leaves out.
MAX_SUBJECTS = 100
_MAX_NAMES = 8


@dataclass(slots=True, frozen=True)
class Table:
    """Column heads and rows of text; the first ``labels`` columns are names, the others figures."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def accuracy_text(summary: RunSummary) -> str:
    """``43.2 % (38.1–48.4)``: accuracy with its 95 % interval."""
    if summary.accuracy is None:
        return DASH
    bounds = interval(summary.accuracy_ci95)
    return percent(summary.accuracy) + ("" if bounds == DASH else f" ({bounds})")


def scored_text(summary: RunSummary) -> str:
    return f"{count(summary.scored_samples)}/{count(summary.planned_samples)}"


def matrix(report: SweepReport) -> Table:
    """Model × benchmark, each cell accuracy, interval and scored/planned."""
    rows = []
    for model in report.models:
        cells = []
        for benchmark in report.benchmarks:
            runs = report.cell(model, benchmark)
            cells.append(
                "; ".join(
                    f"{r.tag} {accuracy_text(r.summary)} n={scored_text(r.summary)}".lstrip() for r in runs
                )
                or DASH
            )
        rows.append((model, *cells))
    return Table(("model", *report.benchmarks), tuple(rows))


def leaderboard(runs: list[ReportedRun]) -> Table:
    """One row a run: how good, on how many, how sure, and what its scorer says beside the accuracy."""
    rates = list(dict.fromkeys(name for run in runs for name in run.summary.scorer_rates))
    with_pass = sorted({k for run in runs for k in run.summary.pass_at_k}, key=lambda k: (len(k), k))
    head: tuple[str, ...] = (
        "model",
        "accuracy",
        "95 % interval",
        "scored/planned",
        "without unparsed",
        "on completed",
        "status",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                run.label,
                percent(s.accuracy),
                interval(s.accuracy_ci95),
                scored_text(s),
                percent(s.accuracy_parsed),
                percent(s.accuracy_completed),
                s.status or DASH,
                *(percent(s.pass_at_k.get(k)) for k in with_pass),
                *(percent(s.scorer_rates.get(name)) for name in rates),
            )
        )
    head += tuple(f"pass@{k.removeprefix('pass@')}" for k in with_pass)
    head += tuple(name.replace("_", " ") for name in rates)
    return Table(head, tuple(rows))


def outcomes(runs: list[ReportedRun]) -> Table:
    """One row a run, one column for every outcome there is."""
    rows = tuple((run.label, *(count(run.summary.outcomes.get(o, 0)) for o in Outcome)) for run in runs)
    return Table(("model", *(str(o) for o in Outcome)), rows)


def performance(runs: list[ReportedRun]) -> Table:
    """One row a run: latency, tokens, rates, cost, and energy where any run measured it."""
    with_energy = any(run.summary.total_energy_joules is not None for run in runs)
    with_grid = any(run.summary.gco2e is not None for run in runs)
    with_use = any(run.summary.mfu_pct is not None or run.summary.mbu_pct is not None for run in runs)
    head: tuple[str, ...] = (
        "model",
        "latency p50",
        "latency p90",
        "TTFT p50",
        "TTFT p90",
        "input tokens",
        "output tokens",
        "output tok/s",
        "samples/s",
        "cost",
        "wall",
    )
    rows = []
    for run in runs:
        s = run.summary
        rows.append(
            (
                run.label,
                *_p50_p90(s.latency_stats),
                *_p50_p90(s.ttft_stats),
                count(s.total_input_tokens),
                count(s.total_output_tokens),
                rate(s.output_tokens_per_second),
                rate(s.samples_per_second),
                dollars(s.total_cost_usd),
                seconds(s.wall_seconds),
                *(_energy_cells(s) if with_energy else ()),
                *((grams(s.gco2e),) if with_grid else ()),
                *((share(s.mfu_pct), share(s.mbu_pct)) if with_use else ()),
            )
        )
    head += ("energy", "J/sample", "tok/J", "idle") if with_energy else ()
    head += ("CO2e",) if with_grid else ()
    head += ("MFU", "MBU") if with_use else ()
    return Table(head, tuple(rows))


def _energy_cells(summary: RunSummary) -> tuple[str, ...]:
    each = summary.energy_stats.mean if summary.energy_stats else None
    idle = joules(summary.idle_joules)
    return joules(summary.total_energy_joules), joules(each), rate(summary.tokens_per_joule), idle


def subjects(summary: RunSummary) -> Table:
    """Accuracy, correct and scored of each subject, in the order of their names."""
    rows = []
    for subject, figures in sorted(summary.per_subject.items())[:MAX_SUBJECTS]:
        rows.append(
            (
                subject or "(none)",
                percent(figures.get("accuracy")),
                count(figures.get("correct")),
                count(figures.get("scored")),
                count(figures.get("total")),
            )
        )
    return Table(("subject", "accuracy", "correct", "scored", "total"), tuple(rows))


def has_subjects(summary: RunSummary) -> bool:
    """Whether the breakdown says more than the run's own figures."""
    return len(summary.per_subject) > 1


def facts(report: SweepReport) -> list[tuple[str, str]]:
    """What was run, when and with what, as name and value."""
    starts = [r.summary.started_at for r in report.runs if r.summary.started_at is not None]
    ends = [r.summary.ended_at for r in report.runs if r.summary.ended_at is not None]
    found = [
        ("started", moment(min(starts, default=None))),
        ("ended", moment(max(ends, default=None))),
        ("runs", count(len(report.runs))),
        ("samples scored/planned", "/".join(count(sum(n)) for n in _scored_planned(report))),
    ]
    if cached := sum(run.summary.cached_samples for run in report.runs):
        found.append(("answers from the response cache", count(cached)))
    for label, key in (("git commit", "git_commit"), ("fingerprint", "fingerprint")):
        if isinstance(value := report.sweep.get(key), str) and value:
            found.append((label, value))
    versions = report.sweep.get("versions")
    if isinstance(versions, dict):
        found.append(("versions", ", ".join(f"{k} {v}" for k, v in sorted(versions.items()) if v)))
    return [(name, value) for name, value in found if value and value != DASH]


def warnings(report: SweepReport) -> list[str]:
    """Every warning of the sweep and its runs, each once, with the runs it is about."""
    lines = list(report.warnings)
    lines += [f"{name}: no summary yet; the run is unfinished" for name in report.unfinished]
    whose: dict[str, list[str]] = {}
    for run in report.runs:
        s = run.summary
        of_run = run_warnings(s)
        if s.status in ("partial", "failed"):
            why = f": {s.reason}" if s.reason else ""
            scored = f"{s.status}; {scored_text(s)} samples scored{why}"
            of_run.append(f"{s.status}: {run.why_failed}" if run.why_failed else scored)
        for text in dict.fromkeys(of_run):
            whose.setdefault(text, []).append(f"{run.label} on {s.benchmark}")
    for text, names in whose.items():
        lines.append(f"{_some(names)}: {text}")
    return list(dict.fromkeys(lines))


def run_warnings(summary: RunSummary, told: str = "") -> list[str]:
    """The warnings of one run, with what was wrong with its judge where ``told`` does not say it."""
    lines = list(summary.warnings)
    problem = summary.judge_problem
    if problem and problem not in (told or summary.reason):
        waiting = summary.outcomes.get(Outcome.JUDGE_ERROR, 0)
        without = (
            f"; {counted(waiting, 'answer has', 'answers have')} no verdict: the same command asks again"
        )
        lines.append(problem + (without if waiting else ""))
    return lines


def device_notes(summary: RunSummary) -> list[str]:
    """How a run's joules came about or why it has none, and what its MFU is of; nothing where it was not watched."""
    if summary.energy_method is None:
        return []
    why = summary.energy_reason or ""
    if summary.total_energy_joules is not None:
        scope = f", scope {summary.energy_scope}" if summary.energy_scope else ""
        notes = [f"energy by {summary.energy_method}{scope}{f': {why}' if why else ''}"]
    else:
        head = "no energy meter here" if summary.energy_method == "none" else "energy was not measured"
        notes = [f"{head} (null, not 0): {why or 'no request was in a measured stretch'}"]
    if summary.utilization_reason:
        notes.append(summary.utilization_reason)
    elif summary.utilization_peak:
        notes.append(f"MFU and MBU are of {summary.utilization_peak}")
    return notes


def measuring(runs: list[ReportedRun]) -> list[str]:
    """The notes of several runs, each once: with the runs it is of, where it is not of all."""
    whose: dict[str, list[str]] = {}
    for run in runs:
        for note in device_notes(run.summary):
            whose.setdefault(note, []).append(run.label)
    return [note if len(names) == len(runs) else f"{_some(names)}: {note}" for note, names in whose.items()]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _p50_p90(stats: MetricStats | None) -> tuple[str, str]:
    return (seconds(stats.median), seconds(stats.p90)) if stats else (DASH, DASH)


def _scored_planned(report: SweepReport) -> tuple[list[int], list[int]]:
    return [r.summary.scored_samples for r in report.runs], [r.summary.planned_samples for r in report.runs]
