from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from evalray.cli.display import sweep_line
from evalray.cli.frame import SweepTotals, render_frame
from evalray.runtime.progress import ReplicaProgress, RunProgress, SweepProgress

_STATES = ("waiting", "loading", "running", "finalizing", "complete", "partial", "failed", "skipped")


def _running(
    benchmark: str = "gsm8k", model: str = "qwen3:8b", done: int = 40, planned: int = 100
) -> RunProgress:
    run = RunProgress(benchmark, model, "running", planned=planned)
    run.first_request_at = time.monotonic() - 10.0
    run.generated, run.output_tokens = done, done * 50
    run.outcomes.update(correct=done - done // 4, incorrect=done // 4)
    return run


def _text(progress: SweepProgress, width: int = 80, height: int = 24) -> str:
    return "\n".join(line.plain for line in render_frame(progress, width, height, 12.0))


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(40, 200),
    height=st.integers(4, 60),
    states=st.lists(st.sampled_from(_STATES), max_size=130),
    replicas=st.integers(0, 130),
    model=st.text(min_size=1, max_size=60),
)
def test_a_frame_never_leaves_its_screen(
    width: int, height: int, states: list[str], replicas: int, model: str
) -> None:
    runs = [RunProgress("supergpqa", model, state, planned=10**9) for state in states]
    machines = [ReplicaProgress(f"{model}/{i}", model, "ready", 31, 32) for i in range(replicas)]
    lines = render_frame(SweepProgress("sweep", "generating\n" * 9, runs, machines), width, height, 1e6)
    assert len(lines) <= height
    assert all(cell_len(line.plain) <= width and "\n" not in line.plain for line in lines)


def test_a_run_shows_its_figures_at_80_columns() -> None:
    text = _text(SweepProgress("sweep", "generating", [_running()]))
    for figure in ("gsm8k · qwen3:8b", "40/100", "4.00", "200", "75.0%", "0:15"):
        assert figure in text


def test_active_runs_stay_where_a_hundred_do_not_fit() -> None:
    runs = [RunProgress("quickstart", f"m{i}", "complete", planned=1) for i in range(98)]
    runs += [_running(model="busy"), RunProgress("gsm8k", "broken", "failed", message="no such model")]
    text = _text(SweepProgress("sweep", "generating", runs))
    assert "gsm8k · busy" in text
    assert "no such model" in text
    assert "more" in text


def test_both_ends_of_a_long_model_name_can_be_read() -> None:
    text = _text(SweepProgress("s", "", [_running(model="Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8-with-suffix")]))
    assert "Qwen/" in text
    assert "suffix" in text


def test_the_signs_that_are_shown_are_explained() -> None:
    runs = [_running(), RunProgress("b", "m", "waiting"), RunProgress("c", "m", "finalizing", planned=4)]
    legend = _text(SweepProgress("s", "", runs)).splitlines()[-1]
    assert legend == "  ▶ running   ▷ finalizing   · waiting"
    assert "▷ finalizing" not in _text(SweepProgress("s", "", runs), height=8)


def test_a_sweep_that_stops_has_no_time_left_to_tell() -> None:
    runs = [_running(), _running("mmlu")]
    assert "0:15" in _text(SweepProgress("s", "", runs))
    stopping = SweepProgress("s", "waiting for requests in flight", runs, stopping=True)
    assert "0:15" not in _text(stopping)
    assert " left" not in sweep_line(stopping)


def test_replicas_show_their_state_and_their_load() -> None:
    replicas = [ReplicaProgress("m/0", "m", "ready", 3, 4), ReplicaProgress("m/1", "m", "restarting")]
    text = _text(SweepProgress("s", "", [_running()], replicas))
    assert "m/0 ready 3/4" in text
    assert "m/1 restarting" in text


def test_replicas_that_do_not_fit_are_counted() -> None:
    replicas = [ReplicaProgress(f"some-model/{i}", "some-model", "ready", 3, 4) for i in range(200)]
    text = _text(SweepProgress("s", "", [_running()], replicas))
    assert "200 ready, 600/800 in flight" in text


@pytest.mark.parametrize("hostile", ["\x1b[2J", "[bold red]x[/]", "a\nb", "\u202e"])
def test_names_and_messages_are_inert(hostile: str) -> None:
    runs = [RunProgress("b", hostile, "failed", message=hostile)]
    lines = render_frame(SweepProgress(hostile, hostile, runs), 80, 24, 1.0)
    assert all(not set(line.plain) & set("\x1b\n\u202e") for line in lines)
    assert all(not line.spans or "red]" not in str(line.spans) for line in lines)


def test_the_model_of_all_runs_stands_once_above_them_and_leaves_room_for_their_benchmarks() -> None:
    runs = [_running("natural-reasoning", "Qwen/Qwen3-8B"), _running("gsm8k", "Qwen/Qwen3-8B")]
    lines = _text(SweepProgress("s", "", runs)).splitlines()
    assert lines[1].strip().startswith("Qwen/Qwen3-8B ")
    assert [line.split()[1] for line in lines[2:4]] == ["natural-reasoning", "gsm8k"]
    assert "gsm8k · other" in _text(SweepProgress("s", "", [*runs, _running("gsm8k", "other")]))


def test_a_run_that_fails_does_not_shrink_the_total() -> None:
    runs = [_running(), RunProgress("mmlu", "m", "loading", planned=50)]
    before = SweepTotals(runs)
    runs[1].state = "failed"
    after = SweepTotals(runs)
    assert (before.planned, after.planned) == (150, 150)
    assert after.eta_seconds is not None
    assert before.eta_seconds is not None
    assert after.eta_seconds < before.eta_seconds, "what failed is not waited for"
