from __future__ import annotations

import datetime
import tomllib
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.pricing import Price, find_price, price_for
from evalray.errors import EngineStartError


@pytest.mark.parametrize(
    ("vendor", "model", "input_price"),
    [
        ("openai", "gpt-4o", 2.5),
        ("openai", "gpt-4o-2024-08-06", 2.5),
        ("openai", "gpt-4o-2024-05-13", 5.0),
        ("openai", "gpt-4o-mini", 0.15),
        ("openai", "gpt-4o-mini-2024-07-18", 0.15),
        ("anthropic", "claude-haiku-4-5-20251001", 1.0),
        ("anthropic", "claude-opus-4-5", 5.0),
        ("openai", "gpt-4o-audio-preview", None),
        ("openai", "gpt-4o-search-preview-2025-03-11", None),
        ("openai", "gpt-4", None),
        ("openai", "gpt-4o-", None),
        ("openai", "ft:gpt-4o:acme", None),
        ("openai", "claude-opus-4-5", None),
        ("anthropic", "claude-opus-4-5-fast", None),
        ("anthropic", "claude-opus-4", None),
        ("nobody", "gpt-4o", None),
    ],
)
def test_a_price_is_the_models_own_or_none(vendor: str, model: str, input_price: float | None) -> None:
    price = find_price(vendor, model)
    assert (price.input if price else None) == input_price


@pytest.mark.parametrize(
    ("price", "counts", "dollars"),
    [
        (Price(2.0, 10.0), (1_000_000, 100_000), 3.0),
        (Price(2.0, 10.0, cached_input=0.5), (1_000_000, 0, 400_000), 1.4),
        (Price(2.0, 10.0), (1_000_000, 0, 400_000), 2.0),
        (Price(2.0, 10.0, 0.5, cache_write=2.5), (1_000_000, 0, 400_000, 100_000), 1.45),
        (Price(2.0, 10.0), (1_000_000, 0, 0, 100_000), None),
        (Price(2.0, 10.0), (None, 5), None),
        (Price(2.0, 10.0), (5, None), None),
        (Price(0.0, 0.0), (5, 5), 0.0),
        (Price(1.0, 1.0, None, None, 1000, 2.0, 3.0), (1000, 1000), 0.002),
        (Price(1.0, 1.0, None, None, 1000, 2.0, 3.0), (1001, 1000), 0.005002),
    ],
)
def test_cost_counts_each_token_once_at_its_own_price(
    price: Price, counts: tuple[Any, ...], dollars: float | None
) -> None:
    assert price.cost_usd(*counts) == (None if dollars is None else pytest.approx(dollars))


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_cost_is_never_negative_and_never_above_the_uncached_one(
    prompt: int, completion: int, cached: int
) -> None:
    price = Price(2.0, 8.0, cached_input=0.5)
    cost = price.cost_usd(prompt, completion, min(cached, prompt))
    assert cost is not None
    assert 0 <= cost <= (price.cost_usd(prompt, completion) or 0) + 1e-9


def test_every_listed_price_has_a_date_and_a_source() -> None:
    text = resources.files("evalray.engines").joinpath("data/prices.toml").read_text("utf-8")
    for vendor, rows in tomllib.loads(text).items():
        assert len({row["model"] for row in rows}) == len(rows), vendor
        for row in rows:
            assert isinstance(row["as_of"], datetime.date), row
            assert row["source"].startswith("https://"), row
            assert 0 < row.get("cached_input", 0.001) <= row["input"] <= row["output"], row


def test_a_users_price_comes_before_the_listed_one() -> None:
    given = {"price_input_per_mtok": 1, "price_output_per_mtok": 2.0}
    price = price_for("openai", "gpt-4o", given)
    assert price is not None
    assert (price.input, price.output, price.source) == (1.0, 2.0, "engine_args")


@pytest.mark.parametrize(
    "given",
    [
        {"price_input_per_mtok": 1.0},
        {"price_output_per_mtok": 1.0},
        {"price_input_per_mtok": "1", "price_output_per_mtok": 1.0},
        {"price_input_per_mtok": -1.0, "price_output_per_mtok": 1.0},
        {"price_input_per_mtok": float("nan"), "price_output_per_mtok": 1.0},
    ],
)
def test_half_a_price_or_an_odd_one_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(EngineStartError, match="price_"):
        price_for("openai", "gpt-4o", given)
