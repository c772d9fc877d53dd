"""What bounds a sweep as a whole, seen before it starts: where its replies are kept, and whether its
cost can be known."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evalray.engines.base import EngineConfig
from evalray.engines.pricing import price_for
from evalray.errors import EngineStartError
from evalray.suite.engine_choice import KEY_VARIABLES, LLAMACPP, VLLM, is_over_network

_CACHE_NAME = ".cache"
#: Engines that compute on hardware one has: electricity is not in the budget.
_COSTS_NO_DOLLARS = frozenset({LLAMACPP, VLLM, "ollama", "lemonade"})
_MAX_NAMES = 8


def cache_directory(setting: bool | str, output_dir: Path) -> Path | None:
    """Where ``[run] cache`` puts the response cache: ``true`` beside the sweeps, a path there."""
    if isinstance(setting, str):
        return Path(setting).expanduser()
    return output_dir / _CACHE_NAME if setting else None


def cost_warnings(max_cost_usd: float | None, engines: Iterable[EngineConfig]) -> list[str]:
    """What ``max_cost_usd`` cannot bound, in one line; nothing where every cost is known beforehand.

    Models that are paid for elsewhere and have no known price are named together.  Where there is no
    model that could cost anything known, the limit will never be met, and that is said instead.
    """
    if max_cost_usd is None:
        return []
    configs = list(engines)
    unknown = _models_of(config for config in configs if _may_cost_what_nobody_knows(config))
    if unknown:
        them, their = ("it", "its server") if len(unknown) == 1 else ("them", "their servers")
        price, none = ("price is", "it reports") if len(unknown) == 1 else ("prices are", "they report")
        return [
            f"max_cost_usd cannot bound {_named(unknown)}: no {price} known, so what {their} "
            f"report{'s' if len(unknown) == 1 else ''} as cost counts, and 0 where {none} none; "
            f"max_tokens_total bounds {them}"
        ]
    if not configs or any(config.engine in KEY_VARIABLES for config in configs):
        return []
    local = all(config.engine in _COSTS_NO_DOLLARS for config in configs)
    engine_names = ", ".join(dict.fromkeys(config.engine for config in configs))
    why = f"{engine_names} cost no dollars" if local else "no cost is known but what a server may report"
    return [
        f"max_cost_usd will not end this sweep ({_named(_models_of(configs))}: {why}); max_tokens_total bounds it"
    ]


def _models_of(configs: Iterable[EngineConfig]) -> list[str]:
    return list(dict.fromkeys(config.model for config in configs))


def _named(models: list[str]) -> str:
    more = f" and {len(models) - _MAX_NAMES} more" if len(models) > _MAX_NAMES else ""
    return ", ".join(models[:_MAX_NAMES]) + more


def _may_cost_what_nobody_knows(config: EngineConfig) -> bool:
    if config.engine in _COSTS_NO_DOLLARS:
        return False
    if config.engine not in KEY_VARIABLES:
        return is_over_network(config.engine, config.engine_args) and config.api_key_env is not None
    try:
        return price_for(config.engine, config.model, config.engine_args) is None
    except EngineStartError:
        return False  # said when the engine starts
