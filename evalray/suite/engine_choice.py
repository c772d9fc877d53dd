"""Which engine a model runs on, and whether that engine is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evalray.suite import openjarvis
from evalray.suite.models import ModelEntry
from evalray.suite.registry import Registry

LLAMACPP = "llamacpp"
OPENAI_COMPATIBLE = "openai-compatible"

#: Engines that are reached over the network: they take no GPU and next to no CPU of the cluster.
NETWORK_ENGINES = frozenset({OPENAI_COMPATIBLE, "openai", "anthropic", "cloud"})

#: Servers an engine actor may start itself, and which then compute on this cluster's GPUs.
_LAUNCHABLE = frozenset({"ollama", "lemonade"})

_PACKAGE = "package:"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of one model.  ``unsupported`` says why it cannot run; ``notes`` are shown."""

    name: str
    unsupported: str = ""
    notes: tuple[str, ...] = ()
    path: str | None = None


def choose_engine(entry: ModelEntry, registry: Registry, folder: Path) -> EngineChoice:
    """The engine of ``entry``; ``folder`` is what a relative ``path`` is relative to.

    An entry that needs something it does not give is ``unsupported``, with what to add.
    """
    notes: list[str] = []
    names_a_file = _names_a_file(entry.name)
    if entry.engine is not None:
        name = registry.engine_name(entry.engine) or entry.engine
    else:
        name = _default_engine(entry)
        notes.append(f"no engine given: {name} is the default here")
    is_server = entry.base_url is not None and entry.path is None and not names_a_file
    if is_server and name in openjarvis.OPENAI_SERVERS:
        notes.append(f"{name} at {entry.base_url} is reached as {OPENAI_COMPATIBLE}")
        name = OPENAI_COMPATIBLE
    path = entry.path or (entry.name if names_a_file and name == LLAMACPP else None)
    return EngineChoice(
        name, _why_unsupported(name, entry, path, registry), tuple(notes), _located(path, folder)
    )


def _default_engine(entry: ModelEntry) -> str:
    if entry.path is not None or _names_a_file(entry.name):
        return LLAMACPP
    if entry.base_url is not None:
        return OPENAI_COMPATIBLE
    return "cloud" if entry.provider is not None else openjarvis.DEFAULT_ENGINE


def _names_a_file(name: str) -> bool:
    return name.startswith(_PACKAGE) or name.lower().endswith(".gguf")


def _why_unsupported(name: str, entry: ModelEntry, path: str | None, registry: Registry) -> str:
    if name not in registry.engines:
        reason = f"engine {name!r} is not available in this version"
        if name in openjarvis.OPENAI_SERVERS or name == "llama-server":
            reason += " (with base_url its server is reached as openai-compatible)"
        return reason
    if name == LLAMACPP and path is None:
        return "llamacpp needs path (a GGUF file), or base_url of a running llama-server"
    if name == OPENAI_COMPATIBLE and entry.base_url is None:
        return "openai-compatible needs base_url, such as http://127.0.0.1:8000/v1"
    return ""


def _located(path: str | None, folder: Path) -> str | None:
    """``path`` made absolute: beside the suite, else in the working directory."""
    if path is None or path.startswith(_PACKAGE):
        return path
    return str(locate(path, (folder, Path.cwd()), Path.exists))


def locate(path: str, folders: tuple[Path, ...], exists: Callable[[Path], bool]) -> Path:
    """The first of ``folders`` in which ``path`` is there, joined with it; else in the first folder."""
    expanded = Path(path).expanduser()
    candidates = [folder / expanded for folder in folders]
    return next((candidate for candidate in candidates if exists(candidate)), candidates[0])


def gpus_per_replica(name: str, tensor_parallel_size: int) -> int:
    """GPUs one replica books: none over the network, and none for llama.cpp's CPU build."""
    if name in NETWORK_ENGINES or name in _LAUNCHABLE or name == LLAMACPP:
        return 0
    return tensor_parallel_size
