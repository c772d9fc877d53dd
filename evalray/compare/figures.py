"""The figures of one comparison, from two runs' columns: what differs, by how much, how surely.

Pure: no file is read here.  Differences are B minus A, so that a positive one is B's gain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from evalray.compare.columns import MEASURES, Array, RunColumns
from evalray.stats_paired import (
    PairedDifference,
    holm_adjusted,
    mcnemar_test,
    paired_bootstrap,
    paired_difference,
    paired_z_test,
)

Indices = npt.NDArray[np.int64]


@dataclass(slots=True, frozen=True)
class Overlap:
    """Which records the two runs share, and which of those both have a score for."""

    common: int
    only_a: int
    only_b: int
    scored_in_both: int
    scored_only_in_a: int
    """Of the common records."""
    scored_only_in_b: int
    scored_in_neither: int


@dataclass(slots=True)
class Difference:
    """Two means over the same ``n`` records, and B's minus A's with its 95 % interval."""

    n: int
    a: float
    b: float
    difference: float
    standard_error: float | None
    ci95: tuple[float, float] | None
    wins: int
    """Records in which B scores higher."""
    losses: int
    ties: int
    p_value: float | None
    test: str
    """``mcnemar``, ``bootstrap`` or ``z``."""
    p_adjusted: float | None = None
    """Holm's, over what stands in the same table."""
    bootstrap_ci95: tuple[float, float] | None = None

    @property
    def excludes_zero(self) -> bool:
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)


@dataclass(slots=True, frozen=True)
class MeasureChange:
    """A measurement over the ``n`` records in which both runs took it."""

    name: str
    label: str
    n: int
    median_a: float
    median_b: float
    mean_a: float
    mean_b: float
    ratio: float | None
    """Median of B over median of A; ``None`` where A's is 0."""


@dataclass(slots=True)
class Figures:
    """Everything of one comparison that comes from rows.

    ``accuracy`` is ``None`` where no record was scored in both.  ``score`` is there only where scores
    are graded finer than right and wrong.
    """

    overlap: Overlap
    accuracy: Difference | None
    score: Difference | None = None
    subjects: dict[str, Difference] = field(default_factory=dict)
    measures: list[MeasureChange] = field(default_factory=list)


def shared_records(a: RunColumns, b: RunColumns) -> tuple[Indices, Indices]:
    """Indices of the common records in each run, in the order of the first."""
    places = {record_id: place for place, record_id in enumerate(b.record_ids)}
    pairs = [(i, places[record_id]) for i, record_id in enumerate(a.record_ids) if record_id in places]
    matched = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return matched[:, 0], matched[:, 1]


def compute(a: RunColumns, b: RunColumns, *, resamples: int = 10_000, seed: int = 0) -> Figures:
    """Compare two runs record by record."""
    in_a, in_b = shared_records(a, b)
    accuracy_a, accuracy_b = a.accuracy[in_a], b.accuracy[in_b]
    scored_a, scored_b = np.isfinite(accuracy_a), np.isfinite(accuracy_b)
    both = scored_a & scored_b
    overlap = Overlap(
        common=int(in_a.size),
        only_a=len(a.record_ids) - int(in_a.size),
        only_b=len(b.record_ids) - int(in_b.size),
        scored_in_both=int(both.sum()),
        scored_only_in_a=int((scored_a & ~scored_b).sum()),
        scored_only_in_b=int((scored_b & ~scored_a).sum()),
        scored_in_neither=int((~scored_a & ~scored_b).sum()),
    )
    figures = Figures(overlap, None)
    if overlap.scored_in_both:
        binary = a.is_binary and b.is_binary and a.epochs == b.epochs == 1
        mine, other = accuracy_a[both], accuracy_b[both]
        figures.accuracy = _tested(mine, other, binary=binary, resamples=resamples, seed=seed)
        figures.subjects = _by_subject(_subjects(a, b, in_a, in_b, both), mine, other, binary=binary)
    if _is_graded(a) or _is_graded(b):
        figures.score = _graded(a.score[in_a], b.score[in_b], resamples, seed)
    figures.measures = _measures(a, b, in_a, in_b)
    return figures


def _difference(a: Array, b: Array, p_value: float | None, test: str) -> Difference:
    change = b - a
    # The mean of a third and two thirds is not exactly that of their sum: noise is no win.
    change[np.abs(change) < 1e-12] = 0.0
    paired: PairedDifference = paired_difference(change)
    wins, losses = int((change > 0).sum()), int((change < 0).sum())
    return Difference(
        n=paired.n,
        a=float(a.mean()),
        b=float(b.mean()),
        difference=paired.difference,
        standard_error=paired.standard_error,
        ci95=paired.ci95,
        wins=wins,
        losses=losses,
        ties=paired.n - wins - losses,
        p_value=p_value,
        test=test,
    )


def _tested(a: Array, b: Array, *, binary: bool, resamples: int, seed: int) -> Difference:
    """McNemar where every record is right or wrong, else a paired bootstrap."""
    if binary:
        return _difference(a, b, _mcnemar(a, b), "mcnemar")
    result = paired_bootstrap(b - a, resamples=resamples, seed=seed)
    difference = _difference(a, b, result.p_value, "bootstrap")
    difference.bootstrap_ci95 = result.ci95
    return difference


def _mcnemar(a: Array, b: Array) -> float:
    return mcnemar_test(int((a > b).sum()), int((b > a).sum()))


def _is_graded(run: RunColumns) -> bool:
    """Its scores say more than right and wrong."""
    both = np.isfinite(run.score) & np.isfinite(run.accuracy)
    return not np.array_equal(run.score[both], run.accuracy[both])


def _graded(a: Array, b: Array, resamples: int, seed: int) -> Difference | None:
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if not a.size:
        return None
    return _tested(a, b, binary=False, resamples=resamples, seed=seed)


def _subjects(
    a: RunColumns, b: RunColumns, in_a: Indices, in_b: Indices, keep: npt.NDArray[np.bool_]
) -> list[str]:
    """The subject of each kept record: A's, else B's, else an empty text."""
    pairs = zip(in_a[keep].tolist(), in_b[keep].tolist(), strict=True)
    return [a.subjects[i] or b.subjects[j] or "" for i, j in pairs]


def _by_subject(subjects: list[str], a: Array, b: Array, *, binary: bool) -> dict[str, Difference]:
    """A comparison within each subject, p-values corrected for how many there are."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(subject, len(numbers)) for subject in subjects], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes, minlength=len(numbers)))[:-1])
    found = {}
    for name, rows in sorted(zip(numbers, groups, strict=True)) if len(numbers) > 1 else ():
        if name:
            mine, other = a[rows], b[rows]
            p_value = _mcnemar(mine, other) if binary else paired_z_test(other - mine)
            found[name] = _difference(mine, other, p_value, "mcnemar" if binary else "z")
    for difference, p in zip(found.values(), holm_adjusted([d.p_value for d in found.values()]), strict=True):
        difference.p_adjusted = p
    return found


def _measures(a: RunColumns, b: RunColumns, in_a: Indices, in_b: Indices) -> list[MeasureChange]:
    changes = []
    for name, label in MEASURES.items():
        mine, other = a.measures[name][in_a], b.measures[name][in_b]
        both = np.isfinite(mine) & np.isfinite(other)
        if not both.any():
            continue
        mine, other = mine[both], other[both]
        median_a, median_b = float(np.median(mine)), float(np.median(other))
        changes.append(
            MeasureChange(
                name=name,
                label=label,
                n=int(both.sum()),
                median_a=median_a,
                median_b=median_b,
                mean_a=float(mine.mean()),
                mean_b=float(other.mean()),
                ratio=median_b / median_a if median_a else None,
            )
        )
    return changes
