"""Comparisons of runs on disk: pairing, figures, refusals, verdicts."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.compare import (
    Comparison,
    RunColumns,
    compare_paths,
    compute,
    find_runs,
    match_runs,
    read_columns,
)
from evalray.errors import ConfigError, StoreError


def only(a: Path, b: Path, **options: object) -> Comparison:
    report = compare_paths(a, [b], **options)  # type: ignore[arg-type]
    assert len(report.comparisons) == 1
    return report.comparisons[0]


def test_known_counts_give_known_figures(write_run) -> None:
    a = write_run("a", "+" * 60 + "-" * 40)
    b = write_run("b", "+" * 48 + "-" * 12 + "+" * 30 + "-" * 10)
    found = only(a, b).accuracy
    assert found is not None
    assert (found.n, found.a, found.b) == (100, 0.6, 0.78)
    assert (found.wins, found.losses, found.ties) == (30, 12, 58)
    assert found.difference == pytest.approx(0.18)
    # McNemar, exact: 2 P(X <= 12), X ~ Bin(42, 1/2); the error is sd([1]*30 + [-1]*12 + [0]*58) / 10.
    assert found.test == "mcnemar"
    error = statistics.stdev([1] * 30 + [-1] * 12 + [0] * 58) / 10
    assert found.p_value == pytest.approx(sum(math.comb(42, k) for k in range(13)) / 2**41)
    assert found.standard_error == pytest.approx(error)
    assert found.ci95 == pytest.approx((0.18 - 1.959964 * error, 0.18 + 1.959964 * error), abs=1e-6)


def test_a_run_against_itself_differs_by_nothing(write_run) -> None:
    run = write_run("a", "++-u+-+++-")
    found = only(run, run, regression_threshold=0.0)
    assert found.accuracy is not None
    assert (found.accuracy.difference, found.accuracy.p_value) == (0.0, 1.0)
    assert found.accuracy.wins == found.accuracy.losses == 0
    assert found.regression is False
    assert all(change.ratio == 1.0 for change in found.figures.measures)


def test_records_are_paired_by_id_and_not_by_place(write_run) -> None:
    a = write_run("a", "+-+-+-")
    b = write_run("b", "-+-+-+", first=1)  # r1 - r6: the same verdict for every common record
    found = only(a, b)
    assert found.figures.overlap.common == 5
    assert (found.figures.overlap.only_a, found.figures.overlap.only_b) == (1, 1)
    assert found.accuracy is not None
    assert found.accuracy.ties == 5


def test_what_only_one_side_could_score_is_counted_and_left_out(write_run) -> None:
    a = write_run("a", "++++++++ej")
    b = write_run("b", "++++e---ee")
    found = only(a, b)
    overlap = found.figures.overlap
    assert (overlap.scored_in_both, overlap.scored_only_in_a) == (7, 1)
    assert (overlap.scored_only_in_b, overlap.scored_in_neither) == (0, 2)
    assert any("none in B" in warning for warning in found.warnings)
    assert found.accuracy is not None
    assert found.accuracy.losses == 3


def test_an_unparsed_answer_is_compared_as_wrong(write_run) -> None:
    found = only(write_run("a", "++++"), write_run("b", "uuuu"))
    assert found.accuracy is not None
    assert found.accuracy.difference == -1.0


def test_epochs_count_once_per_record(write_run) -> None:
    a = write_run("a", "+-" * 10, "+-" * 10, "--" * 10)
    b = write_run("b", "++" * 10, "+-" * 10, "--" * 10)
    found = only(a, b).accuracy
    assert found is not None
    assert (found.n, found.test) == (20, "bootstrap")
    assert found.difference == pytest.approx(1 / 6)
    assert (found.wins, found.ties) == (10, 10)
    assert found.bootstrap_ci95 is not None
    assert found.bootstrap_ci95 == pytest.approx(found.ci95, abs=0.03)


def test_graded_scores_are_compared_beside_the_accuracy(write_run) -> None:
    grades = [0.6, 0.7, 0.8, 0.9] * 5
    a = write_run("a", "+" * 20, scores=grades)
    b = write_run("b", "+" * 20, scores=[grade + 0.05 for grade in grades])
    found = only(a, b)
    assert found.figures.score is not None
    assert found.figures.score.difference == pytest.approx(0.05)
    assert found.accuracy is not None
    assert found.accuracy.difference == 0.0
    assert only(write_run("c", "+-" * 10), write_run("d", "+-" * 10)).figures.score is None


def test_tokens_latency_and_cost_are_medians_over_common_records(write_run) -> None:
    a, b = write_run("a", "++++", latency=1.0, tokens=10), write_run("b", "++++", latency=2.0, tokens=30)
    changes = {change.name: change for change in only(a, b).figures.measures}
    assert changes["completion_tokens"].ratio == 3.0
    assert changes["cost_usd"].median_b == pytest.approx(0.03)
    assert changes["latency_seconds"].median_a == pytest.approx(1.0015)
    assert "energy_joules" not in changes  # measured in neither


def test_subjects_are_compared_apart_and_corrected_for_their_number(write_run) -> None:
    a = write_run("a", "++" * 20)
    b = write_run("b", "-+" * 20)  # every algebra record falls, no biology record does
    subjects = only(a, b).figures.subjects
    assert subjects["algebra"].difference == -1.0
    assert subjects["biology"].difference == 0.0
    assert subjects["algebra"].p_value == pytest.approx(2 / 2**20)
    assert subjects["algebra"].p_adjusted == pytest.approx(4 / 2**20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmark": "other"}, "different benchmarks: bench and other"),
        ({"info": {"prompt_hash": "p2"}}, "different prompt: p1 and p2"),
        ({"info": {"data_digest": "d2"}}, "different data: d1 and d2"),
        ({"scorer": "s2"}, "different scorer"),
        ({"system_prompt": "Be brief."}, "different system prompt"),
        ({"num_fewshot": 3}, "different number of worked examples"),
        ({"reference": "another"}, "another reference answer"),
    ],
)
def test_other_questions_prompts_data_or_rules_are_refused_unless_wanted(
    write_run, changes: dict[str, object], message: str
) -> None:
    a, b = write_run("a", "++--++"), write_run("b", "++--++", **changes)
    with pytest.raises(ConfigError, match=message):
        compare_paths(a, [b])
    assert any(message in conflict for conflict in only(a, b, allow_different=True).conflicts)


def test_another_temperature_is_named_and_not_refused(write_run) -> None:
    found = only(write_run("a", "++--"), write_run("b", "++--", temperature=0.7))
    assert found.settings == {"temperature": (0.0, 0.7)}


def test_an_unknown_prompt_is_a_warning(write_run) -> None:
    found = only(write_run("a", "++--"), write_run("b", "++--", info={"prompt_hash": None}))
    assert any(warning.startswith("prompt: not known") for warning in found.warnings)


def test_no_common_record_is_an_error_that_says_so(write_run) -> None:
    with pytest.raises(ConfigError, match="no record id is in both"):
        compare_paths(write_run("a", "++--"), [write_run("b", "++--", first=100)])


@pytest.mark.parametrize(
    ("before", "after", "threshold", "regression"),
    [
        ("+" * 100, "+" * 80 + "-" * 20, 0.0, True),
        ("+" * 100, "+" * 80 + "-" * 20, 0.25, False),
        ("+" * 100, "+" * 98 + "-" * 2, 0.0, False),
        ("+" * 80 + "-" * 20, "+" * 100, 0.0, False),
    ],
    ids=["clear drop", "within the threshold", "not significant", "better"],
)
def test_a_regression_is_a_significant_drop_over_the_threshold(
    write_run, before: str, after: str, threshold: float, regression: bool
) -> None:
    found = only(write_run("a", before), write_run("b", after), regression_threshold=threshold)
    assert found.regression is regression


@pytest.mark.parametrize(("before", "after"), [("+++++", "-----"), ("+" * 20, "+" * 9 + "e" * 11)])
def test_a_verdict_needs_enough_overlap(write_run, before: str, after: str) -> None:
    a, b = write_run("a", before), write_run("b", after)
    with pytest.raises(ConfigError, match="not enough overlap"):
        compare_paths(a, [b], regression_threshold=0.0)
    assert only(a, b).regression is None


@pytest.mark.parametrize("threshold", [-0.1, 1.0, float("nan")])
def test_an_impossible_threshold_is_refused(write_run, threshold: float) -> None:
    a = write_run("a", "++++++")
    with pytest.raises(ConfigError, match="--threshold"):
        compare_paths(a, [a], regression_threshold=threshold)


def test_several_candidates_are_corrected_by_holm(write_run) -> None:
    a = write_run("a", "+" * 50)
    others = [write_run(f"b{n}", "+" * (50 - n) + "-" * n) for n in (6, 7)]
    report = compare_paths(a, others)
    first, second = (c.accuracy for c in report.comparisons)
    assert first is not None
    assert second is not None
    assert second.p_adjusted == pytest.approx(2 * (second.p_value or 0))
    assert first.p_adjusted == pytest.approx(max(first.p_value or 0, second.p_adjusted or 0))


def test_one_of_several_comparisons_has_to_hold_after_the_correction(write_run) -> None:
    a = write_run("a", "+" * 100)
    dropped, same = write_run("b", "+" * 94 + "-" * 6), write_run("c", "+" * 99 + "-")
    assert only(a, dropped, regression_threshold=0.0).regression is True  # p = 0.031
    report = compare_paths(a, [dropped, same], regression_threshold=0.0)
    assert [c.regression for c in report.comparisons] == [False, False]  # p = 0.0625 by Holm
    clear = write_run("d", "+" * 80 + "-" * 20)
    report = compare_paths(a, [same, clear], regression_threshold=0.0)
    assert [c.regression for c in report.comparisons] == [False, True]
    assert report.regression is True


def test_sweeps_are_matched_by_benchmark_and_model(write_run) -> None:
    for sweep in ("a", "b"):
        for model in ("m", "n"):
            write_run(sweep, "++--++", model=model)
    folder = write_run("b", "++--++", model="extra").parent
    report = compare_paths(folder.with_name("a"), [folder])
    assert [(c.a.model, c.b.model) for c in report.comparisons] == [("m", "m"), ("n", "n")]
    assert len(report.unmatched) == 1
    assert "extra" in report.unmatched[0]


def test_sweeps_of_other_models_are_matched_by_benchmark_where_that_is_unambiguous(write_run) -> None:
    a = write_run("a", "++--", model="old").parent
    write_run("a", "++--", model="old", benchmark="second")
    b = write_run("b", "++--", model="new").parent
    write_run("b", "++--", model="new", benchmark="second")
    matching = match_runs(find_runs(a), find_runs(b))
    assert {(x.benchmark, x.model, y.model) for x, y in matching.pairs} == {
        ("bench", "old", "new"),
        ("second", "old", "new"),
    }


def test_no_partner_is_guessed_among_several(write_run) -> None:
    a = write_run("a", "++--", model="x").parent
    b = write_run("b", "++--", model="y").parent
    write_run("b", "++--", model="z")
    with pytest.raises(ConfigError, match=r"no run of .* has a partner"):
        compare_paths(a, [b])


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".summary.json"])
def test_each_file_of_a_run_means_the_run(write_run, suffix: str) -> None:
    a = write_run("a", "+--+-+")
    found = only(a, a.with_name(a.name + suffix))
    assert found.b.entry is not None
    assert found.accuracy is not None
    assert found.accuracy.n == 6


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_without_their_run_directory_are_compared_with_a_warning(
    write_run, tmp_path: Path, suffix: str
) -> None:
    a = write_run("a", "+--+-+")
    bare = tmp_path / f"bare{suffix}"
    bare.write_bytes(a.with_name(a.name + suffix).read_bytes())
    found = only(a, bare)
    assert found.accuracy is not None
    assert found.accuracy.ties == 6
    assert any("not known" in warning for warning in found.warnings)


@pytest.mark.parametrize("value", [7, -1, 10**400, 0.5, "true", [1]])
def test_a_verdict_that_is_none_is_not_compared(tmp_path: Path, value: object) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"record_id": "a", "is_correct": value, "score": 10**400}, {"record_id": "b", "is_correct": True}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = read_columns(file)
    np.testing.assert_array_equal(columns.accuracy, [np.nan, 1.0])
    assert np.isnan(columns.score[0])


def test_both_file_forms_hold_the_same_columns(write_run) -> None:
    run = write_run("a", "+-uje+", "--+j+-")
    parquet, jsonl = (read_columns(run.with_name(run.name + suffix)) for suffix in (".parquet", ".jsonl"))
    assert parquet.record_ids == jsonl.record_ids
    np.testing.assert_array_equal(parquet.accuracy, jsonl.accuracy)
    assert parquet.outcomes == jsonl.outcomes
    assert parquet.references == jsonl.references


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b"", "no rows to compare"),
        ("rows.jsonl", b'{"other": 1}\n', "not a results file"),
        ("rows.parquet", b"PAR1 garbage", "not a results file"),
        ("rows.csv", b"a,b", "give a run"),
        ("run.summary.json", b"{}", "no rows beside it"),
    ],
)
def test_foreign_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        find_runs(file)


def test_a_torn_row_is_named_by_its_line(write_run, tmp_path: Path) -> None:
    run = write_run("a", "+--+")
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(run.with_name(run.name + ".jsonl").read_bytes()[:-40])
    with pytest.raises(StoreError, match=r"torn\.jsonl:4: not a result row"):
        compare_paths(run, [torn])


def test_missing_paths_and_empty_folders_are_errors(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "no such file"), (tmp_path, "holds no run")):
        with pytest.raises(ConfigError, match=message):
            find_runs(path)


def test_a_report_is_plain_data(write_run) -> None:
    report = compare_paths(write_run("a", "++--+++"), [write_run("b", "+---+e+")], regression_threshold=0.1)
    again = json.loads(json.dumps(report.fields()))
    assert again["comparisons"][0]["overlap"]["scored_only_in_a"] == 1
    assert again["regression"] is False


def columns(flags: list[int | None]) -> RunColumns:
    accuracy = np.array([np.nan if flag is None else float(flag) for flag in flags])
    size = len(flags)
    return RunColumns(
        [f"r{i}" for i in range(size)], accuracy, accuracy.copy(), {name: np.full(size, np.nan) for name in _NAMES},
        [f"s{i % 3}" for i in range(size)], [None] * size, size, 1, {}, "bench", "m", "",
    )  # fmt: skip


_NAMES = (
    "prompt_tokens", "completion_tokens", "reasoning_tokens", "latency_seconds", "ttft", "throughput_tok_per_sec",
    "cost_usd", "energy_joules",
)  # fmt: skip
pairs = st.lists(
    st.tuples(st.sampled_from([0, 1, None]), st.sampled_from([0, 1, None])), min_size=1, max_size=40
)


@given(pairs)
@settings(max_examples=80, deadline=None)
def test_swapping_a_and_b_negates_every_difference(verdicts: list[tuple[int | None, int | None]]) -> None:
    a, b = (columns([pair[side] for pair in verdicts]) for side in (0, 1))
    forth, back = compute(a, b), compute(b, a)
    assert (forth.accuracy is None) == (back.accuracy is None)
    if forth.accuracy is None or back.accuracy is None:
        return
    assert forth.accuracy.difference == -back.accuracy.difference
    assert forth.accuracy.p_value == back.accuracy.p_value
    assert (forth.accuracy.wins, forth.accuracy.losses) == (back.accuracy.losses, back.accuracy.wins)
    for name, difference in forth.subjects.items():
        assert difference.difference == -back.subjects[name].difference


@given(st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_run_compared_with_itself_has_difference_zero_and_p_one(flags: list[int | None]) -> None:
    found = compute(columns(flags), columns(flags)).accuracy
    if found is None:
        assert all(flag is None for flag in flags)
        return
    assert (found.difference, found.p_value, found.wins, found.losses) == (0.0, 1.0, 0, 0)
