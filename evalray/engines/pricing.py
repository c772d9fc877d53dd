"""What a vendor's request costs, from ``data/prices.toml`` or from the user's own prices.

A price is found by the model's exact name, or by the name its dated snapshot belongs to, and by
nothing looser: ``gpt-4o`` says nothing of ``gpt-4o-mini``.  An unknown price is ``None``, and so is
every cost that would need it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from evalray.errors import EngineStartError

#: Keys of ``engine_args`` by which a user states prices, in dollars per million tokens.
PRICE_ARGS = ("price_input_per_mtok", "price_output_per_mtok", "price_cached_input_per_mtok")

#: The end of a dated snapshot's name: ``-2025-04-14`` (OpenAI), ``-20250929`` (Anthropic).
_SNAPSHOT = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})$")


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens, with where they come from.

    Above ``long_above_tokens`` prompt tokens the whole request is billed at the multiples.
    """

    input: float
    output: float
    cached_input: float | None = None
    """``None``: cached tokens cost as much as others."""
    cache_write: float | None = None
    """Price of prompt tokens that were written to the cache; ``None`` where unknown."""
    long_above_tokens: int | None = None
    long_input_times: float = 1.0
    long_output_times: float = 1.0
    as_of: str = ""
    source: str = ""

    def cost_usd(
        self,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        cached_tokens: int | None = None,
        cache_write_tokens: int | None = None,
    ) -> float | None:
        """Cost of one request; ``None`` where a count or a price it needs is missing.

        ``prompt_tokens`` includes the cached and the written ones; ``completion_tokens`` the reasoning.
        """
        if prompt_tokens is None or completion_tokens is None:
            return None
        cached, written = cached_tokens or 0, cache_write_tokens or 0
        if written and self.cache_write is None:
            return None
        read_price = self.input if self.cached_input is None else self.cached_input
        plain = max(0, prompt_tokens - cached - written)
        prompt = plain * self.input + cached * read_price + written * (self.cache_write or 0.0)
        completion = completion_tokens * self.output
        if self.long_above_tokens is not None and prompt_tokens > self.long_above_tokens:
            prompt, completion = prompt * self.long_input_times, completion * self.long_output_times
        return (prompt + completion) / 1e6


@cache
def _prices() -> dict[str, dict[str, Price]]:
    text = resources.files("evalray.engines").joinpath("data/prices.toml").read_text("utf-8")
    table = tomllib.loads(text)
    return {vendor: {row["model"]: _price(row) for row in rows} for vendor, rows in table.items()}


def _price(row: Mapping[str, Any]) -> Price:
    long = row.get("long_prompt", {})
    return Price(
        input=row["input"],
        output=row["output"],
        cached_input=row.get("cached_input"),
        cache_write=row.get("cache_write"),
        long_above_tokens=long.get("above_tokens"),
        long_input_times=long.get("input_times", 1.0),
        long_output_times=long.get("output_times", 1.0),
        as_of=str(row["as_of"]),
        source=row["source"],
    )


def find_price(vendor: str, model: str) -> Price | None:
    """The listed price of ``model``, or of the model whose dated snapshot it is."""
    rows = _prices().get(vendor, {})
    return rows.get(model) or rows.get(_SNAPSHOT.sub("", model))


def price_for(vendor: str, model: str, engine_args: Mapping[str, Any]) -> Price | None:
    """The user's own price where ``engine_args`` gives one, else the listed one.

    Raises :class:`EngineStartError` for prices that are no numbers or lack one of input and output.
    """
    given = {key: engine_args[key] for key in PRICE_ARGS if key in engine_args}
    if not given:
        return find_price(vendor, model)
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise EngineStartError(f"engine_args.{key} must be a price in dollars per million tokens")
    if "price_input_per_mtok" not in given or "price_output_per_mtok" not in given:
        raise EngineStartError("engine_args: give price_input_per_mtok and price_output_per_mtok together")
    return Price(
        input=float(given["price_input_per_mtok"]),
        output=float(given["price_output_per_mtok"]),
        cached_input=given.get("price_cached_input_per_mtok"),
        cache_write=float(given["price_input_per_mtok"]),
        source="engine_args",
    )
