"""Figures as a reader wants them.  What was not measured, or is not finite, is a dash, never a zero."""

from __future__ import annotations

import math
from datetime import UTC, datetime

DASH = "–"


def is_measured(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def percent(value: float | None) -> str:
    """A fraction in [0, 1] as a percentage with one decimal; 0 and 100 are none and all, never rounded to."""
    if value is None or not math.isfinite(value):
        return DASH
    if 0.0 < value < 1.0 and not 0.0005 <= value < 0.9995:
        return f"{min(max(value * 100, 0.01), 99.99):.2f} %"
    return f"{value * 100:.1f} %"


def interval(bounds: tuple[float, float] | None) -> str:
    """The bounds of an interval of fractions in percent, with the decimals it takes to tell them apart."""
    if bounds is None or not all(map(math.isfinite, bounds)):
        return DASH
    for decimals in (1, 2, 3):
        low, high = (f"{bound * 100:.{decimals}f}" for bound in bounds)
        if low != high or bounds[0] == bounds[1]:
            break
    return f"{low}–{high}"


def count(value: float | None) -> str:
    """An integer with thin thousands separators."""
    return f"{round(value):,}".replace(",", "\u202f") if value is not None and math.isfinite(value) else DASH


def seconds(value: float | None) -> str:
    """A duration in the unit that keeps it readable: ms, s, min or h."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) < 0.9995:
        return f"{value * 1000:.0f} ms" if abs(value) >= 0.01 or value == 0 else f"{value * 1000:.2g} ms"
    if value < 59.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def significant(value: float, digits: int) -> str:
    """A finite number to so many significant figures, more where its integer part has more: no exponent of ten
    for what is large."""
    return count(value) if round(abs(value)) >= 10**digits else f"{value:.{digits}g}"


def rate(value: float | None) -> str:
    """A rate to three significant figures."""
    if value is None or not math.isfinite(value):
        return DASH
    return count(value) if abs(value) >= 1000 else f"{value:.3g}"


def dollars(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return (
        f"${value:,.2f}"
        if value >= 1 or value == 0
        else f"${value:.2g}"
        if value >= 1e-4
        else f"${value:.1e}"
    )


def joules(value: float | None) -> str:
    """An energy in J or kJ."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value / 1000:.1f} kJ" if abs(value) >= 10_000 else f"{significant(value, 3)} J"


def grams(value: float | None) -> str:
    """A mass in g or kg."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value / 1000:.1f} kg" if abs(value) >= 10_000 else f"{significant(value, 3)} g"


def moment(unix_seconds: float | None) -> str:
    """A point in time in UTC, to the second."""
    if unix_seconds is None or not math.isfinite(unix_seconds):
        return DASH
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def share(value_pct: float | None) -> str:
    """A utilisation that is in percent already: three digits that say something, however small."""
    return DASH if value_pct is None else f"{value_pct:.3g} %"
