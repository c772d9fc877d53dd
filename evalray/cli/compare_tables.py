"""A comparison for a terminal of 80 columns or more, and for a file.

All text that comes from models, data or files passes through ``safe_line``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from evalray.cli.text import figure, percent, safe_line
from evalray.wording import counted

if TYPE_CHECKING:
    from evalray.compare import Comparison, ComparisonReport, Difference, MeasureChange

_MAX_SUBJECTS = 20
_SIGNIFICANCE = 0.05
_INSET = (0, 0, 0, 2)
_TESTS = {"mcnemar": "McNemar", "bootstrap": "paired bootstrap", "z": "paired z"}


def comparison_lines(report: ComparisonReport) -> list[RenderableType]:
    """Every comparison, what had no partner, and the verdict where one was asked for."""
    parts: list[RenderableType] = []
    for comparison in report.comparisons:
        parts += [*_one(comparison, several=len(report.comparisons) > 1), Text()]
    parts += [Text(f"no partner: {safe_line(name, 500)}", "yellow") for name in report.unmatched]
    if report.regression is not None:
        parts.append(_verdict(report))
    return parts


def _one(comparison: Comparison, *, several: bool) -> Iterable[RenderableType]:
    a, b, figures = comparison.a, comparison.b, comparison.figures
    same = a.benchmark == b.benchmark
    yield Text(safe_line(a.benchmark if same else f"{a.benchmark} and {b.benchmark}", 200), "bold")
    for side, run in (("A", a), ("B", b)):
        yield Text(f"  {side}  {safe_line(run.model, 200)}", "bold") + Text(
            f"  {safe_line(str(run.path), 500)}", "dim"
        )
    overlap = figures.overlap
    yield Text(
        f"  {counted(overlap.scored_in_both, 'record')} scored in both; of {overlap.common:,} common "
        f"{overlap.scored_only_in_a:,} scored only in A, {overlap.scored_only_in_b:,} only in B, "
        f"{overlap.scored_in_neither:,} in neither; {counted(overlap.only_a, 'record')} only in A, {overlap.only_b:,} only in B",
        "dim",
    )
    if figures.accuracy is not None:
        yield _headline("accuracy", figures.accuracy, several)
    if figures.score is not None:
        yield _headline("score", figures.score, several)
    if figures.measures or comparison.totals:
        yield Padding(_measures(figures.measures, comparison.totals), _INSET)
    if figures.subjects:
        yield Padding(_subjects(figures.subjects), _INSET)
    for name, (mine, other) in comparison.settings.items():
        yield Text(f"  setting {name}: A {safe_line(str(mine), 80)}, B {safe_line(str(other), 80)}", "cyan")
    for conflict in comparison.conflicts:
        yield Text(f"  compared all the same: {safe_line(conflict, 500)}", "bold yellow")
    for warning in comparison.warnings:
        yield Text(f"  {safe_line(warning, 500)}", "yellow")


def points(value: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return f"{100 * value:+.1f}"


def _interval(difference: Difference) -> str:
    if difference.ci95 is None:
        return "–"
    low, high = difference.ci95
    return f"{points(low)} to {points(high)}"


def _p(value: float | None) -> str:
    """A p-value for a table's cell."""
    if value is None:
        return "–"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _p_is(value: float | None) -> str:
    """A p-value in a sentence: ``p = 0.012``, ``p < 0.001``."""
    if value is None:
        return "p –"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _style(difference: Difference) -> str:
    if not difference.excludes_zero:
        return ""
    return "green" if difference.difference > 0 else "red"


def _headline(name: str, d: Difference, several: bool) -> Text:
    adjusted = f", {_p_is(d.p_adjusted)} by Holm" if several and d.p_adjusted is not None else ""
    line = Text(f"  {name}  A {percent(d.a)}  B {percent(d.b)}  difference ")
    line.append(f"{points(d.difference)} points", f"bold {_style(d)}".strip())
    line.append(
        f" (95 % {_interval(d)}), {_p_is(d.p_value)} {_TESTS[d.test]}{adjusted}; "
        f"B better {d.wins:,}, worse {d.losses:,}, same {d.ties:,}"
    )
    return line


def _table(*headers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(
            header, justify="left" if number == 0 else "right", overflow="fold", no_wrap=number > 0
        )
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else figure(value, 4)


def _measures(
    changes: Sequence[MeasureChange], totals: dict[str, tuple[float | None, float | None]]
) -> Table:
    """Each row says what it is: the median over the paired records, or a figure of the whole run."""
    from evalray.compare import TOTALS

    table = _table("figure", "A", "B", "B/A", "records")
    for change in changes:
        ratio = "–" if change.ratio is None else f"{change.ratio:.2f}×"
        table.add_row(
            f"median {change.label}",
            _number(change.median_a),
            _number(change.median_b),
            ratio,
            f"{change.n:,}",
        )
    for name, (a, b) in totals.items():
        ratio = f"{b / a:.2f}×" if a and b is not None else "–"
        table.add_row(TOTALS[name], _number(a), _number(b), ratio, "all")
    return table


def _subjects(subjects: dict[str, Difference]) -> Table:
    """The most telling subjects first."""
    ranked = sorted(
        subjects.items(), key=lambda item: (_or_one(item[1].p_value), -abs(item[1].difference), item[0])
    )
    table = _table("subject", "n", "A", "B", "B − A", "95 %", "p Holm")
    for name, d in ranked[:_MAX_SUBJECTS]:
        certain = d.p_adjusted is not None and d.p_adjusted < _SIGNIFICANCE
        style = _style(d) if certain else ""
        table.add_row(
            Text(safe_line(name, 60)),
            f"{d.n:,}",
            percent(d.a),
            percent(d.b),
            Text(points(d.difference), style),
            _interval(d),
            _p(d.p_adjusted),
        )
    left_out = len(ranked) - _MAX_SUBJECTS
    more = f"; {left_out} more in --json" if left_out > 0 else ""
    table.caption = f"p-values are corrected for {len(subjects)} subjects (Holm){more}"
    table.caption_justify = "left"
    return table


def _or_one(p_value: float | None) -> float:
    return 1.0 if p_value is None else p_value


def _verdict(report: ComparisonReport) -> Text:
    worse = [c for c in report.comparisons if c.regression]
    allowed = f"a significant drop of more than {100 * (report.threshold or 0.0):g} points"
    if not worse:
        return Text(f"no regression: no accuracy shows {allowed}", "bold green")
    names = ", ".join(safe_line(f"{c.b.benchmark} · {c.b.model}", 200) for c in worse)
    return Text(f"regression: {names}: {allowed}", "bold red")
