"""Figures that a server gives of itself: taken where they can be what they say, else not measured.

An integer of JSON has no largest value and a float of it may be NaN: neither must reach a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LARGEST = 2**62


def count_of(value: Any) -> int | None:
    """A number of tokens and the like."""
    return value if type(value) is int and 0 <= value < _LARGEST else None


def measure_of(value: Any) -> float | None:
    """A cost or a time, which is never negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return None
    return float(value)


def measures_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of ``values`` that are measures."""
    return {name: number for name, value in values.items() if (number := measure_of(value)) is not None}
