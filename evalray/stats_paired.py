"""Two systems on the same questions: paired differences, McNemar's test, a bootstrap, and Holm's correction.

Small pure functions over per-record figures; each docstring names its source and where it departs
from it.  Pairing takes the questions' own difficulty out of the comparison, which is most of the
variance.  This module imports nothing of ours but :mod:`evalray.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evalray.stats import Z_95, standard_error

Array = npt.NDArray[np.float64]

#: Up to so many discordant pairs the binomial is summed; beyond, the normal agrees to many digits.
_EXACT_PAIRS = 1_000
#: Up to so many different values, resampling draws how often each comes up instead of which records.
_FEW_VALUES = 512
_DRAWS_AT_ONCE = 4_000_000


@dataclass(slots=True, frozen=True)
class PairedDifference:
    """Mean of ``b - a`` over ``n`` records with its standard error and 95 % interval.

    The error and the interval are ``None`` for fewer than two records.
    """

    n: int
    difference: float
    standard_error: float | None
    ci95: tuple[float, float] | None

    @property
    def excludes_zero(self) -> bool:
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)


def paired_difference(differences: Array) -> PairedDifference:
    """Mean of per-record differences and its 95 % interval by the central limit theorem.

    Miller 2024, "Adding Error Bars to Evals", section 4.2 (paired differences).  One value per
    record: where a record was tried several times its mean goes in, which clusters by record
    (section 2.2) and weighs every record alike.  Raises :class:`ValueError` for no records.
    """
    if not differences.size:
        raise ValueError("no paired records")
    mean = float(differences.mean())
    error = standard_error(differences)
    interval = None if error is None else (mean - Z_95 * error, mean + Z_95 * error)
    return PairedDifference(int(differences.size), mean, error, interval)


def mcnemar_test(only_a: int, only_b: int) -> float:
    """Two-sided p-value that right-only-in-``a`` and right-only-in-``b`` are equally likely.

    McNemar 1947, "Note on the sampling error of the difference between correlated proportions", in its
    exact binomial form; above 1,000 discordant pairs by the normal with continuity correction
    (Edwards 1948).  No discordant pair gives 1.  Raises :class:`ValueError` for negative counts.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"{only_a} and {only_b} discordant pairs")
    n, fewer = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0
    if n <= _EXACT_PAIRS:
        tail = sum(math.comb(n, k) for k in range(fewer + 1))
        return float(min(1.0, 2 * tail / 2**n))
    z = max(0.0, abs(only_a - only_b) - 1) / math.sqrt(n)
    return math.erfc(z / math.sqrt(2))


def paired_z_test(differences: Array) -> float | None:
    """Two-sided p-value of a mean difference of zero by the central limit theorem; Miller 2024, section 4.2.

    1 where nothing differs; ``None`` for fewer than two records or where every record differs by
    the same amount, which says nothing of their spread.
    """
    error = standard_error(differences)
    if error is None:
        return None
    mean = float(differences.mean())
    if error == 0.0:
        return 1.0 if mean == 0.0 else None
    return math.erfc(abs(mean) / error / math.sqrt(2))


@dataclass(slots=True, frozen=True)
class Bootstrap:
    """Percentile interval of the mean and two-sided p-value of a mean of zero."""

    ci95: tuple[float, float]
    p_value: float
    resamples: int


def paired_bootstrap(differences: Array, *, resamples: int = 10_000, seed: int = 0) -> Bootstrap:
    """Bootstrap over records of the mean difference: percentile interval, and p by shifting to zero.

    Efron & Tibshirani 1993, "An Introduction to the Bootstrap", chapters 13 and 16.  Resamples the
    per-record scores that are there and never runs a metric again.  Where few different values
    occur it draws their counts from a multinomial: the same distribution, in time that does not
    follow the number of records.  Deterministic for a seed.  Raises :class:`ValueError` for no records.
    """
    if not differences.size:
        raise ValueError("no paired records")
    observed = float(differences.mean())
    # Means of epochs such as 1/3 + 1/3 carry rounding noise; without it equal values would count apart.
    means = _resampled_means(np.round(differences, 12), resamples, np.random.default_rng(seed))
    low, high = np.percentile(means, (2.5, 97.5))
    tolerance = 1e-12 * max(1.0, float(np.abs(differences).max()))
    extreme = int((np.abs(means - observed) >= abs(observed) - tolerance).sum())
    p_value = min(1.0, (1 + extreme) / (1 + resamples))
    return Bootstrap((float(low), float(high)), p_value, resamples)


def _resampled_means(values: Array, resamples: int, random: np.random.Generator) -> Array:
    n = values.size
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= _FEW_VALUES:
        return np.asarray(random.multinomial(n, counts / n, size=resamples) @ distinct / n)
    means = np.empty(resamples)
    step = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        means[start : start + rows] = values[random.integers(0, n, size=(rows, n))].mean(axis=1)
    return means


def holm_adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """P-values adjusted so that comparing them with 0.05 keeps the chance of any false alarm at 5 %.

    Holm 1979, "A simple sequentially rejective multiple test procedure".  ``None`` stays ``None``
    and does not count as a test.
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[index] = highest
    return adjusted
