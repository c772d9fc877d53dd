"""What commands show when they end: tables for a terminal of 80 columns or more, and for a file.

All text that comes from models, servers or files passes through ``safe_line``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from evalray.cli.text import bounds, count, duration, figure, percent, rate, safe_line
from evalray.doctor import Check
from evalray.reports import tag_legend
from evalray.reports.table import device_notes, run_warnings
from evalray.types import RunConfig, RunSummary
from evalray.wording import counted

if TYPE_CHECKING:
    from evalray.runtime.result import RunOutcome

_STATUS_STYLE = {
    "complete": "green",
    "partial": "yellow",
    "failed": "red",
    "skipped": "dim",
    "unsupported": "dim",
}
#: Unparsed, truncated and errors share a column: apart they would not fit 80 cells.
_RESULT_COLUMNS = ("accuracy 95 %", "scored", "unp/trunc/err", "tok/s", "p50 s", "wall")
#: Left out where names need their room, in this order.
_LEAST_IMPORTANT = ("p50 s", "tok/s", "wall")
_LEAST_NAME = 14
_COLUMN_GAP = 2
#: Runs that are named one by one where a text is of many.
MAX_NAMES = 8
#: Between two columns, and what a column of text needs to be read in lines of.
_GAP = 3
_LEAST_FOLDED = 28
_INDENT = "    "
_CHECK_MARK = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "bold red")}


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, header_style="bold")


def results_lines(runs: Sequence[RunOutcome], width: int) -> list[Text]:
    """Model by model, a line per benchmark: accuracy with its 95 % interval, and what it is made of.

    Fits ``width`` cells from 80 on: where a name is long, the least important columns are left out.
    """
    names = run_names(runs)
    figures = [_figures(run.summary) if run.summary is not None else None for run in runs]
    sizes = {
        title: _COLUMN_GAP + max(len(title), *(len(known[title]) for known in figures if known), 0)
        for title in _RESULT_COLUMNS
    }
    longest = max((cell_len("".join(name)) for name in names), default=0) + 2
    for title in _LEAST_IMPORTANT:
        if longest + sum(sizes.values()) > width:
            del sizes[title]
    name_width = min(longest, max(_LEAST_NAME, width - sum(sizes.values())))
    header = "".join(f"{title:>{size}}" for title, size in sizes.items())
    lines = [Text(" " * name_width + header, "dim")]
    for model in dict.fromkeys(run.model for run in runs):
        heading = Text(safe_line(model, 200), "bold")
        heading.truncate(width, overflow="ellipsis")
        lines.append(heading)
        for run, (benchmark, tag), known in zip(runs, names, figures, strict=True):
            if run.model == model:
                name = Text(f"  {benchmark}")
                name.truncate(name_width - cell_len(tag), overflow="ellipsis", pad=not tag)
                name.append(tag)
                name.pad_right(name_width - cell_len(name.plain))
                lines += _with_status(name + _result_cells(run, known, sizes), run, width)
                if run.summary is not None and run.summary.pass_at_k:
                    lines.append(Text(f"    {_pass_at_k(run.summary)}", "dim"))
    if any(tag for _, tag in names):
        found = [(run.summary, run.summary_path) for run in runs]
        legend = tag_legend([(summary, path) for summary, path in found if summary and path])
        lines += [Text(f"  {safe_line(line, 1_000)}", "dim") for line in legend]
    return lines


def _with_status(line: Text, run: RunOutcome, width: int) -> list[Text]:
    """A row of figures with the run's status where that is not complete: behind it, or below for want of room."""
    if run.summary is None or run.status == "complete":
        return [line]
    word = Text(f"  {run.status}", _STATUS_STYLE[run.status])
    if line.cell_len + word.cell_len <= width:
        return [line + word]
    return [line, Text("  ") + word]


def cache_lines(runs: Sequence[RunOutcome]) -> list[Text]:
    """How many answers of each run the response cache had, where it had any."""
    return [
        Text(
            f"  {cell_name(run)}: {count(run.summary.cached_samples)} of "
            f"{counted(run.summary.planned_samples, 'answer')} from the cache, at no time and cost"
        )
        for run in runs
        if run.summary is not None and run.summary.cached_samples
    ]


def rate_lines(runs: Sequence[RunOutcome]) -> list[Text]:
    """What a run's scorer says beside the accuracy, such as how often a judge's verdict hung on the order."""
    lines: list[Text] = []
    for run in runs:
        rates = run.summary.scorer_rates.items() if run.summary is not None else ()
        known = [f"{name.replace('_', ' ')} {rate:.1%}" for name, rate in rates if rate is not None]
        if known:
            name = cell_name(run)
            lines.append(Text(f"  {name}: {safe_line(', '.join(known), 500)}"))
    return lines


def energy_lines(runs: Sequence[RunOutcome]) -> list[Text]:
    """Energy and utilisation of each run where measured; once, how they were measured, or why they were not."""
    lines: list[Text] = []
    reasons: dict[str, None] = {}
    for run in runs:
        summary = run.summary
        if summary is None or summary.energy_method is None:
            continue
        found = list(_device_figures(summary))
        if found:
            name = cell_name(run)
            lines.append(Text(f"  {name}: {', '.join(found)}"))
        reasons |= dict.fromkeys(f"  {safe_line(note, 500)}" for note in device_notes(summary))
    return [*lines, *(Text(reason, "dim") for reason in reasons)]


def _device_figures(summary: RunSummary) -> Iterable[str]:
    if summary.total_energy_joules is not None:
        each = summary.energy_stats.mean if summary.energy_stats else None
        if each is not None:
            yield f"{figure(each)} J/sample"
        if summary.tokens_per_joule is not None:
            yield f"{figure(summary.tokens_per_joule)} tok/J"
        yield f"{figure(summary.total_energy_joules, 4)} J"
        if summary.idle_joules is not None:
            yield f"{figure(summary.idle_joules, 4)} J idle"
    if summary.gco2e is not None:
        yield f"{figure(summary.gco2e)} gCO2e"
    if summary.mfu_pct is not None:
        yield f"MFU {summary.mfu_pct:.3g} %"
    if summary.mbu_pct is not None:
        yield f"MBU {summary.mbu_pct:.3g} %"


def _result_cells(run: RunOutcome, known: Mapping[str, str] | None, sizes: Mapping[str, int]) -> Text:
    style = _STATUS_STYLE[run.status]
    if known is None:
        return Text(f"  {run.status}", style)
    text = "".join(f"{known[title]:>{size}}" for title, size in sizes.items())
    return Text(text, "" if run.status == "complete" else style)


def _pass_at_k(summary: RunSummary) -> str:
    numbers = {int(k.removeprefix("pass@")): value for k, value in summary.pass_at_k.items()}
    return "  ".join(f"pass@{k} {percent(value)}" for k, value in sorted(numbers.items()))


def _figures(summary: RunSummary) -> dict[str, str]:
    outcomes = summary.outcomes
    accuracy = percent(summary.accuracy)
    if summary.accuracy_ci95 is not None:
        accuracy += f" {bounds(*summary.accuracy_ci95)}"
    errors = sum(outcomes.get(name, 0) for name in ("engine_error", "judge_error", "scorer_error"))
    cells = (
        accuracy,
        f"{count(summary.scored_samples)}/{count(summary.planned_samples)}",
        f"{outcomes.get('unparsed', 0)}/{outcomes.get('truncated', 0)}/{errors}",
        rate(summary.output_tokens_per_second),
        rate(summary.latency_stats.median if summary.latency_stats else None),
        duration(summary.wall_seconds),
    )
    return dict(zip(_RESULT_COLUMNS, cells, strict=True))


def reasons(runs: Sequence[RunOutcome]) -> list[Text]:
    """Why runs are not complete, and the warnings of every run: each reason once, with the runs it is of."""
    whose: dict[tuple[str, str], list[str]] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        full = f"{''.join(name)} · {safe_line(run.model, 200)}"
        if run.status != "complete":
            whose.setdefault((run.status, safe_line(run.reason, 1_000)), []).append(full)
        for warning in run_warnings(run.summary, run.reason) if run.summary is not None else ():
            whose.setdefault(("", safe_line(warning, 1_000)), []).append(full)
    lines = []
    for (status, reason), names in whose.items():
        what = ": ".join(filter(None, (status, reason)))
        style = _STATUS_STYLE.get(status, "yellow")
        if len(names) == 1:
            lines.append(Text(f"{names[0]}: {what}", style))
            continue
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        lines.append(Text(f"{len(names)} runs: {what}", style))
        lines.append(Text(f"  {', '.join(names[:MAX_NAMES])}{more}", "dim"))
    return lines


def run_names(runs: Sequence[RunOutcome]) -> list[tuple[str, str]]:
    """Each run's benchmark, and a tag (`` #1a2b``) where another run has the same benchmark and model.

    The tag is the beginning of the run's fingerprint, as the names of folders and reports show it.
    """
    cells = Counter((run.benchmark, run.model) for run in runs)
    names = []
    for run in runs:
        fingerprint = run.summary.fingerprint if run.summary is not None else ""
        twice = cells[run.benchmark, run.model] > 1
        names.append((safe_line(run.benchmark, 100), f" #{fingerprint[:4]}" if twice and fingerprint else ""))
    return names


def cell_name(run: RunConfig | RunOutcome) -> str:
    """Benchmark and model."""
    return f"{safe_line(run.benchmark, 100)} · {safe_line(run.model, 200)}"


def doctor_table(checks: Sequence[Check]) -> Table:
    """Each check with its mark, and below a gap what to do about it."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            table.add_row("", Text(group, "bold"), "")
        mark, style = _CHECK_MARK[check.status]
        detail = Text(safe_line(check.detail, 500))
        if check.advice:
            detail.append(f"\n→ {safe_line(check.advice, 500)}", style)
        table.add_row(Text(mark, style), Text(check.name), detail)
    return table


def listing(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[RenderableType]:
    """Things with a name and a few facts each, in at most ``width`` cells: no name or figure is ever cut.

    A table, of which only the last column is folded; where that is too wide, a paragraph for each thing.
    """
    cells = [[safe_line(cell, 300) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(head, *cells, strict=True)]
    last = width - sum(widths[:-1]) - _GAP * (len(widths) - 1)
    if last < min(widths[-1], _LEAST_FOLDED):
        return [line for row in cells for line in _paragraph(head, row, width)]
    table = _table()
    for number, header in enumerate(head, 1):
        table.add_column(header, no_wrap=number < len(head), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return [table]


def _paragraph(head: Sequence[str], row: Sequence[str], width: int) -> Iterable[Text]:
    """The name, and below it what is known of it: as many facts on a line as there is room for, none broken."""
    yield Text(row[0], "bold")
    line = ""
    for name, fact in zip(head[1:], row[1:], strict=True):
        if not fact:
            continue
        longer = f"{line}; {name} {fact}" if line else f"{name} {fact}"
        if line and cell_len(longer) > width - len(_INDENT):
            yield Text(f"{_INDENT}{line}")
            longer = f"{name} {fact}"
        line = longer
    if line:
        yield Text(f"{_INDENT}{line}")
