from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evalray.telemetry.meters import nvidia_meters
from evalray.telemetry.update_period import observe_counters


@pytest.mark.parametrize("period", [0.01, 0.02, 0.05, 0.1])
def test_the_period_of_a_counter_is_found(
    stub_devices: Callable[[Sequence[dict[str, Any]]], Any], period: float
) -> None:
    clock = stub_devices([{"power": [(0, 400.0)], "period": period}])
    (meter,) = nvidia_meters()
    (found,) = observe_counters([meter.read_counter], clock=clock.now, sleep=clock.advance).periods
    assert found == pytest.approx(period, abs=0.0025)


def test_a_counter_that_stands_still_has_no_period_and_ends_in_time() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    counters: list[Callable[[], float | None]] = [lambda: 5.0, lambda: None]
    assert observe_counters(counters, clock=lambda: now[0], sleep=sleep).periods == [None, None]
    assert now[0] < 1.0


def test_the_cost_of_a_read_is_measured() -> None:
    def dear() -> float:
        return float(sum(range(20_000)))

    assert observe_counters([dear], budget_seconds=0.05).read_seconds > 1e-5
