"""Statistics of scores and measurements, as small pure functions.

Each docstring names its source and where it departs from it.  ``None`` values are "not measured"
and are dropped; ``None`` as a result means that the data cannot support the figure.
This module imports nothing of ours but the types.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from evalray.types import MetricStats

Floats = Sequence[float] | npt.NDArray[np.float64]
Labels = Sequence[Hashable] | npt.NDArray[np.int64]

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


def metric_stats(values: Iterable[float | None] | npt.NDArray[np.float64]) -> MetricStats | None:
    """Descriptive statistics over the measured, finite values; ``None`` where there are none.

    Percentiles interpolate linearly at index ``(n - 1) * p`` of the sorted values (Hyndman & Fan
    1996, type 7).  ``std`` is the sample standard deviation (``n - 1``), 0 for one value.  Zeros
    count: unlike the seed's, which drops them together with what was not measured.
    """
    if isinstance(values, np.ndarray):
        data = values.astype(np.float64, copy=False)
    else:
        data = np.array([v for v in values if v is not None], dtype=np.float64)
    data = data[np.isfinite(data)]
    if not data.size:
        return None
    median, p90, p95, p99 = np.percentile(data, (50, 90, 95, 99))
    return MetricStats(
        mean=float(data.mean()),
        median=float(median),
        min=float(data.min()),
        max=float(data.max()),
        std=float(data.std(ddof=1)) if data.size > 1 else 0.0,
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        n=int(data.size),
    )


def wilson_interval(successes: float, trials: float, z: float = Z_95) -> tuple[float, float] | None:
    """Wilson's score interval of a proportion (Wilson 1927), without continuity correction.

    Neither count need be whole: see :func:`clustered_wilson_interval`.  ``None`` for no trials.  Raises :class:`ValueError` unless ``0 <= successes <= trials``.
    """
    if trials == 0:
        return None
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    rate = successes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    margin = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    # At the ends the bound is exact; floating point would leave it a hair off.
    low = 0.0 if successes == 0 else max(0.0, centre - margin)
    high = 1.0 if successes == trials else min(1.0, centre + margin)
    return low, high


def standard_error(scores: Floats) -> float | None:
    """Standard error of the mean of independent scores, ``s / sqrt(n)`` with the sample deviation.

    The central-limit form of Miller 2024, "Adding Error Bars to Evals", section 2.1.  ``None`` for fewer
    than two scores.
    """
    data = np.asarray(scores, dtype=np.float64)
    if data.size < 2:
        return None
    return float(data.std(ddof=1) / math.sqrt(data.size))


def clustered_standard_error(scores: Floats, clusters: Labels) -> float | None:
    """Standard error of the mean of scores that come in clusters, e.g. epochs of one question.

    Miller 2024, "Adding Error Bars to Evals", section 2.2: the variance of the mean plus the
    cross terms of residuals within each cluster, over ``n`` squared.  Equals
    :func:`standard_error` when every cluster holds one score.  ``None`` for fewer than two
    clusters, where the variance between clusters cannot be known.
    Raises :class:`ValueError` when the two sequences differ in length.
    """
    data = np.asarray(scores, dtype=np.float64)
    if data.size != len(clusters):
        raise ValueError(f"{data.size} scores but {len(clusters)} cluster labels")
    labels = _cluster_numbers(clusters)
    if data.size < 2 or labels.max() < 1:
        return None
    n = data.size
    residuals = data - data.mean()
    squares = float(np.square(residuals).sum())
    within = float(np.square(np.bincount(labels, weights=residuals)).sum()) - squares
    variance = squares / (n - 1) / n + within / n**2
    return math.sqrt(max(variance, 0.0))


def clustered_wilson_interval(
    scores: Floats, clusters: Labels, z: float = Z_95
) -> tuple[float, float] | None:
    """Interval of the mean of 0-or-1 scores that come in clusters: Wilson's, at the effective sample size.

    That is ``n`` over the design effect (Kish 1965), the clustered variance over that of as many
    independent scores, and never more than ``n``; so in Franco et al. 2019, "Comparative Study of Confidence
    Intervals for Proportions in Complex Sample Surveys".  Unlike the normal interval it does not shrink to
    nothing where nearly all or nearly no scores are 1.  Equals :func:`wilson_interval` when every
    cluster holds one score.  Scores that are all alike have no variance: then as many as there are clusters count.
    ``None`` for fewer than two clusters.  Raises :class:`ValueError` when the two sequences differ in length.
    """
    error = clustered_standard_error(scores, clusters)
    if error is None:
        return None
    data = np.asarray(scores, dtype=np.float64)
    n, rate = data.size, float(data.mean())
    if rate in (0.0, 1.0):
        trials = float(_cluster_numbers(clusters).max() + 1)
    else:
        design_effect = error**2 * (n - 1) / (rate * (1 - rate))
        trials = n / max(design_effect, 1.0)
    return wilson_interval(rate * trials, trials, z)


def _cluster_numbers(clusters: Labels) -> npt.NDArray[np.int64]:
    if isinstance(clusters, np.ndarray):
        return np.unique(clusters, return_inverse=True)[1]
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in clusters], dtype=np.int64)


def pass_at_k(samples: int, correct: int, k: int) -> float | None:
    """Chance that at least one of ``k`` attempts succeeds, from ``correct`` of ``samples``.

    The unbiased estimator ``1 - C(n - c, k) / C(n, k)`` of Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", as a product so that nothing overflows.  Departs from their code for
    ``samples < k``, which it would call 1.0: too few attempts to tell, so ``None``.
    Raises :class:`ValueError` for impossible counts.
    """
    if k < 1 or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {correct} correct in {samples} samples")
    if samples < k:
        return None
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))
