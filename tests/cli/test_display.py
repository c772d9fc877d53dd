from __future__ import annotations

import io
import sys
import time

import pytest
from rich.console import Console

from evalray.cli import display as display_module
from evalray.cli.display import LiveDisplay, PlainDisplay, open_display, state_text
from evalray.runtime.progress import ReplicaProgress, RunProgress, SweepProgress


def _progress() -> SweepProgress:
    return SweepProgress("sweep", "generating", [RunProgress("gsm8k", "m", planned=10)])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "ci", "term", "kind"),
    [
        (io.StringIO, "", "xterm", PlainDisplay),
        (_Terminal, "", "xterm", LiveDisplay),
        (_Terminal, "true", "xterm", PlainDisplay),
        (_Terminal, "", "dumb", PlainDisplay),
    ],
)
def test_live_on_a_terminal_and_plain_elsewhere(
    stream: type[io.StringIO], ci: str, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("TERM", term)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", stream())
    assert type(open_display(_progress())) is kind


def test_state_changes_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = _progress()
    progress.replicas.append(ReplicaProgress("m/0", "m", "ready", 1, 4))
    display = PlainDisplay(progress, Console(stderr=True))
    display.look()
    progress.runs[0].state = "running"
    display.look()
    display.look()
    lines = capsys.readouterr().err.splitlines()
    assert sum("gsm8k · m: running" in line for line in lines) == 1
    assert sum("replica m/0: ready" in line for line in lines) == 1
    assert sum("generating" in line for line in lines) == 1


def test_a_plain_line_comes_when_its_time_is_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = _progress()
    progress.runs[0].outcomes.update(correct=3, incorrect=1)
    display = PlainDisplay(progress, Console(stderr=True))
    display.look()
    assert "4/10 samples" not in capsys.readouterr().err
    monkeypatch.setattr(display_module, "_LINE_SECONDS", 0.0)
    display.look()
    assert "4/10 samples, accuracy so far 75.0%" in capsys.readouterr().err


def test_the_first_prompt_and_answer_are_logged_inert_and_cut(capsys: pytest.CaptureFixture[str]) -> None:
    progress = _progress()
    with PlainDisplay(progress, Console(stderr=True)):
        progress.runs[0].first_prompt = "What is 2+2?\x1b[2J"
        progress.runs[0].first_answer = "[red]4[/red]\x00" + "x" * 5_000
    text = capsys.readouterr().err
    assert "first prompt of gsm8k · m:\n  | What is 2+2?␛[2J" in text
    assert "  | [red]4[/red]␀" in text
    assert "more characters)" in text
    assert len(text) < 2_000


def test_the_answer_shown_is_to_the_prompt_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The record whose prompt was shown failed: another's prompt comes with the answer."""
    progress = _progress()
    display = PlainDisplay(progress, Console(stderr=True))
    progress.runs[0].first_prompt = "How many days?"
    display._look_once()
    progress.runs[0].first_prompt, progress.runs[0].first_answer = "Hot or cold?", "Cold"
    display._look_once()
    text = capsys.readouterr().err
    assert text.index("How many days?") < text.index("Hot or cold?") < text.index("Cold")


def test_runs_that_end_alike_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [RunProgress(f"b{i}", "m", "failed", message="hub unreachable") for i in range(9)]
    PlainDisplay(SweepProgress("s", "", runs), Console(stderr=True)).look()
    text = capsys.readouterr().err
    assert text.count("hub unreachable") == 1
    assert "b0 · m; b1 · m; b2 · m and 6 more: failed" in text


def test_what_was_skipped_or_failed_is_not_counted_as_scored() -> None:
    run = RunProgress("gsm8k", "m", "failed", planned=34)
    run.outcomes.update(engine_error=20, skipped=14)
    assert run.done == 20
    assert "failed, 0/34 samples scored, 14 skipped" in display_module.run_line(run)


def test_markup_in_a_message_is_printed_as_it_is_in_the_live_view() -> None:
    stream = _Terminal()
    console = Console(file=stream, force_terminal=True, width=80, height=24, markup=False)
    with LiveDisplay(_progress(), console) as display:
        display.message("[link=x]click[/link] \x1b]8;;http://evil\x07")
    assert "[link=x]click[/link] ␛]8;;http://evil␇" in stream.getvalue()


def test_the_live_view_redraws_while_the_driver_works() -> None:
    stream = _Terminal()
    console = Console(file=stream, force_terminal=True, width=80, height=24, markup=False)
    progress = _progress()
    deadline = time.monotonic() + 10.0
    with LiveDisplay(progress, console):
        while "generating" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "generating" in stream.getvalue()


def test_a_display_that_fails_says_so_once_and_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(PlainDisplay):
        def look(self) -> None:
            raise RuntimeError("dictionary changed size during iteration")

    with Broken(_progress(), Console(stderr=True)) as display:
        display._look_once()
    assert capsys.readouterr().err.count("progress display failed") == 1


def test_fewer_samples_than_were_asked_for_are_explained() -> None:
    run = RunProgress("gsm8k", "m", "running", planned=39, wanted=40)
    assert "0/39 samples, the data has no more than 39 of 40 asked for" in state_text(run)


def test_answers_of_the_response_cache_are_counted_as_they_come() -> None:
    assert "30 from the cache" in state_text(RunProgress("gsm8k", "m", "running", planned=40, cached=30))
