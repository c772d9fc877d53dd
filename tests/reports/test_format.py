"""Figures read well, and what was not measured is never a zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from evalray.reports import format as figures


@pytest.mark.parametrize(
    "shown",
    [
        figures.percent,
        figures.count,
        figures.seconds,
        figures.rate,
        figures.dollars,
        figures.joules,
        figures.moment,
    ],
)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_unmeasured_and_nonfinite_figures_are_a_dash(
    shown: Callable[[float | None], str], value: float | None
) -> None:
    assert shown(value) == figures.DASH


@pytest.mark.parametrize(
    ("shown", "value", "text"),
    [
        (figures.percent, 0.0, "0.0 %"),
        (figures.percent, 0.4325, "43.2 %"),
        (figures.count, 0, "0"),
        (figures.count, 1234567, "1\u202f234\u202f567"),
        (figures.seconds, 0.0, "0 ms"),
        (figures.seconds, 0.0029, "2.9 ms"),
        (figures.seconds, 0.25, "250 ms"),
        (figures.seconds, 0.9999, "1.00 s"),
        (figures.seconds, 12.34, "12.3 s"),
        (figures.seconds, 59.99, "1 min 00 s"),
        (figures.seconds, 125, "2 min 05 s"),
        (figures.seconds, 7380, "2 h 03 min"),
        (figures.rate, 3.14159, "3.14"),
        (figures.rate, 12345, "12\u202f345"),
        (figures.dollars, 0.0, "$0.00"),
        (figures.dollars, 12.5, "$12.50"),
        (figures.dollars, 0.0123, "$0.012"),
        (figures.joules, 25_000, "25.0 kJ"),
        (figures.joules, 8907.6, "8\u202f908 J"),
        (figures.joules, 999.7, "1\u202f000 J"),
        (figures.joules, 742.3, "742 J"),
        (figures.joules, 0.01234, "0.0123 J"),
        (figures.grams, 1234.5, "1\u202f234 g"),
        (figures.moment, 0, "1970-01-01 00:00:00 UTC"),
    ],
)
def test_a_figure_has_the_unit_that_keeps_it_short(
    shown: Callable[[float], str], value: float, text: str
) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("bounds", [None, (math.nan, 1.0)])
def test_an_interval_without_bounds_is_a_dash(bounds: tuple[float, float] | None) -> None:
    assert figures.interval(bounds) == figures.DASH


@pytest.mark.parametrize(
    ("bounds", "text"),
    [((0.381, 0.484), "38.1–48.4"), ((0.99991, 0.99999), "99.99–100.00"), ((0.5, 0.5), "50.0–50.0")],
)
def test_an_interval_of_some_width_shows_it(bounds: tuple[float, float], text: str) -> None:
    assert figures.interval(bounds) == text


@pytest.mark.parametrize(("value", "text"), [(0.99999, "99.99 %"), (0.00001, "0.01 %"), (1.0, "100.0 %")])
def test_all_and_none_are_never_the_work_of_rounding(value: float, text: str) -> None:
    assert figures.percent(value) == text
