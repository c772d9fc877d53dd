"""Compare runs or sweeps by their paths, and say whether the second is a regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evalray.compare.columns import RunColumns, read_columns
from evalray.compare.compatibility import Compatibility, check, reference_conflict
from evalray.compare.figures import Difference, Figures, compute, shared_records
from evalray.compare.sources import RunSource, find_runs, match_runs
from evalray.errors import ConfigError, Problem
from evalray.stats_paired import holm_adjusted

#: With fewer, no outcome whatever reaches 5 % in an exact test: 5 losses of 5 have p = 0.0625.
MIN_RECORDS_FOR_VERDICT = 6
MIN_SHARE_SCORED = 0.5
_FEW_RECORDS = 30
_LARGE_SHARE_UNSCORED = 0.01
SIGNIFICANCE = 0.05
#: Run totals that are shown side by side, from the summaries.
TOTALS = {
    "output_tokens_per_second": "whole run's output tokens/s",
    "samples_per_second": "whole run's samples/s",
    "wall_seconds": "whole run's wall time, s",
    "total_cost_usd": "total cost, USD",
    "total_energy_joules": "total energy, J",
    "total_input_tokens": "total prompt tokens",
    "total_output_tokens": "total output tokens",
}


@dataclass(slots=True)
class Comparison:
    """Run B against run A, the baseline."""

    a: RunSource
    b: RunSource
    figures: Figures
    totals: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    outcomes: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Sampling and the like that differ, with both values."""
    warnings: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    """Reasons not to compare that were overruled."""
    regression: bool | None = None
    """``None`` where it was not asked."""

    @property
    def accuracy(self) -> Difference | None:
        return self.figures.accuracy


@dataclass(slots=True)
class ComparisonReport:
    """All comparisons of one command."""

    comparisons: list[Comparison] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    threshold: float | None = None

    @property
    def regression(self) -> bool | None:
        """Whether any comparison is one; ``None`` where it was not asked."""
        asked = [c.regression for c in self.comparisons if c.regression is not None]
        return any(asked) if asked else None

    def fields(self) -> dict[str, Any]:
        """Plain data: the fields of the JSON object."""
        return {
            "comparisons": [_comparison_fields(comparison) for comparison in self.comparisons],
            "unmatched": self.unmatched,
            "threshold": self.threshold,
            "regression": self.regression,
        }


def compare_paths(
    baseline: Path,
    candidates: Sequence[Path],
    *,
    allow_different: bool = False,
    regression_threshold: float | None = None,
    seed: int = 0,
) -> ComparisonReport:
    """Compare each candidate with the baseline; all are runs or sweep directories.

    With a ``regression_threshold`` -- a drop of accuracy as a fraction, e.g. 0.01 -- each comparison
    says whether B is significantly worse by more than that.  ``allow_different`` compares other
    benchmarks, prompts, data or scorers all the same.  ``seed`` is the bootstrap's.

    Raises :class:`ConfigError` where the runs cannot be compared or share too few scored records,
    :class:`~evalray.errors.StoreError` for files that cannot be read.
    """
    if not candidates:
        raise ConfigError([Problem("compare", "", "needs at least two runs or sweeps")])
    if regression_threshold is not None and not 0 <= regression_threshold < 1:
        raise ConfigError([Problem("compare", "--threshold", f"{regression_threshold:g} is not in [0, 1)")])
    report = ComparisonReport(threshold=regression_threshold)
    first = find_runs(baseline)
    pairs = []
    for path in candidates:
        matching = match_runs(first, find_runs(path))
        if not matching.pairs:
            message = f"no run of {path} has a partner in {baseline} by benchmark and model"
            raise ConfigError([Problem("compare", "", message, "name the run directories themselves")])
        pairs += matching.pairs
        report.unmatched += matching.unmatched
    kept: tuple[RunSource, RunColumns] | None = None
    for a, b in pairs:
        if kept is None or kept[0] is not a:
            kept = (a, read_columns(a.rows))
        report.comparisons.append(_compare(a, kept[1], b, allow_different=allow_different, seed=seed))
    _adjust(report.comparisons)
    if regression_threshold is not None:
        for comparison in report.comparisons:
            several = len(report.comparisons) > 1
            comparison.regression = _is_regression(comparison, regression_threshold, several=several)
    return report


def _compare(
    a: RunSource, columns_a: RunColumns, b: RunSource, *, allow_different: bool, seed: int
) -> Comparison:
    compatibility = check(a, b)
    _refuse(a, b, compatibility, allow_different)
    columns_b = read_columns(b.rows)
    in_a, in_b = shared_records(columns_a, columns_b)
    references = (
        (columns_a.references[i], columns_b.references[j])
        for i, j in zip(in_a.tolist(), in_b.tolist(), strict=True)
    )
    conflict = reference_conflict(references)
    if conflict:
        compatibility.conflicts.append(conflict)
        _refuse(a, b, compatibility, allow_different)
    figures = compute(columns_a, columns_b, seed=seed)
    if figures.overlap.common == 0:
        hint = (
            "are these the same data? Ids of imported runs are positions: those compare with each other only"
        )
        raise _unequal(
            a, b, f"no record id is in both ({columns_a.rows:,} and {columns_b.rows:,} rows)", hint
        )
    if figures.overlap.scored_in_both < 2:
        message = (
            f"{figures.overlap.scored_in_both} of {figures.overlap.common:,} common records scored in both"
        )
        raise _unequal(a, b, message, "not enough overlap: two are the least")
    totals = {
        name: (_total(a, name), _total(b, name))
        for name in TOTALS
        if _total(a, name) is not None or _total(b, name) is not None
    }
    return Comparison(
        a,
        b,
        figures,
        totals,
        (columns_a.outcomes, columns_b.outcomes),
        compatibility.settings,
        [*compatibility.warnings, *_overlap_warnings(figures)],
        compatibility.conflicts,
    )


def _refuse(a: RunSource, b: RunSource, found: Compatibility, allow_different: bool) -> None:
    if found.conflicts and not allow_different:
        raise _unequal(a, b, "; ".join(found.conflicts), "--allow-different compares them all the same")


def _unequal(a: RunSource, b: RunSource, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(f"{a.path} and {b.path}", "", message, hint)])


def _overlap_warnings(figures: Figures) -> list[str]:
    overlap = figures.overlap
    found = []
    for only, side in ((overlap.only_a, "A"), (overlap.only_b, "B")):
        if only:
            found.append(f"{_records(only)} only in {side}: left out")
    for count, side, other in ((overlap.scored_only_in_b, "A", "B"), (overlap.scored_only_in_a, "B", "A")):
        if count > _LARGE_SHARE_UNSCORED * overlap.common:
            found.append(
                f"{_records(count)} with a score in {other} and none in {side} (errors, skipped) left out: "
                "were they harder than the rest, the difference is off"
            )
    if overlap.scored_in_both < _FEW_RECORDS:
        found.append(f"only {overlap.scored_in_both} paired records: the interval is rough")
    return found


def _records(count: int) -> str:
    return f"{count:,} record" if count == 1 else f"{count:,} records"


def _total(run: RunSource, name: str) -> float | None:
    value = run.summary.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _adjust(comparisons: list[Comparison]) -> None:
    """Holm's correction over all comparisons of the command."""
    differences = [c.accuracy for c in comparisons if c.accuracy is not None]
    for difference, p in zip(differences, holm_adjusted([d.p_value for d in differences]), strict=True):
        difference.p_adjusted = p


def _is_regression(comparison: Comparison, threshold: float, *, several: bool) -> bool:
    """The interval lies below zero and the drop exceeds the threshold.

    Of several comparisons each must hold after Holm's correction too: twenty at 95 % would raise a
    false alarm in two of five builds.  Raises :class:`ConfigError` where too little overlaps to tell.
    """
    overlap, change = comparison.figures.overlap, comparison.accuracy
    enough = overlap.scored_in_both >= MIN_SHARE_SCORED * overlap.common
    if change is None or change.n < MIN_RECORDS_FOR_VERDICT or not enough:
        message = (
            f"not enough overlap for a verdict: {overlap.scored_in_both:,} of {overlap.common:,} common "
            f"records are scored in both"
        )
        hint = f"at least {MIN_RECORDS_FOR_VERDICT}, and {MIN_SHARE_SCORED:.0%} of the common ones"
        raise _unequal(comparison.a, comparison.b, message, hint)
    certain = not several or (change.p_adjusted is not None and change.p_adjusted < SIGNIFICANCE)
    return change.difference < 0 and change.excludes_zero and certain and -change.difference > threshold


def _comparison_fields(comparison: Comparison) -> dict[str, Any]:
    figures = comparison.figures
    return {
        "a": _run_fields(comparison.a, comparison.outcomes[0]),
        "b": _run_fields(comparison.b, comparison.outcomes[1]),
        "overlap": asdict(figures.overlap),
        "accuracy": None if figures.accuracy is None else asdict(figures.accuracy),
        "score": None if figures.score is None else asdict(figures.score),
        "subjects": {name: asdict(difference) for name, difference in figures.subjects.items()},
        "measures": {change.name: asdict(change) for change in figures.measures},
        "totals": {name: {"a": a, "b": b} for name, (a, b) in comparison.totals.items()},
        "settings": {name: {"a": a, "b": b} for name, (a, b) in comparison.settings.items()},
        "conflicts": comparison.conflicts,
        "warnings": comparison.warnings,
        "regression": comparison.regression,
    }


def _run_fields(run: RunSource, outcomes: dict[str, int]) -> dict[str, Any]:
    return {
        "path": str(run.path.absolute()),
        "benchmark": run.benchmark,
        "model": run.model,
        "outcomes": outcomes,
        "accuracy_of_all_its_records": run.summary.get("accuracy"),
    }
