"""From what a suite or a benchmark says about its data to the provider that reads it."""

from __future__ import annotations

import glob
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evalray.benchmarks import Benchmark
from evalray.datasets.base import DatasetProvider
from evalray.datasets.files import TextFiles
from evalray.datasets.lines import SUFFIXES
from evalray.datasets.provider import IndexedDataset
from evalray.datasets.source import RowSource
from evalray.datasets.stream import StreamedDataset
from evalray.datasets.tables import Table, TableLocation
from evalray.errors import ConfigError, DatasetError, Problem
from evalray.types import RunConfig

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_KNOWN = ", ".join((*SUFFIXES, ".parquet"))

#: ``data = "sample"`` takes the rows that come with a benchmark.
SAMPLE = "sample"


def open_dataset(
    benchmark: Benchmark, config: RunConfig, *, suite_dir: Path | None = None
) -> DatasetProvider:
    """The provider of a run's records, not yet loaded.

    ``config.data`` (a file, glob or folder, relative to ``suite_dir`` or else to the working
    directory; a hub name; or ``sample``) goes before the benchmark's own ``data_path``.  Raises
    :class:`DatasetError` where there is nothing of that name, :class:`ConfigError` where the
    benchmark's template, field expressions or provider are wrong.
    """
    if benchmark.provider and config.data is None:
        return _own_provider(benchmark, config)
    location = _locate(benchmark, config, suite_dir)
    if not isinstance(location, TableLocation):
        return IndexedDataset(benchmark, config, _text_opener(location, benchmark.split))
    if benchmark.streaming and location.kind != "saved":
        return StreamedDataset(benchmark, config, location)
    return IndexedDataset(benchmark, config, _table_opener(location, benchmark.split))


def _text_opener(paths: list[Path], own_split: str) -> Callable[[str | None], RowSource]:
    return lambda split: TextFiles(_of_split(paths, split or own_split))


def _table_opener(location: TableLocation, own_split: str) -> Callable[[str | None], RowSource]:
    return lambda split: Table(location, split or own_split, split_is_asked=split is not None)


def _of_split(paths: list[Path], split: str) -> list[Path]:
    """The files named after the split (``test.jsonl``, ``test-00000.jsonl``); all, where none is."""
    named = re.compile(re.escape(split) + r"(?:[-_.].*)?")
    return [path for path in paths if named.fullmatch(path.stem)] or paths


def _locate(benchmark: Benchmark, config: RunConfig, suite_dir: Path | None) -> list[Path] | TableLocation:
    if config.data == SAMPLE or (config.data is None and benchmark.data_path is None):
        return _local(str(benchmark.folder / "sample.jsonl"), [], config.dataset_subset, benchmark.gated)
    if config.data is not None:
        roots = [suite_dir, Path.cwd()] if suite_dir else [Path.cwd()]
        return _local(config.data, roots, config.dataset_subset, gated=False)
    assert benchmark.data_path is not None
    subset = config.dataset_subset or benchmark.subset
    return _local(benchmark.data_path, [benchmark.folder], subset, benchmark.gated)


def _local(
    name: str, roots: Iterable[Path | None], subset: str | None, gated: bool
) -> list[Path] | TableLocation:
    written = Path(name).expanduser()
    candidates = [written] if written.is_absolute() else [root / written for root in roots if root]
    for candidate in candidates:
        if candidate.is_dir():
            return _folder(candidate, subset)
        paths = [candidate] if candidate.is_file() else _matches(candidate)
        if paths:
            return _files(paths, name)
    if _looks_local(name, written):
        looked = " and ".join(str(candidate) for candidate in candidates)
        raise DatasetError(f"no such data: {name}; looked for {looked}")
    if not _HUB_NAME.fullmatch(name):
        raise DatasetError(
            f"{name!r} is neither a file, glob or folder that exists nor a hub name (owner/name)"
        )
    return TableLocation("hub", name, subset, gated=gated)


def _looks_local(name: str, written: Path) -> bool:
    return (
        written.is_absolute()
        or name.startswith((".", "~"))
        or bool(glob.escape(name) != name)
        or written.suffix.lower() in (*SUFFIXES, ".parquet")
        or name.count("/") > 1
    )


def _matches(pattern: Path) -> list[Path]:
    if glob.escape(str(pattern)) == str(pattern):
        return []
    found = map(Path, glob.glob(str(pattern), recursive=True))  # noqa: PTH207 -- patterns may be absolute
    return sorted(path for path in found if path.is_file())


def _files(paths: list[Path], name: str) -> list[Path] | TableLocation:
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes <= set(SUFFIXES):
        return paths
    if suffixes == {".parquet"}:
        return TableLocation("parquet", name, files=tuple(paths))
    unknown = sorted(suffixes - {*SUFFIXES, ".parquet"})
    if unknown:
        raise DatasetError(f"{name}: files named *{unknown[0]} cannot be read as data; known are {_KNOWN}")
    raise DatasetError(f"{name} mixes Parquet and text files; name one kind")


def _folder(folder: Path, subset: str | None) -> list[Path] | TableLocation:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return TableLocation("saved", str(folder), subset)
    inside = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if any(path.suffix.lower() == ".parquet" for path in inside):
        return TableLocation("folder", str(folder), subset)
    texts = [path for path in inside if path.suffix.lower() in SUFFIXES]
    if not texts:
        raise DatasetError(f"{folder} holds no data files; known are {_KNOWN} and saved datasets")
    return texts


def _own_provider(benchmark: Benchmark, config: RunConfig) -> DatasetProvider:
    """``module:Class``, or ``file.py:Class`` for a file in the benchmark's folder.

    The class is called with ``benchmark`` and ``config`` where its constructor names them.
    """
    assert benchmark.provider is not None
    module_name, _, class_name = benchmark.provider.partition(":")
    try:
        made: Any = getattr(_module(benchmark, module_name), class_name)
        offered = {"benchmark": benchmark, "config": config}
        named = inspect.signature(made).parameters
        provider = made(**{key: value for key, value in offered.items() if key in named})
    except Exception as error:
        message = f"{benchmark.provider} cannot be used: {type(error).__name__}: {error}"
        raise _provider_problem(benchmark, message) from error
    if not isinstance(provider, DatasetProvider):
        raise _provider_problem(benchmark, f"{benchmark.provider} is not a DatasetProvider")
    return provider


def _module(benchmark: Benchmark, name: str) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = benchmark.folder / name
    spec = importlib.util.spec_from_file_location(f"evalray_provider_{benchmark.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _provider_problem(benchmark: Benchmark, message: str) -> ConfigError:
    hint = "write module:Class, or file.py:Class for a file in the benchmark's folder"
    return ConfigError([Problem(str(benchmark.folder / "benchmark.toml"), "provider", message, hint)])
