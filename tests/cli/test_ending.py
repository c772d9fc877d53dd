from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from evalray.cli.ending import ending, last_words, report_fields, resume_command
from evalray.cli.report import Report
from evalray.plan import Plan
from evalray.runtime.progress import RunProgress, SweepProgress
from evalray.runtime.result import RunOutcome, SweepResult
from evalray.types import MetricStats, RunSummary


def _summary(model: str = "qwen3:8b") -> RunSummary:
    summary = RunSummary(
        "supergpqa", "reasoning", "jarvis-direct", model, 1200, 1190, 714, 0.6, 10, 1.5, None
    )
    summary.planned_samples = 1200
    summary.outcomes = {"correct": 714, "incorrect": 470, "unparsed": 4, "truncated": 2, "engine_error": 10}
    summary.accuracy_ci95 = (0.572, 0.627)
    summary.latency_stats = MetricStats(1.5, 1.25, 1, 2, 0.1, 2, 2, 2, 1190)
    summary.output_tokens_per_second, summary.wall_seconds = 321.0, 3_723.0
    return summary


def _result(code: int, *runs: RunOutcome) -> SweepResult:
    return SweepResult("sweep", Path("results/sweep"), code, list(runs))


def _shown(result: SweepResult, width: int = 80) -> str:
    plan = Plan("sweep", "", "sweep", result.directory, {})
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    for part in ending(result, plan, ["run", "-c", "my suite.toml", "--fresh"], width):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def _complete(model: str = "qwen3:8b") -> RunOutcome:
    base = Path("results/sweep/supergpqa_m")
    return RunOutcome(
        "supergpqa",
        model,
        "complete",
        base.with_suffix(".jsonl"),
        base.with_suffix(".summary.json"),
        _summary(model),
    )


def test_the_score_stands_beside_what_it_is_made_of_at_80_columns() -> None:
    text = _shown(_result(0, _complete()))
    for figure in ("60.0% 57–63", "1,190/1,200", "4/2/10", "321", "1.25", "1:02:03"):
        assert figure in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "left_out"),
    [("gsm8k", []), ("natural-reasoning", ["p50 s"]), ("a-benchmark-of-many-words", ["p50 s", "tok/s"])],
)
def test_a_long_name_is_whole_at_80_columns_and_costs_the_least_important_columns(
    name: str, left_out: list[str]
) -> None:
    run = _complete()
    run.benchmark = name
    text = _shown(_result(0, run))
    assert f"  {name} " in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert [title for title in ("p50 s", "tok/s", "wall") if title not in text] == left_out
    for figure in ("60.0% 57–63", "1,190/1,200", "4/2/10", "1:02:03"):
        assert figure in text


def test_pass_at_k_stands_below_its_run_in_order_of_k() -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.pass_at_k = {"pass@10": 0.75, "pass@1": 0.5}
    assert "    pass@1 50.0%  pass@10 75.0%\n" in _shown(_result(0, run))


def test_a_perfect_score_keeps_an_interval_of_some_width() -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.accuracy, run.summary.accuracy_ci95 = 1.0, (0.9979, 1.0)
    text = _shown(_result(0, run))
    assert "100.0% 99.8–100 " in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_a_run_that_did_not_happen_is_in_the_table_with_its_reason() -> None:
    run = RunOutcome(
        "gaia", "qwen3:8b", "unsupported", reason="benchmark gaia [bold]is not here[/bold]\x1b[2J"
    )
    text = _shown(_result(4, _complete(), run), width=120)
    assert "gaia · qwen3:8b: unsupported: benchmark gaia [bold]is not here[/bold]␛[2J" in text
    assert "skipped" in text
    assert "resume" not in text


@pytest.mark.parametrize("code", [3, 130])
def test_a_stopped_sweep_says_how_to_go_on(code: int) -> None:
    assert "resume  evalray run -c 'my suite.toml'\n" in _shown(_result(code, _complete()))


def _failed(benchmark: str, reason: str, summary: RunSummary | None = None) -> RunOutcome:
    return RunOutcome(benchmark, "m", "failed", reason=reason, summary=summary)


def test_what_many_runs_share_is_said_once() -> None:
    result = _result(1, *(_failed(f"b{i}", "the hub cannot be reached") for i in range(12)))
    result.errors = [f"{run.benchmark} on m: {run.reason}" for run in result.runs]
    text = _shown(result, width=200)
    assert text.count("the hub cannot be reached") == 1
    assert "12 runs: failed: the hub cannot be reached" in text
    assert "b0 · m, b1 · m" in text
    assert "and 4 more" in text


def test_an_error_that_is_no_runs_reason_is_said() -> None:
    result = _result(1, _complete())
    result.errors = ["disk full"]
    assert "disk full" in _shown(result)


def test_the_same_warning_of_several_runs_is_said_once() -> None:
    runs = [_complete("a"), _complete("b")]
    for run in runs:
        assert run.summary is not None
        run.summary.warnings = ["row 7 was left out"]
    text = _shown(_result(0, *runs), width=120)
    assert text.count("row 7 was left out") == 1
    assert "supergpqa · a, supergpqa · b" in text


def test_bad_rows_are_told_by_their_warning_and_nothing_else() -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.bad_rows = 1
    run.summary.warnings = ["1 bad row was left out: x.jsonl:3: no answer"]
    assert _shown(_result(0, run), width=120).count("bad row") == 1


@pytest.mark.parametrize(("status", "width"), [("failed", 80), ("partial", 80), ("partial", 160)])
def test_a_row_with_figures_says_that_its_run_is_not_complete(status: str, width: int) -> None:
    run = _complete()
    run.status, run.reason = status, "why"  # type: ignore[assignment]
    table = _shown(_result(1, run), width).split("supergpqa · ")[0]
    assert f"  {status}\n" in table
    assert all(cell_len(line) <= width for line in table.splitlines())
    assert "complete" not in _shown(_result(0, _complete()), width)


def test_answers_from_the_response_cache_are_counted_where_there_are_some() -> None:
    run = _complete()
    assert run.summary is not None
    assert "cache" not in _shown(_result(0, run))
    run.summary.cached_samples = 30
    assert "supergpqa · qwen3:8b: 30 of 1,200 answers from the cache" in _shown(_result(0, run))


@pytest.mark.parametrize(
    ("errors", "end"), [(0, ""), (3, "; 3 answers have no verdict: the same command asks again")]
)
def test_a_judge_that_could_not_be_asked_is_named_with_its_cause(errors: int, end: str) -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.judge_problem = "judge gpt-x: HTTP 503"
    run.summary.outcomes["judge_error"] = errors
    assert f"supergpqa · qwen3:8b: judge gpt-x: HTTP 503{end}\n" in _shown(_result(0, run), width=160)
    run.status, run.reason = "failed", "none of 3 samples could be scored: judge gpt-x: HTTP 503"
    assert _shown(_result(1, run), width=160).count("judge gpt-x: HTTP 503") == 1


@pytest.mark.parametrize(
    ("scored", "closing"),
    [
        (None, "1 of 1 run failed: 1 could not start"),
        (0, "1 of 1 run failed: 1 without one scored sample"),
        (5, "1 of 1 run failed: 1 with too many errors"),
    ],
)
def test_the_closing_word_says_how_runs_failed(scored: int | None, closing: str) -> None:
    summary = None
    if scored is not None:
        summary = _summary()
        summary.scored_samples = scored
    text = _shown(_result(1, _failed("b", "why", summary)), width=120)
    assert closing in text
    assert "resume" not in text
    assert "again   evalray run -c 'my suite.toml'" in text


def test_a_store_that_lacks_the_sweep_is_not_offered() -> None:
    result = _result(0, _complete())
    assert "evalray ui" in _shown(result, width=200)
    result.untracked = "MLflow at http://h:1 cannot be reached; `evalray mlflow sync x` refills it"
    text = _shown(result, width=200)
    assert "evalray ui" not in text
    assert "mlflow  MLflow at http://h:1 cannot be reached; `evalray mlflow sync x` refills it" in text


def test_two_runs_of_one_cell_are_told_apart_by_their_fingerprints() -> None:
    runs = [_complete(), _complete()]
    for run, fingerprint in zip(runs, ("1a2b3c", "9f8e7d"), strict=True):
        assert run.summary is not None
        run.summary.fingerprint = fingerprint
        run.summary.warnings = [f"of {fingerprint}"]
    text = _shown(_result(0, *runs))
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert text.count(" #1a2b") == 3
    assert "  #1a2b, #9f8e: the runs of qwen3:8b on supergpqa by their fingerprints" in text
    assert "supergpqa #9f8e · qwen3:8b: of 9f8e7d" in text


def test_the_last_words_say_what_is_kept_and_how_to_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(args=["run", "-c", "my suite.toml", "--fresh"])
    progress = SweepProgress("s", "", [RunProgress("gsm8k", "m", "running")])
    last_words(report, progress)
    said = capfd.readouterr().err
    assert "what is done is kept\n" in said
    assert "resume  evalray run -c 'my suite.toml'\n" in said
    assert report.exit_code == 130
    assert [run["status"] for run in report.fields["runs"]] == ["partial"]


def test_the_command_to_resume_would_not_start_anew() -> None:
    assert resume_command(["run", "--fresh", "-c", "x.toml"]) == "evalray run -c x.toml"


def test_a_sweep_of_which_nothing_could_run_is_not_said_to_be_done() -> None:
    result = _result(4, RunOutcome("gaia", "m", "unsupported", reason="not here"))
    result.nothing_ran = True
    assert "nothing could run: all of the suite was skipped" in _shown(result)


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["run", "-c", "x.toml"], "evalray run -c x.toml --max-tokens-total 200"),
        (["run", "--max-tokens-total", "90", "-c", "x"], "evalray run -c x --max-tokens-total 200"),
        (["run", "--max-tokens-total=90", "-c", "x"], "evalray run -c x --max-tokens-total 200"),
    ],
)
def test_after_a_budget_the_command_to_resume_has_a_larger_one(args: list[str], command: str) -> None:
    assert resume_command(args, {"--max-tokens-total": 200}) == command
    assert resume_command(["run"], {"--max-cost-usd": 0.25}) == "evalray run --max-cost-usd 0.25"


def test_a_sweep_that_its_budget_stopped_says_what_continues_it() -> None:
    run = _complete()
    run.status, run.reason = "partial", "budget reached: 90 tokens of max_tokens_total = 90"
    result = _result(4, run)
    result.larger_budget = {"--max-tokens-total": 180}
    text = _shown(result, width=200)
    assert "resume  evalray run -c 'my suite.toml' --max-tokens-total 180\n" in text
    assert "what was used before counts: any budget that is larger will do" in text


def test_the_report_for_programs_has_absolute_paths_and_every_outcome() -> None:
    fields = json.loads(
        json.dumps(report_fields(_result(0, _complete(), RunOutcome("b", "m", "skipped", reason="r"))))
    )
    done, skipped = fields["runs"]
    assert Path(fields["dir"]).is_absolute()
    assert Path(done["results"]).is_absolute()
    assert Path(done["summary"]).is_absolute()
    assert done["outcomes"]["engine_error"] == 10
    assert (skipped["results"], skipped["accuracy"], skipped["outcomes"]) == (None, None, {})


def test_what_a_scorer_says_beside_the_accuracy_is_shown() -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.scorer_rates = {"win_or_tie_both_orders": 0.0, "position_bias_rate": 1.0, "unknown": None}
    text = _shown(_result(0, run))
    assert "win or tie both orders 0.0%, position bias rate 100.0%" in text
    assert "unknown" not in text


def test_idle_energy_that_was_not_measured_is_not_shown_as_zero() -> None:
    run = _complete()
    assert run.summary is not None
    run.summary.energy_method, run.summary.total_energy_joules = "hw_counter", 12.5
    text = _shown(_result(0, run))
    assert "12.5 J" in text
    assert "idle" not in text
