from __future__ import annotations

import pytest

from evalray.runtime.breaker import CircuitBreaker, normalise_message


def test_the_same_failure_so_often_in_a_row_opens_it() -> None:
    breaker = CircuitBreaker(3)
    assert [breaker.failure("connection", f"refused, port {i}") for i in range(3)] == [False, False, True]
    assert "3 requests in a row failed the same way (connection: refused" in breaker.reason


def test_a_success_or_another_failure_starts_the_count_again() -> None:
    breaker = CircuitBreaker(3)
    for _ in range(5):
        breaker.failure("timeout", "no reply")
        breaker.failure("timeout", "no reply")
        breaker.success()
        breaker.failure("timeout", "no reply")
        breaker.failure("rate_limited", "no reply")
    assert not breaker.is_open


def test_a_threshold_of_zero_never_opens() -> None:
    breaker = CircuitBreaker(0)
    assert not any(breaker.failure("timeout", "x") for _ in range(100))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("request 17 failed after 3.5 s", "request 9 failed after 11.25 s"),
        ("object at 0x7f00aa", "object at 0x1200bb"),
        ("id 5f0e1c2b9d", "id a1b2c3d4e5"),
    ],
)
def test_numbers_and_ids_do_not_tell_failures_apart(one: str, other: str) -> None:
    assert normalise_message(one) == normalise_message(other)
