"""What bounds a sweep as a whole, seen before it starts: where its replies are kept, and whether its
cost can be known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evalray.engines.base import EngineConfig
from evalray.engines.pricing import price_for
from evalray.errors import EngineStartError
from evalray.suite.engine_choice import KEY_VARIABLES, is_over_network

_CACHE_NAME = ".cache"


def cache_directory(setting: bool | str, output_dir: Path) -> Path | None:
    """Where ``[run] cache`` puts the response cache: ``true`` beside the sweeps, a path there."""
    if isinstance(setting, str):
        return Path(setting).expanduser()
    return output_dir / _CACHE_NAME if setting else None


def cost_warnings(max_cost_usd: float | None, engines: Iterable[EngineConfig]) -> list[str]:
    """One for each model that is paid for elsewhere, perhaps, and whose price nobody knows."""
    if max_cost_usd is None:
        return []
    unknown = [config.model for config in engines if _may_cost_what_nobody_knows(config)]
    return [
        f"max_cost_usd cannot bound {model}: its price is not known, so its cost counts as 0 where its server "
        "reports none; max_tokens_total bounds it"
        for model in dict.fromkeys(unknown)
    ]


def _may_cost_what_nobody_knows(config: EngineConfig) -> bool:
    if config.engine not in KEY_VARIABLES:
        return is_over_network(config.engine, config.engine_args) and config.api_key_env is not None
    try:
        return price_for(config.engine, config.model, config.engine_args) is None
    except EngineStartError:
        return False  # said when the engine starts
