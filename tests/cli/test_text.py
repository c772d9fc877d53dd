from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.cli.text import bounds, count, duration, percent, quoted_block, rate, safe_line, safe_text


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=())))
def test_safe_text_never_holds_what_a_terminal_acts_on(text: str) -> None:
    safe = safe_text(text)
    assert all(character == "\n" or unicodedata.category(character) not in ("Cc", "Cs") for character in safe)
    assert not set(safe) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    safe.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\x00b", "a␀b"),
        ("over\rwritten", "over␍written"),
        ("del\x7f", "del␡"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("two\r\nlines", "two\nlines"),
    ],
)
def test_control_characters_are_shown_not_sent(text: str, shown: str) -> None:
    assert safe_text(text) == shown


def test_cut_text_says_how_much_is_left_out() -> None:
    assert safe_text("x" * 10_000_000, 600) == "x" * 600 + "… (9,999,400 more characters)"


@given(st.text(max_size=300), st.integers(5, 100))
def test_safe_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = safe_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


def test_every_line_of_quoted_output_stands_behind_a_bar() -> None:
    block = quoted_block("evalray: done\n\nexit code 0", 600)
    assert [line[:4] for line in block.split("\n")] == ["  | "] * 3


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (99_999, "99,999"), (250_000, "250k"), (5_050_000, "5.05M")]
)
def test_counts_stay_within_six_characters(number: int, shown: str) -> None:
    assert count(number) == shown


@given(st.floats(0, 1e8))
def test_rates_stay_within_six_characters(value: float) -> None:
    assert len(rate(value)) <= 6


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "–"), (0, "0:00"), (59.6, "1:00"), (3_723, "1:02:03"), (200_000, "2d07h")]
)
def test_durations_read_like_a_clock(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_what_was_not_measured_is_a_dash_and_zero_is_a_figure() -> None:
    assert (percent(None), rate(None)) == ("–", "–")
    assert (percent(0.0), rate(0.0)) == ("0.0%", "0.00")


@pytest.mark.parametrize(
    ("fraction", "text"), [(1.0, "100.0%"), (0.99999, "99.99%"), (0.9994, "99.9%"), (0.00001, "0.01%")]
)
def test_all_and_none_are_never_the_work_of_rounding(fraction: float, text: str) -> None:
    assert percent(fraction) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.572, 0.627, "57–63"),
        (0.998, 1.0, "99.8–100"),
        (0.9998, 1.0, "99.98–100"),
        (0.5719, 0.5731, "57.2–57.3"),
        (0.0, 0.002, "0–0.2"),
        (1.0, 1.0, "100–100"),
    ],
)
def test_an_interval_shows_the_decimals_that_tell_its_ends_apart(low: float, high: float, text: str) -> None:
    assert bounds(low, high) == text
