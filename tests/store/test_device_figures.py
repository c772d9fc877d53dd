"""Device figures beside a run's journals, joined to its rows; what was not measured is None there and never 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalray.store import SweepStore, finalize_run, iter_results
from evalray.store.device_figures import DeviceFigures, set_ratios
from evalray.types import EvalRecord, EvalResult, Generation, Outcome, RunSummary, Score, Timeline

_DEVICE_FIELDS = (
    "energy_joules", "prefill_energy_joules", "gpu_energy_joules", "power_watts", "gpu_utilization_pct", "mfu_pct",
    "mbu_pct", "ipw", "ipj", "energy_per_output_token_joules", "throughput_per_watt", "flops", "estimated_flops",
    "energy_coverage", "counter_updates", "energy_low_resolution", "gpu_seconds", "energy_method", "warmup",
)  # fmt: skip
_SUMMARY_FIELDS = (
    "total_energy_joules", "idle_joules", "device_joules", "avg_power_watts", "peak_power_watts", "joules_per_correct",
    "tokens_per_joule", "accuracy_per_watt", "energy_invalid_seconds", "steady_state_joules_per_token", "mfu_pct",
    "mbu_pct", "total_flops", "energy_stats", "power_stats", "ipj_stats", "ipw_stats", "mfu_stats",
)  # fmt: skip


def _line(position: int, *, epoch: int = 0, sent_at: float | None = None, **figures: Any) -> dict[str, Any]:
    at = 100.0 + position if sent_at is None else sent_at
    return {"position": position, "epoch": epoch, "sent_at": at, **figures}


def _write(run: Path, lines: list[dict[str, Any]] | None, about: dict[str, Any] | None = None) -> None:
    folder = run / "telemetry"
    folder.mkdir(parents=True, exist_ok=True)
    if lines is not None:
        names = dict.fromkeys(name for line in lines for name in line)
        columns = {name: [line.get(name) for line in lines] for name in names}
        pq.write_table(pa.table(columns), folder / "samples.parquet")
    if about is not None:
        (folder / "run.json").write_text(json.dumps(about))


def _row(position: int = 0, **more: Any) -> EvalResult:
    return EvalResult(f"r{position}", position=position, **{"sent_at": 100.0 + position, **more})


def _joined(run: Path, row: EvalResult) -> EvalResult:
    DeviceFigures.read(run).join(row)
    return row


# -- one row ----------------------------------------------------------------------------------------


def test_a_row_takes_the_figures_of_its_request_and_what_follows_from_them(tmp_path: Path) -> None:
    figures = {"energy_joules": 20.0, "power_watts": 40.0, "flops": 8.0, "energy_low_resolution": True,
               "telemetry_version": 1, "energy_method": "hw_counter", "warmup": False}  # fmt: skip
    _write(tmp_path, [_line(0, energy_joules=1.0), _line(1, **figures)])
    row = _joined(tmp_path, _row(1, completion_tokens=10, throughput_tok_per_sec=8.0, score=0.5))
    assert {name: getattr(row, name) for name in figures} == figures
    assert type(row.telemetry_version) is int
    assert (row.energy_per_output_token_joules, row.throughput_per_watt, row.estimated_flops) == (
        2.0,
        0.2,
        8.0,
    )
    assert (row.ipw, row.ipj) == (0.5 / 40.0, 0.5 / 20.0)


def test_a_wrong_answer_has_intelligence_of_0_and_an_ungraded_one_none(tmp_path: Path) -> None:
    _write(tmp_path, [_line(0, energy_joules=20.0, power_watts=40.0)])
    wrong, ungraded = _joined(tmp_path, _row(score=0.0)), _joined(tmp_path, _row(score=None))
    assert (wrong.ipw, wrong.ipj) == (0.0, 0.0)
    assert (ungraded.ipw, ungraded.ipj, ungraded.energy_joules) == (None, None, 20.0)


@pytest.mark.parametrize(
    "row",
    [
        _row(sent_at=None),
        _row(sent_at=100.5),
        _row(1),
        _row(epoch=1),
        _row(cached=True),
    ],
    ids=["never sent", "another attempt", "another sample", "another epoch", "from the cache"],
)
def test_a_row_of_another_request_takes_nothing(tmp_path: Path, row: EvalResult) -> None:
    _write(tmp_path, [_line(0, energy_joules=20.0, power_watts=40.0, flops=8.0)])
    _joined(tmp_path, row)
    assert {name: getattr(row, name) for name in _DEVICE_FIELDS} == dict.fromkeys(_DEVICE_FIELDS)


def test_of_a_sample_that_was_tried_again_the_figures_of_the_standing_try_count(tmp_path: Path) -> None:
    _write(tmp_path, [_line(0, sent_at=100.0, energy_joules=1.0), _line(0, sent_at=200.0, energy_joules=2.0)])
    assert _joined(tmp_path, _row(sent_at=200.0)).energy_joules == 2.0
    assert _joined(tmp_path, _row(sent_at=100.0)).energy_joules == 1.0


def test_the_last_of_two_lines_on_one_request_counts(tmp_path: Path) -> None:
    _write(tmp_path, [_line(0, energy_joules=1.0), _line(0, energy_joules=3.0)])
    assert _joined(tmp_path, _row()).energy_joules == 3.0


def test_null_and_nan_are_not_measured_and_a_zero_is(tmp_path: Path) -> None:
    nothing = {"energy_joules": None, "power_watts": float("nan"), "mfu_pct": 0.0, "energy_method": None}
    _write(
        tmp_path,
        [_line(0, **nothing), _line(1, energy_joules=1.0, power_watts=1.0, mfu_pct=1.0, energy_method="x")],
    )
    row = _joined(tmp_path, _row(completion_tokens=5, score=1.0, throughput_tok_per_sec=3.0))
    assert (row.energy_joules, row.power_watts, row.energy_method) == (None, None, None)
    assert (row.ipw, row.ipj, row.energy_per_output_token_joules, row.throughput_per_watt) == (None,) * 4
    assert row.mfu_pct == 0.0


def test_no_ratio_is_made_with_a_measured_zero(tmp_path: Path) -> None:
    row = _row(energy_joules=0.0, power_watts=0.0, completion_tokens=0, score=1.0, throughput_tok_per_sec=3.0)
    set_ratios(row)
    assert (row.ipw, row.ipj, row.energy_per_output_token_joules, row.throughput_per_watt) == (None,) * 4


def test_ratios_that_came_with_a_row_are_kept() -> None:
    row = _row(energy_joules=2.0, power_watts=4.0, completion_tokens=1, score=1.0, ipw=9.0, ipj=8.0)
    set_ratios(row)
    assert (row.ipw, row.ipj) == (9.0, 8.0)


# -- the files --------------------------------------------------------------------------------------


def _break(folder: Path, case: str) -> None:
    folder.mkdir(parents=True)
    samples, run = folder / "samples.parquet", folder / "run.json"
    if case == "no parquet":
        samples.write_bytes(b"PAR1 but not really")
    elif case == "cut short":
        pq.write_table(pa.Table.from_pylist([_line(0, energy_joules=1.0)]), samples)
        samples.write_bytes(samples.read_bytes()[:-20])
    elif case == "empty":
        samples.write_bytes(b"")
    elif case == "columns missing":
        pq.write_table(pa.Table.from_pylist([{"energy_joules": 1.0}]), samples)
    elif case == "no JSON":
        run.write_text("{")
    elif case == "no text":
        run.write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize(
    "case", ["no parquet", "cut short", "empty", "columns missing", "no JSON", "no text"]
)
def test_a_broken_file_leaves_figures_unmeasured_with_a_warning(tmp_path: Path, case: str) -> None:
    _break(tmp_path / "telemetry", case)
    figures = DeviceFigures.read(tmp_path)
    assert len(figures.problems) == 1
    assert "device figures are missing" in figures.problems[0]
    row = _row()
    figures.join(row)
    assert row.energy_joules is None
    assert figures.run == {}


@pytest.mark.parametrize("content", ["[]", "3", "null"])
def test_a_file_that_holds_no_object_says_nothing_of_the_run(tmp_path: Path, content: str) -> None:
    _write(tmp_path, [_line(0, energy_joules=1.0)])
    (tmp_path / "telemetry" / "run.json").write_text(content)
    figures = DeviceFigures.read(tmp_path)
    assert (figures.run, figures.problems) == ({}, [])


def test_a_run_without_telemetry_has_no_figures_and_no_problem(tmp_path: Path) -> None:
    figures = DeviceFigures.read(tmp_path)
    assert (figures.run, figures.problems) == ({}, [])


# -- rows and summary of a whole run ----------------------------------------------------------------


_OUTCOMES = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.CORRECT, Outcome.UNPARSED, None, Outcome.CORRECT)


def _finished_run(driver: Any) -> Path:
    """Six samples sent at 100 s and on: right, wrong, right, unparsed, failed, right from the cache."""
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=6, epochs=1, pass_k=[], max_error_rate=0.5)
        for position, outcome in enumerate(_OUTCOMES):
            generation = Generation(
                model_answer="a",
                completion_tokens=10,
                timeline=Timeline(sent_at=100.0 + position, latency_seconds=1.0),
                error=None if outcome else "boom",
                error_kind=None if outcome else "server_error",
                cached=True if position == 5 else None,
            )
            run.append_generation(position, 0, 1, EvalRecord(f"r{position}", "Q?", "a", "chat"), generation)
            if outcome:
                run.append_score(position, 0, f"r{position}", Score(outcome))
        run.finalize()
        directory: Path = run.directory
    return directory


def _summary(run: Path) -> tuple[RunSummary, list[EvalResult]]:
    summary = finalize_run(run)
    return summary, list(iter_results(run.with_name(f"{run.name}.parquet")))


def test_totals_are_over_wrong_and_failed_answers_too_and_cached_ones_have_none(driver: Any) -> None:
    run = _finished_run(driver)
    lines = [_line(position, energy_joules=10.0, power_watts=20.0, flops=4.0) for position in range(6)]
    _write(run, lines, {"avg_power_watts": 50.0, "idle_joules": 7.0, "steady": {"joules_per_token": 0.25}})
    summary, rows = _summary(run)
    assert [row.energy_joules for row in rows] == [10.0] * 5 + [None]
    assert (rows[4].outcome, rows[4].ipj) == ("engine_error", None)
    assert (summary.total_energy_joules, summary.total_flops) == (50.0, 20.0)
    assert summary.joules_per_correct == 25.0
    assert summary.accuracy_per_watt == pytest.approx((summary.accuracy or 0.0) / 50.0)
    assert (summary.idle_joules, summary.steady_state_joules_per_token) == (7.0, 0.25)
    assert summary.ipj_stats is not None
    assert (summary.ipj_stats.n, summary.ipj_stats.mean) == (4, pytest.approx(0.05))


def test_warm_up_samples_keep_their_figures_and_are_in_no_total(driver: Any) -> None:
    run = _finished_run(driver)
    _write(run, [_line(n, energy_joules=10.0 * (1 + n), flops=1.0, warmup=n < 2) for n in range(4)], {})
    summary, rows = _summary(run)
    assert [row.energy_joules for row in rows] == [10.0, 20.0, 30.0, 40.0, None, None]
    assert [row.warmup for row in rows] == [True, True, False, False, None, None]
    assert (summary.total_energy_joules, summary.total_flops, summary.warmup_samples_excluded) == (
        70.0,
        2.0,
        2,
    )
    assert summary.joules_per_correct == 70.0
    assert summary.energy_stats is not None
    assert (summary.energy_stats.n, summary.energy_stats.mean) == (2, 35.0)
    assert summary.scored_samples == 5


@pytest.mark.parametrize(
    ("lines", "about"),
    [
        (None, None),
        ([_line(0, energy_joules=None, flops=None)], {"energy_method": "none", "energy_reason": "no meter"}),
        ([_line(0, energy_joules=None)], {"idle_joules": None, "steady": None, "warnings": None}),
    ],
    ids=["no telemetry", "no meter", "all null"],
)
def test_what_was_not_measured_is_none_in_every_row_and_in_the_summary(
    driver: Any, lines: list[dict[str, Any]] | None, about: dict[str, Any] | None
) -> None:
    run = _finished_run(driver)
    if about is not None:
        _write(run, lines, about)
    summary, rows = _summary(run)
    measured = [name for name in _DEVICE_FIELDS if name not in ("energy_method", "warmup")]
    assert all(getattr(row, name) is None for row in rows for name in measured)
    assert {name: getattr(summary, name) for name in _SUMMARY_FIELDS} == dict.fromkeys(_SUMMARY_FIELDS)
    text = run.with_name(f"{run.name}.jsonl").read_text().splitlines()[0]
    assert {name: json.loads(text)[name] for name in measured} == dict.fromkeys(measured)


def test_a_broken_file_is_a_warning_of_the_summary_and_harms_nothing_else(driver: Any) -> None:
    run = _finished_run(driver)
    _break(run / "telemetry", "cut short")
    summary, rows = _summary(run)
    assert any("device figures are missing" in warning for warning in summary.warnings)
    assert (summary.scored_samples, summary.total_energy_joules, len(rows)) == (5, None, 6)


def test_warnings_of_telemetry_are_the_summarys(driver: Any) -> None:
    run = _finished_run(driver)
    _write(run, [_line(0, energy_joules=1.0)], {"warnings": ["MFU of 120 % is impossible"]})
    assert "MFU of 120 % is impossible" in _summary(run)[0].warnings
