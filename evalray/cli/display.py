"""How a sweep is followed while it runs: a live view on a terminal, plain lines elsewhere.

A thread looks at the driver's counters four times a second; the driver never waits for it, and a
display that fails says so once and leaves the sweep alone.  Everything goes to stderr.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from evalray.cli.frame import SweepTotals, render_frame
from evalray.cli.text import count, duration, percent, quoted_block, rate, safe_line
from evalray.cli.wrapping import wrapped
from evalray.runtime.progress import RunProgress, SweepProgress
from evalray.wording import counted

_LOOK_SECONDS = 0.25
_LINE_SECONDS = 5.0
_EXCERPT_CHARACTERS = 600
_ENDED = ("complete", "partial", "failed", "skipped")
_MAX_NAMES = 3


def open_display(progress: SweepProgress) -> Display:
    """The live view if stderr is a terminal and ``CI`` is not set; plain lines otherwise."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI"):
        return LiveDisplay(progress, console)
    return PlainDisplay(progress, console)


class Display(ABC):
    """A context manager that follows ``progress`` until it is left."""

    def __init__(self, progress: SweepProgress, console: Console) -> None:
        self.progress = progress
        self.console = console
        self._started_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="evalray-display", daemon=True)
        self._shown_prompts: dict[int, str] = {}
        self._shown_answers: set[int] = set()
        self._complained = False

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started_at

    @abstractmethod
    def look(self) -> None:
        """Show what has changed."""

    @abstractmethod
    def log(self, text: str, style: str = "") -> None:
        """Write lines that stay; ``text`` is inert already."""

    def message(self, text: str) -> None:
        """A line from the sweep; may hold anything."""
        self.log(safe_line(text, 2_000))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=5.0)
        self._look_once()

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._look_once()

    def _look_once(self) -> None:
        try:
            self.look()
            self._excerpts()
        except Exception as error:  # noqa: BLE001 - a display must not end a sweep
            if not self._complained:
                self._complained = True
                sys.stderr.write(f"evalray: the progress display failed and goes on: {error!r}\n")

    def _excerpts(self) -> None:
        for index, run in enumerate(list(self.progress.runs)):
            # The answer is written after its prompt, and so is read before it.
            answer, prompt = run.first_answer, run.first_prompt
            if index in self._shown_answers:
                continue
            if prompt is not None and self._shown_prompts.get(index) != prompt:
                self._shown_prompts[index] = prompt
                self._excerpt("prompt", run, prompt)
            if answer is not None:
                self._shown_answers.add(index)
                self._excerpt("answer", run, answer)

    def _excerpt(self, what: str, run: RunProgress, text: str) -> None:
        title = f"first {what} of {run_name(run)}:"
        self.log(f"{title}\n{quoted_block(text, _EXCERPT_CHARACTERS)}", "dim")


class LiveDisplay(Display):
    """A view that redraws in place; log lines scroll above it."""

    def __init__(self, progress: SweepProgress, console: Console) -> None:
        super().__init__(progress, console)
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._live.stop()

    def look(self) -> None:
        size = self.console.size
        lines = render_frame(self.progress, size.width, size.height - 1, self.elapsed_seconds)
        self._live.update(Text("\n", no_wrap=True).join(lines), refresh=True)

    def log(self, text: str, style: str = "") -> None:
        for line in wrapped(Text(text, style), self.console, self.console.width):
            self.console.print(line, soft_wrap=True)


class PlainDisplay(Display):
    """One line every five seconds, and one whenever a run or a replica changes its state."""

    def __init__(self, progress: SweepProgress, console: Console) -> None:
        super().__init__(progress, console)
        self._line_at = self._started_at
        self._phase = ""
        self._run_states: dict[int, str] = {}
        self._replica_states: dict[str, str] = {}

    def log(self, text: str, style: str = "") -> None:
        # One write per call, so that lines of other threads and processes do not fall in between.
        sys.stderr.write(f"[{duration(self.elapsed_seconds)}] {text}\n")
        sys.stderr.flush()

    def look(self) -> None:
        progress = self.progress
        if progress.phase != self._phase:
            self._phase = progress.phase
            self.log(safe_line(progress.phase, 300))
        for replica in list(progress.replicas):
            if self._replica_states.get(replica.engine_id) != replica.state:
                self._replica_states[replica.engine_id] = replica.state
                self.log(f"replica {safe_line(replica.engine_id, 200)}: {replica.state}")
        changed: dict[str, list[str]] = {}
        for index, run in enumerate(list(progress.runs)):
            if self._run_states.get(index, "waiting") != run.state:
                self._run_states[index] = run.state
                changed.setdefault(state_text(run), []).append(run_name(run))
        for state, names in changed.items():
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            self.log(f"{'; '.join(names[:_MAX_NAMES])}{more}: {state}")
        now = time.monotonic()
        if now - self._line_at >= _LINE_SECONDS:
            self._line_at = now
            self.log(sweep_line(progress))


def run_name(run: RunProgress) -> str:
    return f"{safe_line(run.benchmark, 200)} · {safe_line(run.model, 300)}"


def run_line(run: RunProgress) -> str:
    """One run in one line of plain text."""
    return f"{run_name(run)}: {state_text(run)}"


def state_text(run: RunProgress) -> str:
    """What :func:`run_line` says of a run beside its name."""
    parts: list[str] = [run.state]
    if run.planned is not None and run.state in _ENDED:
        # Ended is not done: what counts now is what got a verdict.
        parts.append(f"{count(run.scored)}/{count(run.planned)} samples scored")
        if run.skipped:
            parts.append(f"{count(run.skipped)} skipped")
    elif run.planned is not None:
        parts.append(f"{count(run.done)}/{count(run.planned)} samples")
    if run.wanted is not None and run.planned is not None:
        parts.append(f"the data has no more than {count(run.planned)} of {count(run.wanted)} asked for")
    if run.resumed:
        parts.append(f"{count(run.resumed)} of them from before")
    if run.cached:
        parts.append(f"{count(run.cached)} from the cache")
    if run.generated:
        parts += _figures(run.samples_per_second, run.tokens_per_second, run.accuracy, run.errors)
    if run.judging:
        parts.append(f"{count(run.judging)} wait for the judge")
    if run.message:
        parts.append(safe_line(run.message, 500))
    return ", ".join(parts)


def sweep_line(progress: SweepProgress) -> str:
    """A whole sweep in one line of plain text."""
    runs, replicas = list(progress.runs), list(progress.replicas)
    total = SweepTotals(runs)
    planned = "?" if total.planned is None else count(total.planned)
    accuracy = total.correct / total.scored if total.scored else None
    parts = [f"{count(total.done)}/{planned} samples"]
    parts += _figures(total.samples_per_second, total.tokens_per_second, accuracy, total.errors)
    if total.eta_seconds is not None and not progress.stopping:
        parts.append(f"{duration(total.eta_seconds)} left")
    running = [run for run in runs if run.state == "running"]
    if running and len(runs) > 1:
        names = "; ".join(
            f"{run_name(run)} {count(run.done)}/{'?' if run.planned is None else count(run.planned)}"
            for run in running[:3]
        )
        more = f" and {len(running) - 3} more" if len(running) > 3 else ""
        parts.append(f"running {names}{more}")
    if waiting := sum(run.judging for run in runs):
        parts.append(f"{count(waiting)} wait for the judge")
    ready = [replica for replica in replicas if replica.state == "ready"]
    if replicas:
        load = f"{sum(r.in_flight for r in ready)}/{sum(r.limit for r in ready)} in flight"
        parts.append(f"{len(ready)}/{len(replicas)} replicas ready, {load}")
    if progress.stopping:
        parts.insert(0, "stopping")
    return ", ".join(parts)


def _figures(
    samples_per_second: float | None, tokens_per_second: float | None, accuracy: float | None, errors: int
) -> list[str]:
    figures = []
    if samples_per_second is not None:
        figures.append(f"{rate(samples_per_second)} samples/s")
    if tokens_per_second is not None:
        figures.append(f"{rate(tokens_per_second)} tokens/s")
    if accuracy is not None:
        figures.append(f"accuracy so far {percent(accuracy)}")
    if errors:
        figures.append(counted(errors, "error"))
    return figures
