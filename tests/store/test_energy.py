"""Totals of energy in a summary, from columns with NaN where nothing was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evalray.store.energy import set_device_figures
from evalray.types import RunSummary

_NAN = float("nan")


def _summary(
    energy: list[float],
    correct: list[float],
    tokens: list[float],
    *,
    warmup: list[float] | None = None,
    flops: list[float] | None = None,
    accuracy: float | None = 0.5,
    **run: Any,
) -> RunSummary:
    columns = {
        "energy_joules": energy,
        "is_correct": correct,
        "completion_tokens": tokens,
        "warmup": warmup or [_NAN] * len(energy),
        "flops": flops or [_NAN] * len(energy),
    }
    summary = RunSummary("b", "c", "jarvis-direct", "m", len(energy), len(energy), 1, accuracy, 0, None, None)
    set_device_figures(summary, lambda name: np.array(columns[name], dtype=np.float64), run)
    return summary


@pytest.mark.parametrize(
    ("energy", "correct", "tokens", "total", "per_correct", "per_joule"),
    [
        ([2.0, 4.0], [1, 0], [3, 9], 6.0, 6.0, 2.0),
        ([2.0, 4.0], [0, 0], [3, 9], 6.0, None, 2.0),
        ([2.0, 4.0], [_NAN, _NAN], [3, 9], 6.0, None, 2.0),
        ([2.0, _NAN], [1, 1], [4, 100], 2.0, 2.0, 2.0),
        ([2.0, 4.0], [1, 1], [_NAN, _NAN], 6.0, 3.0, None),
        ([0.0, 0.0], [1, 1], [3, 9], 0.0, 0.0, None),
        ([_NAN, _NAN], [1, 1], [3, 9], None, None, None),
        ([], [], [], None, None, None),
    ],
    ids=[
        "both",
        "none right",
        "none graded",
        "one measured",
        "no tokens",
        "zero measured",
        "not measured",
        "no rows",
    ],
)
def test_totals_are_of_what_was_measured(
    energy: list[float],
    correct: list[float],
    tokens: list[float],
    total: float | None,
    per_correct: float | None,
    per_joule: float | None,
) -> None:
    summary = _summary(energy, correct, tokens)
    found = summary.total_energy_joules, summary.joules_per_correct, summary.tokens_per_joule
    assert found == (total, per_correct, per_joule)


def test_warm_up_is_in_no_total() -> None:
    summary = _summary([8.0, 2.0], [1, 1], [50, 4], warmup=[1, 0], flops=[7.0, 3.0])
    assert (summary.total_energy_joules, summary.joules_per_correct) == (2.0, 2.0)
    assert (summary.tokens_per_joule, summary.total_flops) == (2.0, 3.0)
    assert summary.warmup_samples_excluded == 1


@pytest.mark.parametrize(
    ("accuracy", "watts", "expected"),
    [(0.5, 100.0, 0.005), (0.0, 100.0, 0.0), (None, 100.0, None), (0.5, None, None)],
)
def test_accuracy_per_watt_needs_both(
    accuracy: float | None, watts: float | None, expected: float | None
) -> None:
    assert _summary([1.0], [1], [1], accuracy=accuracy, avg_power_watts=watts).accuracy_per_watt == expected


def test_the_runs_own_figures_are_taken_as_they_are_and_missing_ones_are_none() -> None:
    summary = _summary(
        [1.0], [1], [1], idle_joules=0.0, invalid_seconds=2.5, peak="p", steady={"joules_per_token": 3.0}
    )
    assert (summary.idle_joules, summary.energy_invalid_seconds, summary.utilization_peak) == (0.0, 2.5, "p")
    assert summary.steady_state_joules_per_token == 3.0
    assert (summary.device_joules, summary.mfu_pct, summary.energy_method) == (None, None, None)
