"""Which parameters a vendor's model takes: known beforehand from a table, and learnt from refusals.

What a model refuses is not sent; what was wanted and not sent is named beside what was sent.  Only
sampling parameters and the JSON schema of a reply are ever left out: what a user asks for by name
(reasoning effort, a thinking budget) is sent, and its refusal is the request's error.

A dotted name is a key within a table: ``text.format`` is ``format`` in ``text``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from evalray.engines.failures import names_schema

#: Parameters without which a request is still the same question.
_DROPPABLE = frozenset(
    {"temperature", "top_p", "top_k", "seed", "stop", "stop_sequences", "stream_options", "store"}
)
#: Where the APIs take the JSON schema of a reply; a reply without it is read as strictly.
_SCHEMAS = frozenset({"response_format", "text.format", "output_config.format"})
_REFUSAL = re.compile(
    r"unsupported|not support|deprecat|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|"
    r"cannot both|can't both|not available|does not accept|is not valid|invalid parameter|extra inputs",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A row of ``data/capabilities.toml``; see there.  ``None``: not known, so nothing is held back."""

    refuses: frozenset[str] = frozenset()
    not_together: tuple[tuple[str, str], ...] = ()
    efforts: tuple[str, ...] | None = None
    api: str = "chat"
    responses_only: bool = False
    max_tokens_name: str = "max_tokens"
    samples_at_effort_none: bool = False
    thinking: tuple[str, ...] | None = None
    sampling_api_version: str | None = None


@cache
def _table() -> dict[str, list[tuple[tuple[str, ...], Capabilities]]]:
    text = resources.files("evalray.engines").joinpath("data/capabilities.toml").read_text("utf-8")
    return {
        vendor: [(tuple(row["match"]), _capabilities(row)) for row in rows]
        for vendor, rows in tomllib.loads(text).items()
    }


def _capabilities(row: dict[str, Any]) -> Capabilities:
    return Capabilities(
        refuses=frozenset(row.get("refuses", ())),
        not_together=tuple((first, second) for first, second in row.get("not_together", ())),
        efforts=tuple(row["efforts"]) if "efforts" in row else None,
        api=row.get("api", "chat"),
        responses_only=row.get("responses_only", False),
        max_tokens_name=row.get("max_tokens_name", "max_tokens"),
        samples_at_effort_none=row.get("samples_at_effort_none", False),
        thinking=tuple(row["thinking"]) if "thinking" in row else None,
        sampling_api_version=row.get("sampling_api_version"),
    )


def find_capabilities(vendor: str, model: str) -> Capabilities:
    """The first row that fits ``model``; for a model nobody knows, one that refuses nothing."""
    for patterns, capabilities in _table().get(vendor, ()):
        if any(fnmatchcase(model, pattern) for pattern in patterns):
            return capabilities
    return Capabilities()


class ParameterFilter:
    """Decides what one replica sends to one model, and remembers what it refused.

    Used from a single event loop.
    """

    def __init__(self, capabilities: Capabilities, *, effort: str | None = None) -> None:
        refused = set(capabilities.refuses)
        if capabilities.samples_at_effort_none and effort == "none":
            refused -= {"temperature", "top_p"}
        self._refused = refused
        self._not_together = list(capabilities.not_together)
        self.renamed: dict[str, str] = {}
        """Names the server wants in place of the usual ones."""

    def refuse(self, names: Iterable[str]) -> None:
        """Leave these out from now on."""
        self._refused.update(names)

    def select(self, wanted: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What of ``wanted`` to send, by the server's names, and what is left out."""
        sent = {name: value for name, value in wanted.items() if name not in self._refused}
        for first, second in self._not_together:
            if first in sent:
                sent.pop(second, None)
        left_out = sorted(wanted.keys() - sent.keys())
        return {self.renamed.get(name, name): value for name, value in sent.items()}, left_out

    def learn(self, status: int | None, message: str, parameter: str | None, sent: dict[str, Any]) -> bool:
        """Take note of a refusal of something in ``sent``; true where asking again will differ."""
        if status not in (400, 422):
            return False
        if "max_tokens" in sent and "max_completion_tokens" in message:
            self.renamed["max_tokens"] = "max_completion_tokens"
            return True
        schemas = _SCHEMAS & sent.keys()
        if schemas and (parameter in schemas or names_schema(message)):
            self._refused |= schemas
            return True
        if not _REFUSAL.search(message):
            return False
        named = [
            name
            for name in sent
            if name in _DROPPABLE and (name == parameter or re.search(rf"\b{name}\b", message))
        ]
        if "temperature" in named and "top_p" in named:
            self._not_together.append(("temperature", "top_p"))
            return True
        self._refused.update(named)
        return bool(named)
