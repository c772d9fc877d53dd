from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evalray.errors import StoreError
from evalray.stats import clustered_standard_error, clustered_wilson_interval, wilson_interval
from evalray.store import SweepStore, finalize_run, iter_results, read_summary
from evalray.types import EvalRecord, EvalResult, Generation, Outcome, Score, Timeline

RECORD = EvalRecord("r0", "p", "a", "c")
SAMPLE_RESULTS = Path(__file__).parents[3] / "shared" / "data" / "openjarvis" / "results"


def _one(driver, generation, score=None, *, record=RECORD, **changes):
    """A run of a single sample: its row and its summary."""
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1, pass_k=[], **changes)
        run.append_generation(0, 0, 1, record, generation)
        if score is not None:
            run.append_score(0, 0, record.record_id, score)
        summary = run.finalize()
        (row,) = iter_results(run.results_path)
        assert list(iter_results(run.parquet_path)) == [row]
        assert read_summary(run.summary_path) == summary
    return row, summary


def _many(driver, outcomes, *, planned=None, **changes):
    """A run with these outcomes in order; ``None`` is a sample that was not attempted."""
    with SweepStore.open(driver.directory) as sweep:
        options = {"num_records": planned or len(outcomes), "epochs": 1, "pass_k": [], **changes}
        run = driver.open(sweep, **options)
        for slot, outcome in enumerate(outcomes):
            position, epoch = divmod(slot, options["epochs"])
            if outcome is None:
                continue
            failed = outcome is Outcome.ENGINE_ERROR
            generation = Generation(model_answer="a", error="down" if failed else None)
            run.append_generation(position, epoch, 1, EvalRecord(f"r{position}", "p", "a", "c"), generation)
            if not failed:
                run.append_score(position, epoch, f"r{position}", Score(outcome))
        return run.finalize()


RIGHT, WRONG, UNPARSED, TRUNCATED = Outcome.CORRECT, Outcome.INCORRECT, Outcome.UNPARSED, Outcome.TRUNCATED
ENGINE, JUDGE, SCORER = Outcome.ENGINE_ERROR, Outcome.JUDGE_ERROR, Outcome.SCORER_ERROR


def test_a_row_joins_record_generation_and_score(driver):
    timeline = Timeline(
        sent_at=5.0,
        completed_at=7.0,
        queue_seconds=0.25,
        latency_seconds=2.0,
        ttft_seconds=0.5,
        decode_seconds=1.5,
        itl_mean_seconds=0.01,
        itl_p99_seconds=0.04,
    )
    generation = Generation(
        raw_text="<think>t</think>42",
        model_answer="42",
        reasoning="t",
        finish_reason="stop",
        prompt_tokens=7,
        completion_tokens=10,
        timeline=timeline,
        engine_id="m/1",
        cost_usd=0.5,
        attempts=2,
    )
    record = EvalRecord("id-1", "What?", "42", "math", "algebra", {"level": 3})
    row, _ = _one(driver, generation, Score(Outcome.CORRECT, metadata={"rule": "x"}), record=record)
    expected = EvalResult(
        "id-1",
        benchmark="b",
        model="m",
        backend="jarvis-direct",
        model_answer="42",
        is_correct=True,
        score=1.0,
        latency_seconds=2.0,
        prompt_tokens=7,
        completion_tokens=10,
        cost_usd=0.5,
        scoring_metadata={"rule": "x"},
        ttft=0.5,
        throughput_tok_per_sec=5.0,
        mean_itl_ms=10.0,
        outcome="correct",
        prompt="What?",
        reference="42",
        category="math",
        subject="algebra",
        record_metadata={"level": 3},
        raw_text="<think>t</think>42",
        reasoning="t",
        finish_reason="stop",
        queue_seconds=0.25,
        decode_seconds=1.5,
        itl_p99_ms=40.0,
        sent_at=5.0,
        completed_at=7.0,
        engine="mock",
        engine_id="m/1",
        attempts=2,
    )
    assert row == expected


def test_rows_carry_the_seeds_names_first_and_every_field(driver):
    _one(driver, Generation(model_answer="a"), Score(RIGHT))
    row = json.loads((driver.directory / "b_m.jsonl").read_text())
    assert list(row) == [f.name for f in fields(EvalResult)]
    assert row["latency_seconds"] is None
    assert row["energy_joules"] is None


def test_a_judges_account_is_kept_with_the_score(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1, pass_k=[])
        run.append_generation(0, 0, 1, RECORD, Generation(model_answer="a"))
        run.append_score(0, 0, "r0", Score(RIGHT, score=0.75, metadata={"x": 1}), judge={"tokens": 9})
        run.finalize()
        (row,) = iter_results(run.results_path)
    assert row.scoring_metadata == {"x": 1, "judge": {"tokens": 9}}
    assert row.score == 0.75


@pytest.mark.parametrize(
    ("text", "exported"),
    [
        ("half \ud835 a character", "half \ufffd a character"),
        ("nul \x00 and \x1b[31m escape", "nul \x00 and \x1b[31m escape"),
        ("lines\r\n\u2028\u0085 more", "lines\r\n\u2028\u0085 more"),
        ("", ""),
        ("界😀", "界😀"),
    ],
)
def test_any_model_text_is_exported_one_row_a_line(driver, text, exported):
    record = EvalRecord("r0", text, text, "c", metadata={"k": text})
    row, _ = _one(driver, Generation(raw_text=text, model_answer=text), Score(RIGHT), record=record)
    assert row.model_answer == row.raw_text == row.prompt == row.record_metadata["k"] == exported
    assert len((driver.directory / "b_m.jsonl").read_text().splitlines()) == 1


def test_a_ten_megabyte_answer_is_kept_whole(driver):
    text = "long é " * 1_500_000
    row, _ = _one(driver, Generation(raw_text=text, model_answer=text), Score(UNPARSED))
    assert row.model_answer == text


def test_figures_that_are_no_numbers_were_not_measured(driver):
    generation = Generation(
        model_answer="a",
        prompt_tokens="many",
        completion_tokens=3.0,
        cached_tokens=10**30,
        cost_usd=math.nan,
        timeline=Timeline(latency_seconds=math.inf, ttft_seconds=-1e-9),
    )
    row, summary = _one(driver, generation, Score(RIGHT, metadata={"similarity": math.nan}))
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.cost_usd) == (
        None,
        3,
        None,
        None,
    )
    assert row.latency_seconds is None
    assert row.scoring_metadata == {"similarity": None}
    assert summary.total_cost_usd is None
    assert "NaN" not in (driver.directory / "b_m.summary.json").read_text()


def test_a_count_beyond_any_float_was_not_measured(driver):
    generation = Generation(
        model_answer="a", completion_tokens=10**400, timeline=Timeline(latency_seconds=2.0)
    )
    row, summary = _one(driver, generation, Score(RIGHT))
    assert (row.completion_tokens, row.throughput_tok_per_sec) == (None, None)
    assert summary.accuracy == 1.0


@pytest.mark.parametrize("sent", [None, {}, {"max_tokens": 16, "not_sent": ["temperature"]}])
def test_what_was_sent_to_a_vendor_is_in_the_row(driver, sent):
    row, _ = _one(driver, Generation(model_answer="a", request_params=sent), Score(RIGHT))
    assert row.request_params == sent


def test_not_a_number_in_a_journal_of_other_hands_is_read(driver):
    _one(driver, Generation(model_answer="a"), Score(RIGHT))
    path = driver.directory / "b_m" / "generations.jsonl"
    line = json.loads(path.read_text())
    del line["crc"]
    line["generation"]["cost_usd"] = math.nan
    path.write_text(json.dumps(line) + "\n")
    finalize_run(driver.directory / "b_m")
    (row,) = iter_results(driver.directory / "b_m.jsonl")
    assert (row.outcome, row.cost_usd) == ("correct", None)


def test_skipped_samples_have_rows_with_their_reason(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=3, epochs=1, pass_k=[])
        run.append_generation(1, 0, 1, RECORD, Generation(model_answer="a"))
        run.append_score(1, 0, "r0", Score(RIGHT))
        run.write_skipped((p, 0, EvalRecord(f"r{p}", "p", "a", "c", "s"), "interrupted") for p in range(3))
        summary = run.finalize()
        rows = list(iter_results(run.results_path))
        assert [(r.position, r.outcome, r.error) for r in rows] == [
            (0, "skipped", "interrupted"),
            (1, "correct", None),
            (2, "skipped", "interrupted"),
        ]
        assert summary.outcomes["skipped"] == 2
        assert (summary.total_samples, summary.planned_samples, summary.status) == (1, 3, "partial")
        assert summary.per_subject == {"s": {"accuracy": None, "total": 0, "scored": 0, "correct": 0}}
        run.write_skipped([])
        assert not (run.directory / "skipped.jsonl").exists()


def test_samples_a_kill_left_without_a_trace_are_counted_as_skipped(driver):
    summary = _many(driver, [RIGHT, WRONG], planned=10)
    assert summary.outcomes["skipped"] == 8
    assert sum(summary.outcomes.values()) == summary.planned_samples == 10
    assert summary.status == "partial"


def test_every_outcome_is_counted_and_only_graded_ones_are_in_the_accuracy(driver):
    outcomes = [RIGHT] * 5 + [WRONG] * 3 + [UNPARSED] * 1 + [TRUNCATED] * 1 + [ENGINE, JUDGE, SCORER]
    summary = _many(driver, outcomes, max_error_rate=0.5)
    assert summary.outcomes == {str(o): n for o, n in Counter(outcomes).items()} | {"skipped": 0}
    assert (summary.total_samples, summary.scored_samples, summary.correct, summary.errors) == (13, 10, 5, 3)
    assert summary.accuracy == 0.5
    assert summary.accuracy_parsed == summary.accuracy_completed == 5 / 9
    assert summary.truncated_rate == 0.1
    assert summary.accuracy_stderr == pytest.approx(math.sqrt(0.25 / 9))
    assert summary.accuracy_ci95 == pytest.approx(wilson_interval(5, 10))
    assert summary.status == "complete"


@pytest.mark.parametrize(
    ("outcomes", "planned", "status"),
    [
        ([RIGHT] * 9 + [ENGINE], 10, "complete"),
        ([RIGHT] * 8 + [ENGINE] * 2, 10, "failed"),
        ([RIGHT] * 8 + [JUDGE, SCORER], 10, "failed"),
        ([ENGINE] * 3, 3, "failed"),
        ([ENGINE] * 3, 100, "failed"),
        ([WRONG] * 3, 3, "complete"),
        ([WRONG] * 3, 4, "partial"),
        ([None] * 3, 3, "partial"),
    ],
)
def test_a_run_fails_by_its_errors_and_never_by_wrong_answers(driver, outcomes, planned, status):
    assert _many(driver, outcomes, planned=planned).status == status


def test_no_records_is_a_failed_run_with_files(driver):
    with SweepStore.open(driver.directory) as sweep:
        summary = driver.open(sweep, num_records=0).finalize()
    assert (summary.status, summary.accuracy, summary.accuracy_ci95) == ("failed", None, None)
    assert "no records" in summary.warnings[0]
    assert list(iter_results(driver.directory / "b_m.parquet")) == []


def test_the_time_a_failed_request_took_is_not_in_the_latency(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=2, epochs=1, pass_k=[])
        for position, error in enumerate((None, "timeout")):
            timeline = Timeline(latency_seconds=1.0 if error is None else 600.0)
            run.append_generation(
                position, 0, 1, RECORD, Generation(model_answer="a", error=error, timeline=timeline)
            )
        run.append_score(0, 0, "r0", Score(RIGHT))
        summary = run.finalize()
    assert summary.mean_latency_seconds == 1.0
    assert summary.latency_stats.n == 1


def test_subjects_are_broken_down(undisturbed):
    summary = read_summary(undisturbed[0] / "b_m.summary.json")
    rows = list(iter_results(undisturbed[0] / "b_m.jsonl"))
    assert set(summary.per_subject) == {"algebra", "biology"}
    for subject, figures in summary.per_subject.items():
        mine = [row for row in rows if row.subject == subject]
        right = sum(row.is_correct is True for row in mine)
        assert figures == {"accuracy": right / 6, "total": 6, "scored": 6, "correct": right}


def test_epochs_are_clustered_by_record(undisturbed):
    summary = read_summary(undisturbed[0] / "b_m.summary.json")
    rows = list(iter_results(undisturbed[0] / "b_m.jsonl"))
    error = clustered_standard_error([row.score for row in rows], [row.record_id for row in rows])
    assert summary.accuracy_stderr == pytest.approx(error)
    assert summary.accuracy_ci95 == clustered_wilson_interval(
        [row.score for row in rows], [row.record_id for row in rows]
    )


def test_one_right_answer_among_many_epochs_does_not_narrow_the_interval_to_nothing(driver):
    summary = _many(driver, [RIGHT, RIGHT] + [WRONG] * 38, planned=20, epochs=2)
    low, high = summary.accuracy_ci95
    assert low > 0
    assert high > wilson_interval(1, 20)[1] - 0.01


def test_all_right_in_every_epoch_still_has_an_interval(driver):
    summary = _many(driver, [RIGHT] * 8, planned=4, epochs=2)
    assert summary.accuracy_ci95 == wilson_interval(4, 4)


def test_pass_at_k_averages_over_records(driver):
    summary = _many(driver, [RIGHT, WRONG, WRONG, WRONG], planned=2, epochs=2, pass_k=[1, 2])
    assert summary.pass_at_k == {"1": 0.25, "2": 0.5}
    assert not [w for w in summary.warnings if "pass@" in w]


def test_pass_at_k_of_too_few_epochs_is_unknown_and_says_so(driver):
    summary = _many(driver, [WRONG, WRONG], planned=1, epochs=2, pass_k=[5])
    assert summary.pass_at_k == {"5": None}
    assert "fewer than 5 scored epochs so it cannot be estimated" in summary.warnings[-1]


def test_pass_at_k_leaves_out_records_with_failed_epochs_and_says_so(driver):
    outcomes = [RIGHT, WRONG, WRONG, ENGINE]
    summary = _many(driver, outcomes, planned=2, epochs=2, pass_k=[2], max_error_rate=1)
    assert summary.pass_at_k == {"2": 1.0}
    assert "1 of 2 records has fewer than 2 scored epochs and is left out" in summary.warnings[-1]


def test_what_spoils_a_score_is_warned_of(driver):
    info = {"bad_rows": 3, "warnings": ["duplicate ids", "3 bad rows were left out: x:1: y"]}
    summary = _many(driver, [RIGHT] * 97 + [TRUNCATED] * 2 + [UNPARSED], info=info)
    assert summary.warnings == [
        "duplicate ids",
        "3 bad rows were left out: x:1: y",
        "2.0% of the scored samples are truncated (2): raise max_tokens",
    ]
    assert summary.bad_rows == 3


def test_a_summary_reads_back_as_it_was(undisturbed, comparable):
    path = undisturbed[0] / "b_m.summary.json"
    assert comparable(read_summary(path)) == undisturbed[1]
    assert json.loads(path.read_text())["latency_stats"]["p99"] == pytest.approx(0.5495, abs=1e-3)


def test_finalizing_again_changes_nothing(driver):
    driver.execute()
    files = sorted(p for p in driver.directory.iterdir() if p.name.startswith("b_m."))
    before = [path.read_bytes() for path in files]
    finalize_run(driver.directory / "b_m")
    assert len(files) == 3
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("size", [1500, 9000, 20000])
def test_a_full_disk_keeps_the_old_results(driver, file_size_limit, size):
    driver.execute()
    files = sorted(driver.directory.glob("b_m.*"))
    before = [path.read_bytes() for path in files]
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, scorer="s2", num_records=60)
        driver.work(run)
        with file_size_limit(size), pytest.raises(StoreError, match="b_m"):
            run.finalize()
    assert [path.read_bytes() for path in files] == before
    assert sorted(p.name for p in driver.directory.iterdir()) == sorted(
        [".lock", "b_m", *(path.name for path in files)]
    )


def test_a_disk_one_byte_too_small_leaves_no_mixture_of_old_and_new(driver, file_size_limit):
    driver.execute(num_records=60)
    grown = (driver.directory / "b_m.jsonl").stat().st_size
    driver.execute(num_records=6)
    before = {path: path.read_bytes() for path in driver.directory.glob("b_m.*")}
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=60)
        with file_size_limit(grown - 1), pytest.raises(StoreError, match="b_m"):
            run.finalize()
    assert {path: path.read_bytes() for path in driver.directory.glob("b_m.*")} == before


def test_many_row_groups_read_as_one(driver, monkeypatch):
    import evalray.store.finalize as finalize

    real = finalize.RowWriter
    monkeypatch.setattr(finalize, "RowWriter", lambda *files: real(*files, group_rows=5))
    summary = driver.execute()
    file = pq.ParquetFile(driver.directory / "b_m.parquet")
    assert file.num_row_groups == 3
    assert summary.scored_samples == 12
    assert set(summary.per_subject) == {"algebra", "biology"}
    assert list(iter_results(driver.directory / "b_m.parquet")) == list(
        iter_results(driver.directory / "b_m.jsonl")
    )


def test_reading_something_else_says_so(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"record_id": "a"}\n{"n": 1}\n')
    (tmp_path / "x.parquet").write_text("no")
    (tmp_path / "x.json").write_text('{"n": 1}')
    with pytest.raises(StoreError, match=r"x\.jsonl:2: not a result row"):
        list(iter_results(tmp_path / "x.jsonl"))
    with pytest.raises(StoreError, match=r"x\.parquet: not a readable Parquet"):
        list(iter_results(tmp_path / "x.parquet"))
    with pytest.raises(StoreError, match="not a run summary"):
        read_summary(tmp_path / "x.json")
    with pytest.raises(StoreError, match=r"run\.json"):
        finalize_run(tmp_path)


@pytest.mark.skipif(not SAMPLE_RESULTS.exists(), reason="OpenJarvis's sample files are not here")
def test_openjarvis_results_are_read():
    rows = list(iter_results(SAMPLE_RESULTS / "supergpqa_qwen3-8b.jsonl"))
    summary = read_summary(SAMPLE_RESULTS / "supergpqa_qwen3-8b.summary.json")
    assert len(rows) == summary.total_samples == 8
    assert sum(row.is_correct is True for row in rows) == summary.correct
    assert summary.latency_stats.n == summary.total_samples


MEMORY = """
import sys
from pathlib import Path
from evalray.store import SweepStore
from evalray.types import EvalRecord, Generation, Outcome, RunConfig, Score
count = int(sys.argv[2])
with SweepStore.open(Path(sys.argv[1])) as sweep:
    run = sweep.open_run(RunConfig("b", "d", "m"), fingerprint="f" * 32, scorer_fingerprint="s",
                         num_records=count, info={})
    for i in range(count):
        run.append_generation(i, 0, 1, EvalRecord(f"r{i}", "question " * 40, "a", "c", f"s{i % 9}"),
                              Generation(raw_text="answer " * 100, model_answer="answer " * 100))
        run.append_score(i, 0, f"r{i}", Score(Outcome.CORRECT))
        if i % 8 == 0:
            run.flush()
    assert run.finalize().correct == count
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_follow_the_number_of_records(tmp_path):
    peaks = [
        int(subprocess.check_output([sys.executable, "-c", MEMORY, str(tmp_path / str(n)), str(n)])) / 1024
        for n in (2_000, 200_000)
    ]
    assert peaks[1] - peaks[0] <= 30, "a sweep of any size has to fit beside the engines"


def test_the_summary_holds_nothing_but_json(undisturbed):
    path = undisturbed[0] / "b_m.summary.json"
    value = json.loads(path.read_text(), parse_constant=lambda c: pytest.fail(c))
    assert set(value) == set(asdict(read_summary(path)))


_KWH = {"energy_joules": 3.6e6}


@pytest.mark.parametrize(
    ("grid", "telemetry", "idle", "gco2e"),
    [
        (400.0, _KWH, None, 400.0),
        (400.0, _KWH, 1.8e6, 600.0),
        (None, _KWH, 1.8e6, None),
        # Not measured is not nothing.
        (400.0, None, None, None),
        (400.0, None, 1.8e6, None),
    ],
)
def test_emissions_are_of_own_and_idle_energy_at_the_intensity_that_was_given(
    driver, grid, telemetry, idle, gco2e
):
    folder = driver.directory / "b_m" / "telemetry"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"idle_joules": idle}))
    generation = Generation(model_answer="a", telemetry=telemetry)
    _, summary = _one(driver, generation, Score(RIGHT), grid=grid)
    assert (summary.gco2e, summary.grid_gco2e_per_kwh) == (gco2e, grid)


def test_another_intensity_is_the_same_run_and_another_figure(driver):
    generation = Generation(model_answer="a", telemetry=_KWH)
    _, first = _one(driver, generation, Score(RIGHT), grid=400.0)
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1, pass_k=[], grid=100.0)
        assert run.generation_done(0, 0)
        second = run.finalize()
    assert (first.gco2e, second.gco2e) == (400.0, 100.0)
    assert first.fingerprint == second.fingerprint
    assert finalize_run(driver.directory / "b_m") == second
