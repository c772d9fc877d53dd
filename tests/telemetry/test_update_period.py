from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evalray.telemetry.meters import nvidia_meters
from evalray.telemetry.update_period import infer_update_periods


@pytest.mark.parametrize("period", [0.01, 0.02, 0.05, 0.1])
def test_the_period_of_a_counter_is_found(
    stub_devices: Callable[[Sequence[dict[str, Any]]], Any], period: float
) -> None:
    clock = stub_devices([{"power": [(0, 400.0)], "period": period}])
    (meter,) = nvidia_meters()
    (found,) = infer_update_periods([meter.read_counter], clock=clock.now, sleep=clock.advance)
    assert found == pytest.approx(period, abs=0.0025)


def test_a_counter_that_stands_still_has_no_period_and_ends_in_time() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    counters: list[Callable[[], float | None]] = [lambda: 5.0, lambda: None]
    assert infer_update_periods(counters, clock=lambda: now[0], sleep=sleep) == [None, None]
    assert now[0] < 1.0
