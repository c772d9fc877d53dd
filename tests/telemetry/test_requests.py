from __future__ import annotations

import math

import pytest

from evalray.telemetry.requests import ClockMap, RequestLog
from evalray.telemetry.series import ClockPair
from evalray.types import Generation, Timeline

_CLOCK = ClockMap([ClockPair(100.0, 1_000_100.0), ClockPair(200.0, 1_000_201.0)])


def _only(generation: Generation) -> dict[str, float]:
    log = RequestLog()
    assert log.add_generation(0, generation, _CLOCK) == 0
    columns = log.columns()
    return {
        name: float(getattr(columns, name)[0]) for name in ("sent", "prefill_start", "first_token", "end")
    }


@pytest.mark.parametrize(
    ("wall", "monotonic"),
    [(1_000_100.0, 100.0), (1_000_150.5, 150.0), (1_000_201.0, 200.0), (999_999.0, -1.0)],
)
def test_a_wall_clock_that_is_slewed_is_followed(wall: float, monotonic: float) -> None:
    assert _CLOCK.to_monotonic(wall) == pytest.approx(monotonic)


def test_client_marks_are_taken_where_the_engine_gives_none() -> None:
    times = _only(
        Generation(
            timeline=Timeline(sent_at=1_000_100.0, latency_seconds=5.0, ttft_seconds=1.0, decode_seconds=4.0)
        )
    )
    assert times == pytest.approx({"sent": 100, "prefill_start": 100, "first_token": 101, "end": 105})


def test_the_engines_own_marks_come_before_the_clients() -> None:
    server = {
        "scheduled_monotonic": 100.6,
        "first_token_monotonic": 100.9,
        "last_token_monotonic": 104.9,
        "queue_seconds": 0.5,
    }
    line = Timeline(sent_at=1_000_100.0, latency_seconds=5.0, ttft_seconds=1.0, server=server)
    assert _only(Generation(timeline=line)) == pytest.approx(
        {"sent": 100, "prefill_start": 100.6, "first_token": 100.9, "end": 104.9}
    )


@pytest.mark.parametrize("server", [{"prompt_ms": 250.0}, {"prompt_eval_duration_seconds": 0.25}])
def test_queueing_is_left_out_of_prefill_where_the_server_times_its_prompt(server: dict[str, float]) -> None:
    line = Timeline(sent_at=1_000_100.0, latency_seconds=5.0, ttft_seconds=1.0, server=server)
    assert _only(Generation(timeline=line))["prefill_start"] == pytest.approx(100.75)


def test_a_reply_without_tokens_streamed_has_no_first_token() -> None:
    line = Timeline(sent_at=1_000_100.0, completed_at=1_000_105.0)
    times = _only(Generation(timeline=line, error="boom"))
    assert math.isnan(times["first_token"])
    assert times["end"] == pytest.approx(104.95, abs=0.01)


@pytest.mark.parametrize("line", [Timeline(), Timeline(sent_at=1_000_100.0)])
def test_a_request_without_times_is_left_out(line: Timeline) -> None:
    assert RequestLog().add_generation(0, Generation(timeline=line), _CLOCK) is None


def test_times_out_of_order_are_put_in_order() -> None:
    log = RequestLog()
    log.add(0, sent=10.0, end=9.0, prefill_start=8.0, first_token=20.0)
    log.add(0, sent=10.0, end=12.0, prefill_start=15.0, first_token=11.0)
    columns = log.columns()
    assert (columns.sent <= columns.prefill_start).all()
    assert (columns.prefill_start <= columns.first_token).all()
    assert (columns.first_token <= columns.end).all()


def test_without_clock_readings_there_is_no_map() -> None:
    with pytest.raises(ValueError, match="clock"):
        ClockMap([])
