from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.stats import (
    clustered_standard_error,
    clustered_wilson_interval,
    metric_stats,
    pass_at_k,
    standard_error,
    wilson_interval,
)

floats = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize("values", [[], [None, None], [math.nan], [math.inf]])
def test_nothing_measured_has_no_statistics(values):
    assert metric_stats(values) is None


def test_one_value_has_no_spread():
    stats = metric_stats([3.0, None])
    assert (stats.mean, stats.median, stats.std, stats.p99, stats.n) == (3.0, 3.0, 0.0, 3.0, 1)


def test_zero_is_a_measurement():
    assert metric_stats([0.0, None, 2.0]).mean == 1.0


def test_percentiles_interpolate_linearly_at_n_minus_one_times_p():
    stats = metric_stats([10.0, 20.0, 30.0, 40.0])
    assert stats.p90 == pytest.approx(30 + 0.7 * 10)
    assert stats.p95 == pytest.approx(30 + 0.85 * 10)
    assert stats.median == 25.0


@given(st.lists(floats, min_size=2, max_size=50))
def test_statistics_agree_with_the_standard_library(values):
    stats = metric_stats(values)
    assert stats.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert stats.std == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)
    assert stats.min <= stats.median <= stats.p90 <= stats.p95 <= stats.p99 <= stats.max
    assert stats.n == len(values)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_interval_matches_published_values(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_wilson_interval_of_no_trials_is_unknown():
    assert wilson_interval(0, 0) is None


def test_wilson_interval_refuses_more_successes_than_trials():
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        wilson_interval(3, 2)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_the_rate_and_stays_in_the_unit_interval(case):
    successes, trials = case
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0


@given(st.lists(floats, min_size=2, max_size=30))
def test_clusters_of_one_are_independent_scores(scores):
    expected = standard_error(scores)
    assert clustered_standard_error(scores, range(len(scores))) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0])), min_size=2, max_size=20))
def test_clustered_error_equals_the_formula_written_out(pairs):
    clusters, scores = [c for c, _ in pairs], [s for _, s in pairs]
    result = clustered_standard_error(scores, clusters)
    if len(set(clusters)) < 2:
        assert result is None
        return
    n, mean = len(scores), statistics.fmean(scores)
    cross = sum(
        (scores[i] - mean) * (scores[j] - mean)
        for i, j in itertools.permutations(range(n), 2)
        if clusters[i] == clusters[j]
    )
    expected = statistics.variance(scores) / n + cross / n**2
    assert result == pytest.approx(math.sqrt(max(expected, 0.0)), abs=1e-6)


def test_repeating_every_question_does_not_shrink_the_error():
    rng = np.random.default_rng(1)
    answers = rng.integers(0, 2, 200).astype(float)
    repeated, labels = np.repeat(answers, 4), np.repeat(np.arange(200), 4)
    assert clustered_standard_error(repeated, labels) == pytest.approx(standard_error(answers), rel=0.01)
    assert standard_error(repeated) < 0.6 * standard_error(answers)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=60))
def test_the_clustered_interval_of_clusters_of_one_is_wilsons(scores):
    found = clustered_wilson_interval(scores, range(len(scores)))
    assert found == pytest.approx(wilson_interval(sum(scores), len(scores)))


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), min_size=2, max_size=30),
)
def test_the_clustered_interval_holds_the_rate_and_is_never_narrower_than_independent_scores(records):
    scores = [score for record in records for score in record]
    labels = [number for number, record in enumerate(records) for _ in record]
    low, high = clustered_wilson_interval(scores, labels)
    rate = sum(scores) / len(scores)
    assert 0 <= low <= rate + 1e-12
    assert rate - 1e-12 <= high <= 1
    independent = wilson_interval(sum(scores), len(scores))
    assert high - low >= independent[1] - independent[0] - 1e-12


def test_epochs_that_all_agree_count_as_one_answer_each():
    low, high = clustered_wilson_interval([1.0] * 2 + [0.0] * 798, [n // 2 for n in range(800)])
    assert (low, high) == pytest.approx(wilson_interval(1, 400), rel=5e-3)


def test_one_cluster_has_no_interval():
    assert clustered_wilson_interval([1.0, 0.0], ["a", "a"]) is None


def test_labels_may_be_any_hashable():
    assert clustered_standard_error([1, 0, 1, 0], ["a", "a", "b", "b"]) == clustered_standard_error(
        [1, 0, 1, 0], [7, 7, 3, 3]
    )


def test_every_score_needs_a_cluster():
    with pytest.raises(ValueError, match="2 scores but 1 cluster"):
        clustered_standard_error([1, 0], ["a"])


@pytest.mark.parametrize(("samples", "correct", "k"), [(2, 0, 5), (2, 2, 5), (0, 0, 1)])
def test_pass_at_k_refuses_fewer_samples_than_k(samples, correct, k):
    assert pass_at_k(samples, correct, k) is None


@pytest.mark.parametrize(("samples", "correct", "k"), [(2, 3, 1), (2, -1, 1), (2, 1, 0)])
def test_pass_at_k_refuses_impossible_counts(samples, correct, k):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(samples, correct, k)


@pytest.mark.parametrize("n", [1, 3, 5, 6])
def test_pass_at_k_is_the_share_of_draws_with_a_success(n):
    for correct in range(n + 1):
        attempts = [i < correct for i in range(n)]
        for k in range(1, n + 1):
            draws = list(itertools.combinations(attempts, k))
            assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))
