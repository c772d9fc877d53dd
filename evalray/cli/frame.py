"""One frame of the live view: lines of text from a sweep's counters, at a given size.

Pure and cheap (well under a millisecond for the runs that fit a screen), since it shares the
interpreter with the driver.  Never wider than ``width`` nor taller than ``height``: runs that do
not fit are counted instead of shown, the active ones stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from evalray.cli.text import count, duration, percent, rate, safe_line
from evalray.runtime.progress import ReplicaProgress, RunProgress, RunState, SweepProgress

_GLYPH: dict[RunState, tuple[str, str]] = {
    "waiting": ("·", "dim"),
    "loading": ("◌", "yellow"),
    "running": ("▶", "cyan"),
    "finalizing": ("▷", "cyan"),
    "complete": ("✓", "green"),
    "partial": ("◐", "yellow"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
}
_REPLICA_STYLE = {"ready": "green", "restarting": "yellow", "failed": "red", "stopped": "dim"}
#: What is shown first where not everything fits.
_RANK: dict[RunState, int] = {
    "running": 0,
    "finalizing": 1,
    "loading": 2,
    "failed": 3,
    "waiting": 4,
    "partial": 5,
    "complete": 6,
    "skipped": 7,
}
_ENDED = ("complete", "partial", "failed", "skipped")
_COLUMNS = ("done/total", 14), ("smp/s", 7), ("tok/s", 7), ("acc", 7), ("err", 6), ("ETA", 8)
_NUMBERS_WIDTH = sum(width for _, width in _COLUMNS)
_BAR_WIDTH = 16
_MIN_NAME = 20
#: A screen lower than this has no line to spare for the legend.
_LEGEND_HEIGHT = 12
_WIDE = 2 + 32 + _NUMBERS_WIDTH + _BAR_WIDTH + 1


def render_frame(progress: SweepProgress, width: int, height: int, elapsed_seconds: float) -> list[Text]:
    """The lines of one frame: at most ``height`` of them, none wider than ``width`` cells."""
    runs, replicas = list(progress.runs), list(progress.replicas)
    lines = [_headline(progress, width, elapsed_seconds)]
    legend = _legend(runs, width) if height >= _LEGEND_HEIGHT else []
    replica_lines = _replicas(replicas, width, max(1, min(6, height // 5)))
    totals = 1 if len(runs) > 1 else 0
    room = height - len(lines) - len(replica_lines) - len(legend) - totals - 1
    if runs and room >= 1:
        model = _only_model(runs)
        lines.append(_header(width, model or "run"))
        shown = _pick(runs, room)
        lines += [
            _run_line(run, width, stopping=progress.stopping, of_one_model=bool(model)) for run in shown
        ]
        if totals:
            lines.append(_totals(runs, len(shown), width, stopping=progress.stopping))
    return [*lines, *replica_lines, *legend][:height]


def _legend(runs: Sequence[RunProgress], width: int) -> list[Text]:
    """What the signs before the runs mean: of those that are shown."""
    states = {run.state for run in runs}
    parts = [f"{_GLYPH[state][0]} {state}" for state in _RANK if state in states]
    if any(run.judging for run in runs):
        parts.append("⚖ wait for the judge")
    return [_cut(Text("  " + "   ".join(parts), "dim"), width)] if parts else []


def _pick(runs: Sequence[RunProgress], room: int) -> list[RunProgress]:
    if len(runs) <= room:
        return list(runs)
    ranked = sorted(range(len(runs)), key=lambda index: (_RANK[runs[index].state], index))
    return [runs[index] for index in sorted(ranked[:room])]


def _headline(progress: SweepProgress, width: int, elapsed_seconds: float) -> Text:
    clock = duration(elapsed_seconds)
    stopping = "stopping: " if progress.stopping else ""
    left = f"{safe_line(progress.sweep_id, 40)}  {stopping}{safe_line(progress.phase, width)}"
    line = Text()
    line.append(set_cell_size(left, max(1, width - len(clock) - 1)), "bold yellow" if stopping else "bold")
    return line.append(" " + clock, "dim")


def _name_width(width: int) -> int:
    bar = _BAR_WIDTH + 1 if width >= _WIDE else 0
    return max(_MIN_NAME, width - 2 - _NUMBERS_WIDTH - bar)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width)
    return line


def _only_model(runs: Sequence[RunProgress]) -> str:
    """The model of several runs, where it is one: it then stands above them, not in each."""
    models = {run.model for run in runs}
    return models.pop() if len(models) == 1 < len(runs) else ""


def _header(width: int, title: str) -> Text:
    name_width = _name_width(width)
    bar = " " * (_BAR_WIDTH + 1) if width >= _WIDE else ""
    cells = "".join(f"{column:>{size}}" for column, size in _COLUMNS)
    name = set_cell_size(_without_middle(safe_line(title, 300), name_width - 1), name_width)
    return _cut(Text("  " + name + bar + cells, "dim"), width)


def _name(run: RunProgress, width: int, *, of_one_model: bool) -> str:
    """Benchmark and model in ``width`` cells; the model gives way in its middle, as both its ends tell."""
    benchmark, model = safe_line(run.benchmark, 200), safe_line(run.model, 300)
    if of_one_model:
        return set_cell_size(_without_middle(benchmark, width - 1), width)
    room = max(8, width - cell_len(benchmark) - 4)
    return set_cell_size(f"{benchmark} · {_without_middle(model, room)}", width - 1) + " "


def _without_middle(text: str, cells: int) -> str:
    if cell_len(text) <= cells:
        return text
    tail = (cells - 1) // 2
    start = set_cell_size(text, cells - 1 - tail).rstrip()
    return f"{start}…{set_cell_size(text[::-1], tail).rstrip()[::-1]}"


def _run_line(run: RunProgress, width: int, *, stopping: bool, of_one_model: bool) -> Text:
    glyph, style = _GLYPH[run.state]
    line = Text()
    line.append(glyph + " ", style)
    dim = "dim" if run.state in ("waiting", "skipped") else ""
    name_width = _name_width(width)
    line.append(_name(run, name_width, of_one_model=of_one_model), dim)
    if run.message and not run.done:
        rest = max(1, width - 2 - name_width)
        return _cut(line.append(" " + safe_line(run.message, rest - 1), style), width)
    if run.planned is None and not run.done:
        return _cut(line.append(f" {run.state}", style), width)
    if width >= _WIDE:
        line.append(_bar(run.done, run.planned) + " ", style)
    planned = "?" if run.planned is None else count(run.planned)
    line.append(f"{count(run.done) + '/' + planned:>14}", dim)
    line.append(
        f"{rate(run.samples_per_second):>7}{rate(run.tokens_per_second):>7}{percent(run.accuracy):>7}", dim
    )
    line.append(f"{count(run.errors):>6}", "bold red" if run.errors else "dim")
    # Once all is generated there is no time left to tell, only what the judge has before it.
    # Nor is what is left to be generated once the sweep stops: it is not waited for.
    left = duration(run.eta_seconds) if run.state == "running" and not stopping else ""
    line.append(f"{f'⚖{count(run.judging)}' if run.judging else left:>8}", dim)
    return _cut(line, width)


def _bar(done: int, planned: int | None) -> str:
    filled = round(_BAR_WIDTH * min(1.0, done / planned)) if planned else 0
    return "━" * filled + "╌" * (_BAR_WIDTH - filled)


def _totals(runs: Sequence[RunProgress], shown: int, width: int, *, stopping: bool = False) -> Text:
    total = SweepTotals(runs)
    states = Counter(run.state for run in runs)
    hidden = f"{len(runs) - shown} more, " if shown < len(runs) else ""
    room = max(1, width - _NUMBERS_WIDTH)
    left = f"  {hidden}all: " + ", ".join(f"{states[state]} {state}" for state in _RANK if states[state])
    if cell_len(left) > room:
        left = f"  {hidden}" + " ".join(
            f"{_GLYPH[state][0]}{states[state]}" for state in _RANK if states[state]
        )
    left = set_cell_size(left, room)
    planned = "?" if total.planned is None else count(total.planned)
    cells = (
        f"{count(total.done) + '/' + planned:>14}{rate(total.samples_per_second):>7}"
        f"{rate(total.tokens_per_second):>7}{'':>7}{count(total.errors):>6}{'' if stopping else duration(total.eta_seconds):>8}"
    )
    return _cut(Text(left + cells, "bold"), width)


def _replicas(replicas: Sequence[ReplicaProgress], width: int, room: int) -> list[Text]:
    if not replicas:
        return []
    cells = []
    for replica in replicas:
        load = f" {replica.in_flight}/{replica.limit}" if replica.state == "ready" else ""
        cells.append(
            (f"{_replica_name(replica)} {replica.state}{load}", _REPLICA_STYLE.get(replica.state, "yellow"))
        )
    cell_width = max(cell_len(text) for text, _ in cells) + 3
    prefix = "  replicas  "
    per_line = max(1, (width - len(prefix)) // cell_width)
    if len(cells) > per_line * room:
        return [_replicas_counted(replicas, prefix, width)]
    lines = []
    for start in range(0, len(cells), per_line):
        line = Text(prefix if start == 0 else " " * len(prefix), "dim")
        for text, style in cells[start : start + per_line]:
            line.append(set_cell_size(text, cell_width), style)
        lines.append(_cut(line, width))
    return lines


def _replica_name(replica: ReplicaProgress) -> str:
    return _without_middle(safe_line(replica.engine_id, 200), 28)


def _replicas_counted(replicas: Sequence[ReplicaProgress], prefix: str, width: int) -> Text:
    states = Counter(replica.state for replica in replicas)
    parts = ", ".join(f"{number} {state}" for state, number in states.most_common())
    ready = [replica for replica in replicas if replica.state == "ready"]
    load = f"{sum(r.in_flight for r in ready)}/{sum(r.limit for r in ready)} in flight"
    return _cut(Text(f"{prefix}{parts}, {load}", "dim"), width)


class SweepTotals:
    """Sums over a sweep's runs; rates over those that are running.

    ``planned`` is ``None`` while a run's size is not known.  A run that failed stays in it, so that it never
    shrinks; what is left of it is no time to wait for.
    """

    def __init__(self, runs: Sequence[RunProgress]) -> None:
        live = [run for run in runs if run.state not in ("skipped", "failed") or run.done or run.planned]
        sizes = [run.planned for run in live]
        self.done = sum(run.done for run in live)
        self.planned = None if None in sizes else sum(size or 0 for size in sizes)
        self.errors = sum(run.errors for run in live)
        self.scored = sum(run.scored for run in live)
        self.correct = sum(run.correct for run in live)
        running = [run for run in live if run.state == "running"]
        self.samples_per_second = _sum_known([run.samples_per_second for run in running])
        self.tokens_per_second = _sum_known([run.tokens_per_second for run in running])
        self.eta_seconds: float | None = None
        if self.planned is not None and self.samples_per_second:
            going_on = [run for run in live if run.state not in _ENDED]
            left = sum(max(0, (run.planned or 0) - run.done) for run in going_on)
            self.eta_seconds = left / self.samples_per_second


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
