from __future__ import annotations

import numpy as np
import pytest

from evalray.telemetry.requests import RequestLog
from evalray.telemetry.steady import steady_state
from evalray.telemetry.windows import EnergyCurve, Integral


def _curve(watts: float, seconds: float, valid: float = 1.0) -> EnergyCurve:
    start, end = np.array([0.0]), np.array([seconds])
    spans = np.array([seconds * valid])
    return EnergyCurve(
        Integral.of(start, end, watts * spans),
        Integral.of(start, end, spans),
        Integral.of(start, end, np.zeros(1)),
        Integral.of(start, end, np.zeros(1)),
    )


def _log(count: int, concurrency: int) -> RequestLog:
    """``concurrency`` at a time in waves of 1 s; first token after 0.2 s, 81 tokens, one each 10 ms."""
    log = RequestLog()
    for index in range(count):
        sent = float(index // concurrency)
        log.add(0, sent=sent, first_token=sent + 0.2, end=sent + 1.0, prompt_tokens=5, output_tokens=81)
    return log


def test_the_window_is_from_a_full_batch_to_the_last_refill() -> None:
    columns = _log(40, 4).columns()
    found = steady_state(columns, np.arange(40), [_curve(100.0, 20.0)], 4)
    assert found.reached
    # The 4th first token comes at 0.2 s; the 35th of 40 requests ends at 9 s.
    assert (found.start, found.end) == (pytest.approx(0.2), pytest.approx(9.0))
    assert found.output_tokens == pytest.approx(4 * 80 + 8 * 4 * 81)
    assert found.energy_joules == pytest.approx(880.0)
    assert found.joules_per_token == pytest.approx(880.0 / (4 * 80 + 8 * 4 * 81))


def test_two_devices_are_summed() -> None:
    columns = _log(40, 4).columns()
    found = steady_state(columns, np.arange(40), [_curve(100.0, 20.0), _curve(50.0, 20.0)], 4)
    assert found.energy_joules == pytest.approx(1320.0)


@pytest.mark.parametrize(("count", "concurrency"), [(5, 4), (4, 4), (1, 1), (8, 7), (0, 4)])
def test_too_few_requests_reach_no_steady_state(count: int, concurrency: int) -> None:
    found = steady_state(
        _log(count, concurrency).columns(), np.arange(count), [_curve(1.0, 9.0)], concurrency
    )
    assert not found.reached
    assert found.joules_per_token is None
    assert found.reason


def test_energy_that_was_not_measured_throughout_is_no_headline() -> None:
    found = steady_state(_log(40, 4).columns(), np.arange(40), [_curve(100.0, 20.0, valid=0.9)], 4)
    assert found.reached
    assert found.joules_per_token is None
    assert "throughout" in found.reason


def test_without_a_meter_the_window_is_known_and_its_energy_is_not() -> None:
    found = steady_state(_log(40, 4).columns(), np.arange(40), [], 4)
    assert (found.reached, found.energy_joules, found.reason) == (True, None, "no meter")
