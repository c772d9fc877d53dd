"""Paired statistics against SciPy, published values and their own symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from evalray.stats_paired import (
    holm_adjusted,
    mcnemar_test,
    paired_bootstrap,
    paired_difference,
    paired_z_test,
)

scores = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=60).map(np.array)


def test_difference_and_error_are_those_of_the_paired_t_statistic() -> None:
    random = np.random.default_rng(3)
    a, b = random.random(200), random.random(200)
    found = paired_difference(b - a)
    t = scipy_stats.ttest_rel(b, a)
    assert found.standard_error is not None
    assert found.difference / found.standard_error == pytest.approx(t.statistic)
    assert found.ci95 == pytest.approx(
        (found.difference - 1.96 * found.standard_error, found.difference + 1.96 * found.standard_error),
        abs=1e-4,
    )


def test_interval_covers_the_true_difference_about_95_times_of_100() -> None:
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        found = paired_difference(random.normal(0.1, 0.5, 100))
        assert found.ci95 is not None
        hits += found.ci95[0] <= 0.1 <= found.ci95[1]
    assert 0.92 < hits / 600 < 0.98


def test_one_record_has_no_interval_and_none_raises() -> None:
    assert paired_difference(np.array([1.0])).ci95 is None
    with pytest.raises(ValueError, match="no paired records"):
        paired_difference(np.array([]))
    with pytest.raises(ValueError, match="no paired records"):
        paired_bootstrap(np.array([]))


@pytest.mark.parametrize(
    ("b", "c"), [(0, 1), (0, 5), (0, 6), (3, 9), (10, 10), (59, 121), (480, 520), (400, 600)]
)
def test_mcnemar_is_the_exact_binomial_test(b: int, c: int) -> None:
    assert mcnemar_test(b, c) == pytest.approx(scipy_stats.binomtest(b, b + c, 0.5).pvalue)
    assert mcnemar_test(b, c) == mcnemar_test(c, b)


@pytest.mark.parametrize(("b", "c"), [(600, 700), (5_000, 5_200), (1_000, 1_001)])
def test_mcnemar_of_many_pairs_agrees_with_the_exact_test(b: int, c: int) -> None:
    assert mcnemar_test(b, c) == pytest.approx(scipy_stats.binomtest(b, b + c, 0.5).pvalue, rel=0.02)


def test_mcnemar_of_no_discordant_pair_is_one_and_negative_counts_raise() -> None:
    assert mcnemar_test(0, 0) == 1.0
    with pytest.raises(ValueError, match="-1"):
        mcnemar_test(-1, 2)


def test_z_test_agrees_with_the_t_test_of_many_records() -> None:
    differences = np.random.default_rng(1).normal(0.03, 0.5, 2_000)
    assert paired_z_test(differences) == pytest.approx(
        scipy_stats.ttest_1samp(differences, 0.0).pvalue, rel=0.01
    )


@pytest.mark.parametrize(("values", "expected"), [([0.0, 0.0, 0.0], 1.0), ([1.0, 1.0], None), ([1.0], None)])
def test_z_test_without_spread_says_nothing_unless_nothing_differs(
    values: list[float], expected: float | None
) -> None:
    assert paired_z_test(np.array(values)) == expected


@pytest.mark.parametrize("distinct", [True, False])
def test_bootstrap_interval_agrees_with_scipys(distinct: bool) -> None:
    random = np.random.default_rng(5)
    differences = random.normal(0.1, 0.4, 900) if distinct else random.choice([-1.0, 0.0, 0.5, 1.0], 900)
    ours = paired_bootstrap(differences, resamples=4_000)
    theirs = scipy_stats.bootstrap(
        (differences,), np.mean, n_resamples=4_000, method="percentile", rng=np.random.default_rng(9)
    ).confidence_interval
    assert ours.ci95 == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_bootstrap_p_value_is_uniform_where_nothing_differs() -> None:
    random = np.random.default_rng(2)
    alarms = sum(
        paired_bootstrap(random.choice([-0.5, 0.0, 0.5], 80), resamples=400).p_value < 0.05
        for _ in range(300)
    )
    assert 3 <= alarms <= 30


def test_bootstrap_is_the_same_for_the_same_seed() -> None:
    differences = np.random.default_rng(4).normal(size=700)
    assert paired_bootstrap(differences, seed=7) == paired_bootstrap(differences, seed=7)
    assert paired_bootstrap(differences, seed=7) != paired_bootstrap(differences, seed=8)


@given(scores)
@settings(max_examples=60, deadline=None)
def test_swapping_the_runs_negates_difference_and_interval(differences: np.ndarray) -> None:
    one, other = paired_difference(differences), paired_difference(-differences)
    assert one.difference == -other.difference
    assert one.ci95 is not None
    assert other.ci95 is not None
    assert one.ci95 == pytest.approx((-other.ci95[1], -other.ci95[0]))
    assert paired_z_test(differences) == pytest.approx(paired_z_test(-differences))


@given(scores)
@settings(max_examples=30, deadline=None)
def test_bootstrap_interval_lies_within_the_data_and_p_within_its_bounds(differences: np.ndarray) -> None:
    found = paired_bootstrap(differences, resamples=200)
    assert differences.min() - 1e-9 <= found.ci95[0] <= found.ci95[1] <= differences.max() + 1e-9
    assert 0 < found.p_value <= 1
    if not differences.any():
        assert found.p_value == 1.0


def test_holm_gives_the_published_example() -> None:
    # Holm 1979, as worked in many textbooks: 4 tests.
    assert holm_adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_untested_entries_out_of_the_count() -> None:
    assert holm_adjusted([0.02, None, 0.02]) == [0.04, None, 0.04]
    assert holm_adjusted([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm_adjusted(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert q is not None
        assert p <= q <= 1
    ranked = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert ranked == sorted(ranked)  # type: ignore[type-var]
