"""Checks of ``engine_args`` that engines share: what is unknown or ill-typed stops the start, by name."""

from __future__ import annotations

from evalray.engines.base import EngineConfig
from evalray.engines.masking import shown_url
from evalray.errors import EngineStartError

_SWITCHES = ("stream", "reasoning", "launch", "pull")
_TABLES = ("extra_body", "options")


def check_args(config: EngineConfig, known: tuple[str, ...]) -> None:
    """Raises :class:`EngineStartError` for unknown ``engine_args``, bad switches, and a bad ``base_url``."""
    unknown = sorted(set(config.engine_args) - set(known))
    if unknown:
        raise EngineStartError(f"engine_args: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    for name in _SWITCHES:
        if name in known and not isinstance(config.engine_args.get(name, True), bool):
            raise EngineStartError(f"engine_args.{name} must be true or false")
    for name in _TABLES:
        if name in known and not isinstance(config.engine_args.get(name, {}), dict):
            raise EngineStartError(f"engine_args.{name} must be a table")
    if config.base_url and not config.base_url.lower().startswith(("http://", "https://")):
        raise EngineStartError(f"base_url {shown_url(config.base_url)!r} must start with http:// or https://")
