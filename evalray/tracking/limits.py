"""MLflow's limits, met before anything is sent.

MLflow refuses a whole batch for one bad key and cuts long values silently; here keys are made
legal and stay distinct, a value that is cut says so, a metric that is not finite becomes a tag, and
batches stay under every count and under the size of a request.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MAX_METRICS = 1000
MAX_PARAMS = 100
MAX_TAGS = 100
MAX_ENTITIES = 1000
#: MLflow allows 1,000,000 bytes a request; the rest is room for its own framing.
MAX_BYTES = 900_000
MAX_KEY = 250
MAX_PARAM_VALUE = 6000
MAX_TAG_VALUE = 8000

_ILLEGAL = re.compile(r"[^A-Za-z0-9_\-. /]")
_CUT_MARK = " … [cut; the whole value is in the artifacts]"
#: Bytes of JSON around one key and value, timestamp and step included.
_FRAME = 80


@dataclass(slots=True)
class Batch:
    """One request's worth."""

    metrics: dict[str, float] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def legal_key(key: str) -> str:
    """The key in the letters MLflow allows, at most 250; a changed key ends in a hash of the old one
    where it would otherwise collide (cut ones, and ones of nothing but forbidden letters)."""
    named = key.replace("@", "_at_").replace("%", "pct")
    parts = (part.strip(" ") for part in _ILLEGAL.sub("_", named).split("/"))
    legal = "/".join(part for part in parts if part.strip("."))
    if not legal.strip("_/ "):
        return f"key_{_digest(key)}"
    return legal if len(legal) <= MAX_KEY else f"{legal[: MAX_KEY - 9]}_{_digest(key)}"


def legal_keys(values: Mapping[str, object]) -> dict[str, str]:
    """Old key to legal key, all of them different."""
    renamed: dict[str, str] = {}
    taken: set[str] = set()
    for key in values:
        legal = legal_key(key)
        if legal in taken:
            legal = f"{legal[: MAX_KEY - 9]}_{_digest(key)}"
        taken.add(legal)
        renamed[key] = legal
    return renamed


def storable(text: str) -> str:
    """Text that every database takes: lone surrogates and NULs replaced."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def fit(text: str, limit: int) -> str:
    """The text, storable and at most ``limit`` long; a cut one says where the rest is."""
    safe = storable(text)
    return safe if len(safe) <= limit else safe[: limit - len(_CUT_MARK)] + _CUT_MARK


def split_metrics(metrics: Mapping[str, float | int | None]) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics MLflow can plot, and tags ``evalray.nonfinite.<key>`` for those it cannot."""
    keys = legal_keys(metrics)
    finite, tags = {}, {}
    for key, value in metrics.items():
        if value is None:
            continue
        if math.isfinite(value):
            finite[keys[key]] = float(value)
        else:
            tags[f"evalray.nonfinite.{keys[key]}"[:MAX_KEY]] = str(value)
    return finite, tags


def batches(
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Iterator[Batch]:
    """Requests that together carry everything, each within the limits.  Keys must be legal."""
    batch, size, entities = Batch(), 0, 0
    for kind, key, value in _items(metrics or {}, params or {}, tags or {}):
        cost = len(json.dumps(key)) + len(json.dumps(value)) + _FRAME
        limit = {"metrics": MAX_METRICS, "params": MAX_PARAMS, "tags": MAX_TAGS}[kind]
        if len(getattr(batch, kind)) >= limit or entities >= MAX_ENTITIES or size + cost > MAX_BYTES:
            yield batch
            batch, size, entities = Batch(), 0, 0
        getattr(batch, kind)[key] = value
        size += cost
        entities += 1
    if entities:
        yield batch


def _items(
    metrics: Mapping[str, float], params: Mapping[str, str], tags: Mapping[str, str]
) -> Iterator[tuple[str, str, float | str]]:
    yield from (("metrics", key, value) for key, value in metrics.items())
    yield from (("params", key, fit(value, MAX_PARAM_VALUE)) for key, value in params.items())
    yield from (("tags", key, fit(value, MAX_TAG_VALUE)) for key, value in tags.items())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
