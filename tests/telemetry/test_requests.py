from __future__ import annotations

import math
from typing import Any

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


@pytest.mark.parametrize(
    "line",
    [
        Timeline(),
        Timeline(sent_at=1_000_100.0),
        Timeline(sent_at=math.nan, latency_seconds=1.0),
        Timeline(sent_at=1_000_100.0, latency_seconds=math.nan),
    ],
)
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


@pytest.mark.parametrize("step", [3600.0, -3600.0, 5.0, -5.0, -172_800.0])
@pytest.mark.parametrize("at", [99.9, 100.1, 150.0])
def test_a_request_stays_where_it_was_when_a_time_server_moves_the_clock(step: float, at: float) -> None:
    def wall(monotonic: float) -> float:
        return 1e9 + monotonic + (step if monotonic >= 100.0 else 0.0)

    clock = ClockMap([ClockPair(float(at), wall(at)) for at in range(0, 200, 2)])
    line = Timeline(sent_at=wall(at), sent_monotonic=at, latency_seconds=5.0)
    assert clock.sent(line) == at


@pytest.mark.parametrize("mark", [None, 5e6, float("nan")])
def test_a_mark_of_another_clock_is_not_taken(mark: float | None) -> None:
    line = Timeline(sent_at=1_000_150.5, sent_monotonic=mark, latency_seconds=5.0)
    assert _CLOCK.sent(line) == pytest.approx(150.0)


@pytest.mark.parametrize(
    "server",
    [
        {"scheduled_monotonic": 1e6, "first_token_monotonic": 1e6 + 1, "last_token_monotonic": 1e6 + 2},
        {"scheduled_monotonic": -5.0, "first_token_monotonic": 1.0, "last_token_monotonic": 2.0},
        {"first_token_monotonic": math.nan},
        {"first_token_monotonic": "soon"},
        {"prompt_ms": -1e6},
        {"prompt_ms": None},
    ],
)
def test_marks_that_cannot_be_of_this_request_leave_it_the_clients_times(server: Any) -> None:
    line = Timeline(sent_at=1_000_100.0, latency_seconds=5.0, ttft_seconds=1.0, server=server)
    assert _only(Generation(timeline=line)) == pytest.approx(
        {"sent": 100, "prefill_start": 100, "first_token": 101, "end": 105}
    )


def test_without_clock_readings_there_is_no_map() -> None:
    with pytest.raises(ValueError, match="clock"):
        ClockMap([])
