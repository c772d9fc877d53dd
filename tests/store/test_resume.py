"""Nothing is lost, nothing is done twice."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.store import SweepStore, finalize_run, iter_results
from evalray.types import EvalRecord, Generation, Outcome, Score


@settings(max_examples=60, deadline=None)
@given(cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)), twice=st.booleans())
def test_a_kill_at_any_byte_changes_no_figure(undisturbed, new_driver, comparable, cuts, twice):
    original, expected = undisturbed
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "sweep"
        shutil.copytree(original, directory)
        for _ in range(1 + twice):
            for journal, cut in zip(("generations.jsonl", "scores.jsonl"), cuts, strict=True):
                path = directory / "b_m" / journal
                with path.open("rb+") as file:
                    file.truncate(int(cut * path.stat().st_size))
            lines = (directory / "b_m" / "generations.jsonl").read_bytes().count(b"\n")
            driver = new_driver(directory)
            assert comparable(driver.execute()) == expected
            assert len(driver.generated) == 12 - lines
        assert [(r.position, r.epoch) for r in iter_results(directory / "b_m.jsonl")] == [
            (position, epoch) for position in range(6) for epoch in range(2)
        ]


def test_a_finished_run_is_not_touched_again(driver, comparable):
    first = driver.execute()
    assert len(driver.generated) == len(driver.scored) == 12
    again = driver.execute()
    assert len(driver.generated) == len(driver.scored) == 12
    assert comparable(again) == comparable(first)


def test_resumed_outcomes_count_what_was_final_at_opening(driver):
    driver.execute(limit=5)
    with SweepStore.open(driver.directory) as sweep:
        assert sweep.resumed
        run = driver.open(sweep)
        before = run.resumed_outcomes()
        assert before == Counter({"correct": 3, "incorrect": 2})
        driver.work(run)
        assert run.resumed_outcomes() == before


def test_a_failed_request_is_not_done_and_its_last_error_stands(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        record = _record()
        for text in ("first", "second"):
            assert run.append_generation(0, 0, 1, record, Generation(error=text, error_kind="timeout"))
            assert not run.generation_done(0, 0)
        run.finalize()
        (row,) = iter_results(run.results_path)
        assert (row.outcome, row.error, row.error_kind) == ("engine_error", "second", "timeout")
        assert (row.is_correct, row.score) == (None, None)


def test_the_verdict_on_a_failed_request_ends_with_its_retry(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        run.append_generation(0, 0, 1, _record(), Generation(error="down"))
        run.append_score(0, 0, "r0", Score(Outcome.ENGINE_ERROR))
        run.append_generation(0, 0, 2, _record(), Generation(model_answer="a"))
        assert run.finalize().outcomes["engine_error"] == 0
        (row,) = iter_results(run.results_path)
        assert (row.outcome, row.error) == ("skipped", "not scored yet")


def test_a_late_duplicate_is_refused_and_the_first_answer_stands(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        assert run.append_generation(0, 0, 1, _record(), Generation(raw_text="a", model_answer="a"))
        assert not run.append_generation(0, 0, 2, _record(), Generation(raw_text="b", model_answer="b"))
        assert not run.append_generation(0, 0, 2, _record(), Generation(error="late"))
        assert run.append_score(0, 0, "r0", Score(Outcome.CORRECT))
        assert not run.append_score(0, 0, "r0", Score(Outcome.INCORRECT))
        run.finalize()
        (row,) = iter_results(run.results_path)
        assert (row.model_answer, row.outcome) == ("a", "correct")


def test_duplicate_lines_in_the_journal_are_passed_over(driver, comparable):
    expected = comparable(driver.execute())
    for journal in ("generations.jsonl", "scores.jsonl"):
        path = driver.directory / "b_m" / journal
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines, *reversed(lines)]))
    assert comparable(driver.execute()) == expected
    assert len(driver.generated) == 12


def test_a_score_of_a_lost_answer_does_not_grade_another(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        run.append_generation(0, 0, 1, _record(), Generation(raw_text="a", model_answer="a"))
        run.append_score(0, 0, "r0", Score(Outcome.CORRECT))
    (driver.directory / "b_m" / "generations.jsonl").write_bytes(b"")
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        assert not run.generation_done(0, 0)
        run.append_generation(0, 0, 1, _record(), Generation(raw_text="b", model_answer="b"))
        assert not run.score_done(0, 0)
        assert run.append_score(0, 0, "r0", Score(Outcome.INCORRECT))
        assert run.finalize().outcomes["incorrect"] == 1


def test_the_same_answer_after_a_length_stop_is_another_answer(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        answers = (
            Generation(model_answer="a", finish_reason="stop"),
            Generation(model_answer="a", finish_reason="length"),
        )
        run.append_generation(0, 0, 1, _record(), answers[0])
        run.append_score(0, 0, "r0", Score(Outcome.CORRECT))
    (driver.directory / "b_m" / "generations.jsonl").write_bytes(b"")
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=1, epochs=1)
        run.append_generation(0, 0, 1, _record(), answers[1])
        assert [position for position, *_ in run.unscored()] == [0]


@pytest.mark.parametrize("outcome", [Outcome.JUDGE_ERROR, Outcome.SCORER_ERROR])
def test_an_ungraded_sample_is_offered_for_scoring_again(driver, outcome):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=2, epochs=1)
        for position in range(2):
            run.append_generation(position, 0, 1, _record(position), Generation(model_answer="a"))
        run.append_score(0, 0, "r0", Score(outcome, metadata={"error": "boom"}))
        run.append_score(1, 0, "r1", Score(Outcome.CORRECT))
        assert not run.score_done(0, 0)
        ((position, epoch, record, generation),) = run.unscored()
        assert (position, epoch, record, generation.model_answer) == (0, 0, _record(0), "a")
        assert run.finalize().outcomes[outcome] == 1
        row = next(iter_results(run.results_path))
        assert (row.outcome, row.error, row.is_correct) == (outcome, "boom", None)
        run.append_score(0, 0, "r0", Score(Outcome.INCORRECT))
        assert run.finalize().outcomes[outcome] == 0


def test_generations_made_while_scoring_catches_up_are_not_offered_twice(driver):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, num_records=3, epochs=1)
        run.append_generation(0, 0, 1, _record(0), Generation(model_answer="a"))
        backlog = run.unscored()
        run.append_generation(1, 0, 1, _record(1), Generation(model_answer="b"))
        assert [position for position, *_ in backlog] == [0]


def test_a_changed_scorer_scores_all_again_and_generates_nothing(driver, comparable):
    driver.execute()
    second = driver.execute(scorer="s2")
    assert len(driver.generated) == 12
    assert len(driver.scored) == 24
    assert second.scorer_fingerprint == "s2"
    driver.execute(scorer="s1")
    assert len(driver.scored) == 24, "the first scorer's verdicts are still there"


def test_a_changed_scorer_that_has_not_run_yet_has_no_scores(driver):
    driver.execute()
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep, scorer="s2")
        summary = run.finalize()
    assert summary.scored_samples == 0
    assert summary.accuracy is None
    assert summary.outcomes["skipped"] == summary.planned_samples == 12
    assert {row.error for row in iter_results(driver.directory / "b_m.jsonl")} == {"not scored yet"}


def test_a_larger_max_samples_continues_and_a_smaller_one_covers_less(driver, comparable):
    six = driver.execute(num_records=6)
    driver.execute(num_records=9)
    assert len(driver.generated) == 18
    assert comparable(driver.execute(num_records=6)) == comparable(six)
    assert len(list(iter_results(driver.directory / "b_m.jsonl"))) == 12
    assert driver.execute(num_records=9).planned_samples == 18
    assert len(driver.generated) == 18


def test_more_epochs_keep_those_that_are_there(driver):
    driver.execute(epochs=1, pass_k=[])
    driver.execute(epochs=2)
    assert sorted(driver.generated) == [(p, e) for p in range(6) for e in range(2)]


def test_a_damaged_line_is_named_and_its_sample_done_again(driver):
    driver.execute()
    path = driver.directory / "b_m" / "generations.jsonl"
    data = bytearray(path.read_bytes())
    third = [i for i, byte in enumerate(data) if byte == 0x0A][2]
    data[third - 40] ^= 1
    path.write_bytes(data)
    summary = finalize_run(driver.directory / "b_m")
    assert summary.outcomes["skipped"] == 1
    assert any("generations.jsonl: 1 damaged line passed over (line 3)" in w for w in summary.warnings)
    assert driver.execute().status == "complete"
    assert driver.generated.count((1, 0)) == 2


def test_wall_time_is_the_sum_of_the_active_stretches(driver, monkeypatch):
    import evalray.store.activity as activity
    import evalray.store.run as run_module

    now = [1000.0]
    clock = type("Clock", (), {"time": lambda: now[0], "monotonic": lambda: now[0]})
    monkeypatch.setattr(activity, "time", clock)
    monkeypatch.setattr(run_module, "time", clock)
    sweep = SweepStore.open(driver.directory)
    run = driver.open(sweep, num_records=3, epochs=1, pass_k=[])
    run.begin_stretch()
    now[0] += 7
    run.append_generation(0, 0, 1, _record(0), Generation(model_answer="a"))
    run.flush()
    copy = driver.directory.with_name("killed")
    shutil.copytree(driver.directory, copy)
    sweep.close()

    driver.directory = copy
    now[0] += 1000
    with SweepStore.open(copy) as sweep:
        run = driver.open(sweep, num_records=3, epochs=1, pass_k=[])
        run.begin_stretch()
        now[0] += 5
        run.end_stretch()
        summary = run.finalize()
    assert summary.wall_seconds == pytest.approx(12)
    assert (summary.started_at, summary.ended_at) == (1000.0, 2012.0)


def _record(position=0):
    return EvalRecord(f"r{position}", "p", "a", "c")


@pytest.fixture
def ticking(monkeypatch):
    """Every reading of the clock is a second later."""
    import evalray.store.activity as activity
    import evalray.store.run as run

    seconds = itertools.count(1000.0)
    clock = SimpleNamespace(time=lambda: next(seconds), monotonic=lambda: next(seconds))
    monkeypatch.setattr(activity, "time", clock)
    monkeypatch.setattr(run, "time", clock)


def test_a_smaller_selection_is_not_measured_by_the_time_of_more(driver, ticking):
    of_all = driver.execute(num_records=6)
    assert of_all.output_tokens_per_second == pytest.approx(60 / of_all.wall_seconds)
    fewer = driver.execute(num_records=2)
    assert fewer.planned_samples == 4
    assert (fewer.wall_seconds, fewer.samples_per_second, fewer.output_tokens_per_second) == (None,) * 3
    assert any("throughput" in warning for warning in fewer.warnings)
    again = driver.execute(num_records=6)
    assert again.output_tokens_per_second is not None
    assert again.warnings == of_all.warnings


def test_a_selection_that_grew_and_shrank_again_keeps_the_time_of_its_own(driver, ticking):
    own = driver.execute(num_records=2)
    driver.execute(num_records=6)
    idle = driver.execute(num_records=2)
    assert (
        own.wall_seconds < idle.wall_seconds <= own.wall_seconds + 2
    )  # the idle stretch adds its own length
    assert idle.warnings == own.warnings
