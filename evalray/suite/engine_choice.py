"""Which engine a model runs on, and whether that engine is there."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalray.engines.model_path import packaged_models
from evalray.suite import openjarvis
from evalray.suite.models import ModelEntry
from evalray.suite.registry import Registry, is_own

LLAMACPP = "llamacpp"
VLLM = "vllm"
OPENAI_COMPATIBLE = "openai-compatible"

CLOUD = "cloud"

#: Engines that are reached over the network: they take no GPU and next to no CPU of the cluster.
NETWORK_ENGINES = frozenset({OPENAI_COMPATIBLE, "openai", "anthropic", CLOUD})

#: The vendors' engines, each with the variable its key is read from where ``api_key_env`` is not given.
KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}

#: How a vendor's models are named.
_VENDOR_MODELS = {
    "openai": re.compile(r"(?:gpt-|chatgpt-|codex-|o\d)", re.IGNORECASE),
    "anthropic": re.compile(r"claude-", re.IGNORECASE),
}

#: Servers an engine actor may start itself, and which then compute on this cluster's GPUs.
_LAUNCHABLE = frozenset({"ollama", "lemonade"})

_PACKAGE = "package:"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of one model.  ``unsupported`` says why it cannot run; ``notes`` are shown.

    ``missing`` is the key of ``[[models]]`` whose value would make it run, where there is one.
    """

    name: str
    unsupported: str = ""
    notes: tuple[str, ...] = ()
    path: str | None = None
    missing: str = ""


def choose_engine(entry: ModelEntry, registry: Registry, folder: Path) -> EngineChoice:
    """The engine of ``entry``; ``folder`` is what a relative ``path`` is relative to.

    An entry that needs something it does not give is ``unsupported``, with what to add.
    """
    notes: list[str] = []
    file = _file_named(entry)
    if entry.engine is not None:
        name = registry.engine_name(entry.engine) or entry.engine
    else:
        name = _default_engine(entry, file)
    by_provider = name == CLOUD
    if name == CLOUD:
        vendor, problem = cloud_vendor(entry.name, entry.provider)
        if vendor is None:
            return EngineChoice(CLOUD, problem, missing="provider")
        notes.append(f"{CLOUD}: {vendor}, by {'provider' if entry.provider else 'the model name'}")
        name = vendor
    elif entry.engine is None:
        notes.append(f"no engine given: {name} is the default here")
    is_server = entry.base_url is not None and entry.path is None and file is None
    if is_server and name in openjarvis.OPENAI_SERVERS:
        notes.append(f"{name} at {entry.base_url} is reached as {OPENAI_COMPATIBLE}")
        name = OPENAI_COMPATIBLE
    if is_launched(name, entry.engine_args) and not entry.num_gpus:
        notes.append(f"{name} is launched without a GPU: set num_gpus to give its server some")
    path = entry.path or (file if name == LLAMACPP else None)
    reason, missing = _why_unsupported(name, entry, path, registry)
    if not reason and (unused := _unused_keys(entry, name, by_provider=by_provider)) is not None:
        notes.append(unused)
    return EngineChoice(name, reason, tuple(notes), located(path, folder), missing)


def _unused_keys(entry: ModelEntry, name: str, *, by_provider: bool) -> str | None:
    """One line that names the keys of ``entry`` without effect on the engine it got; ``None`` where each has one.

    A ``provider`` that is the engine's own vendor agrees with it.  Of a class of the user's own nothing is known.
    """
    own = is_own(name)
    has_effect = {
        "provider": by_provider or (entry.provider or "").strip().lower() in (name, ""),
        "path": own or name in (LLAMACPP, VLLM),
        "base_url": own or takes_stream(name),
        "api_key_env": own or takes_key(name),
        "stream": takes_stream(name),
        "tensor_parallel_size": own or name == VLLM,
        "num_gpus": name != LLAMACPP or not entry.num_gpus,
        "adaptive_concurrency": not entry.adaptive_concurrency or is_over_network(name, entry.engine_args),
    }
    given = entry.model_fields_set
    unused = [
        key
        for key, used in has_effect.items()
        if not used and key in given and getattr(entry, key) is not None
    ]
    if not unused:
        return None
    why = ""
    if "provider" in unused and entry.engine is None and entry.base_url is not None:
        why = f' (the engine of a base_url; engine = "{CLOUD}" goes by provider)'
    return f"{', '.join(unused)}: not used by {name}{why}"


def _default_engine(entry: ModelEntry, file: str | None) -> str:
    if entry.path is not None or file is not None:
        return LLAMACPP
    if entry.base_url is not None:
        return OPENAI_COMPATIBLE
    return CLOUD if entry.provider is not None else openjarvis.DEFAULT_ENGINE


def cloud_vendor(model: str, provider: str | None = None) -> tuple[str | None, str]:
    """The vendor that ``cloud`` stands for, by ``provider`` or else by the model's name; or why none."""
    if provider is not None:
        if provider.strip().lower() in KEY_VARIABLES:
            return provider.strip().lower(), ""
        known = " or ".join(sorted(KEY_VARIABLES))
        return None, (
            f"provider {provider!r} has no engine here: {known}, or engine = "
            f'"{OPENAI_COMPATIBLE}" with its base_url'
        )
    for vendor, names in _VENDOR_MODELS.items():
        if names.match(model):
            return vendor, ""
    return None, (
        f'engine "cloud" goes by the model name, and {model!r} is neither OpenAI\'s (gpt-*, o1 and on, '
        'chatgpt-*) nor Anthropic\'s (claude-*): set provider, or engine = "openai" or "anthropic"'
    )


def _file_named(entry: ModelEntry) -> str | None:
    """The GGUF file that a model's name is: a path, or the name of one that an installed package carries."""
    if entry.name.startswith(_PACKAGE) or entry.name.lower().endswith(".gguf"):
        return entry.name
    return packaged_models().get(entry.name) if entry.base_url is None and entry.path is None else None


def _why_unsupported(name: str, entry: ModelEntry, path: str | None, registry: Registry) -> tuple[str, str]:
    """Why the engine cannot run, empty where it can, and the key whose value is all that it lacks."""
    if is_own(name):
        return _why_not_importable(name), ""
    if name not in registry.engines:
        reason = f"engine {name!r} is not available in this version"
        if name in openjarvis.OPENAI_SERVERS or name == "llama-server":
            return f"{reason} (with base_url its server is reached as openai-compatible)", "base_url"
        return reason, ""
    if name == LLAMACPP and path is None:
        return "llamacpp needs path (a GGUF file), or base_url of a running llama-server", "path"
    if name == OPENAI_COMPATIBLE and entry.base_url is None:
        return "openai-compatible needs base_url, such as http://127.0.0.1:8000/v1", "base_url"
    return "", ""


def _why_not_importable(name: str) -> str:
    module = name.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    return "" if found else f"engine {name}: no module {module}: is its folder on PYTHONPATH?"


def located(path: str | None, folder: Path) -> str | None:
    """``path`` made absolute: beside the suite, else in the working directory."""
    if path is None or path.startswith(_PACKAGE):
        return path
    return str(locate(path, (folder, Path.cwd()), Path.exists))


def locate(path: str, folders: tuple[Path, ...], exists: Callable[[Path], bool]) -> Path:
    """The first of ``folders`` in which ``path`` is there, joined with it; else in the first folder."""
    expanded = Path(path).expanduser()
    candidates = [folder / expanded for folder in folders]
    return next((candidate for candidate in candidates if exists(candidate)), candidates[0])


def gpus_per_replica(
    name: str,
    tensor_parallel_size: int,
    *,
    engine_args: Mapping[str, Any] | None = None,
    num_gpus: float | None = None,
) -> float:
    """GPUs one replica books: none over the network, and none for llama.cpp's CPU build.

    A part of one where ``num_gpus`` is a fraction: replicas then share it.

    A server that the engine starts itself (``launch = true``) computes here: it books the
    ``num_gpus`` its model gives, and none where it gives none.
    """
    if is_own(name):
        return num_gpus or 0
    if name in _LAUNCHABLE:
        return (num_gpus or 0) if is_launched(name, engine_args or {}) else 0
    if name in NETWORK_ENGINES or computes_on_cpu(name, engine_args or {}, num_gpus):
        return 0
    stages = (engine_args or {}).get("pipeline_parallel_size", 1) if name == VLLM else 1
    if num_gpus is not None and 0 < num_gpus < 1:
        return num_gpus
    return tensor_parallel_size * (stages if isinstance(stages, int) else 1)


def computes_on_cpu(name: str, engine_args: Mapping[str, Any], num_gpus: float | None = None) -> bool:
    """Whether a replica computes on its node's cores: llama.cpp's CPU build does, a server that is launched
    without GPUs, and vLLM where the model says so (``engine_args.device = "cpu"``, or ``num_gpus = 0``)."""
    if is_launched(name, engine_args):
        return not num_gpus
    return name == LLAMACPP or (name == VLLM and (engine_args.get("device") == "cpu" or num_gpus == 0))


def is_launched(name: str, engine_args: Mapping[str, Any]) -> bool:
    """Whether the engine's actor starts the server itself."""
    return name in _LAUNCHABLE and engine_args.get("launch") is True


def takes_key(name: str) -> bool:
    """Whether the engine sends the key that ``api_key_env`` names."""
    return name not in (LLAMACPP, VLLM, "ollama")


def takes_stream(name: str) -> bool:
    """Whether the engine asks a server, which may be asked to stream or not."""
    return name in NETWORK_ENGINES or name in _LAUNCHABLE


def is_over_network(name: str, engine_args: Mapping[str, Any]) -> bool:
    """Whether a replica only passes requests on to a server elsewhere."""
    return name in NETWORK_ENGINES or (name in _LAUNCHABLE and not is_launched(name, engine_args))
