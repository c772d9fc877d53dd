"""From what a suite or a benchmark says about its data to the provider that reads it."""

from __future__ import annotations

import glob
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalray.benchmarks import SAMPLE
from evalray.datasets.base import DatasetProvider
from evalray.datasets.files import TextFiles
from evalray.datasets.hub import reach
from evalray.datasets.lines import GZIP, SUFFIXES, text_suffix
from evalray.datasets.provider import IndexedDataset
from evalray.datasets.repository import AttachedRows, snapshot_folder, table_file
from evalray.datasets.source import RowSource
from evalray.datasets.stream import StreamedDataset
from evalray.datasets.tables import Table, TableLocation
from evalray.definition import Benchmark
from evalray.errors import ConfigError, DatasetError, Problem
from evalray.types import RunConfig

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_KNOWN = ", ".join((*SUFFIXES, ".parquet")) + " (text also as .gz)"


def open_dataset(
    benchmark: Benchmark, config: RunConfig, *, suite_dir: Path | None = None
) -> DatasetProvider:
    """The provider of a run's records, not yet loaded.

    ``config.data`` (a file, glob or folder, relative to ``suite_dir`` or else to the working
    directory; a hub name; or ``sample``) goes before the benchmark's own ``data_path``.  Raises
    :class:`DatasetError` where there is nothing of that name, :class:`ConfigError` where the
    benchmark's template, field expressions, arguments or provider are wrong.
    """
    benchmark = _with_arguments(benchmark, config)
    if benchmark.provider and config.data is None:
        return _own_provider(benchmark, config)
    location = _locate(benchmark, config, suite_dir)
    if (
        isinstance(location, TableLocation)
        and benchmark.streaming
        and location.kind != "saved"
        and not benchmark.files
    ):
        return StreamedDataset(benchmark, config, location)
    return IndexedDataset(benchmark, config, lambda split: _rows(benchmark, config, location, split))


def preflight(benchmark: Benchmark, config: RunConfig, *, suite_dir: Path | None = None) -> str | None:
    """Why a run's data cannot be had, in one line; ``None`` where nothing stands against it.

    Asks the hub whether this account may read the data, with a deadline of seconds, and downloads
    nothing.  Whether the data holds what the benchmark needs, loading tells.
    """
    try:
        if benchmark.provider and config.data is None:
            return None
        location = _locate(benchmark, config, suite_dir)
        if (
            isinstance(location, TableLocation)
            and location.kind == "hub"
            and reach(location.on_hub).place == "cache"
        ):
            open_dataset(benchmark, config, suite_dir=suite_dir).load(
                max_samples=1, split=config.dataset_split
            )
    except DatasetError as error:
        return str(error)
    return None


def _rows(
    benchmark: Benchmark, config: RunConfig, location: list[Path] | TableLocation, asked: str | None
) -> RowSource:
    """The rows of a split; ``None`` is the benchmark's own."""
    split = asked or benchmark.split
    root: Path | None = None
    if benchmark.files and isinstance(location, TableLocation) and location.kind in ("hub", "folder"):
        subset = config.dataset_subset or benchmark.subset
        root = (
            snapshot_folder(benchmark, location.on_hub, subset, split)
            if location.kind == "hub"
            else Path(location.name)
        )
        file = table_file(benchmark, root, subset, split)
        if file is not None:
            location = _files([file], str(file))
        elif location.kind == "hub":
            raise DatasetError(
                f"{location.name}: no split {split!r} of subset {subset!r}; set split or subset"
            )
        else:
            location = _folder(root, None)
    rows: RowSource = (
        Table(location, split, split_is_asked=asked is not None)
        if isinstance(location, TableLocation)
        else TextFiles(_of_split(location, split))
    )
    if benchmark.attachments is None:
        return rows
    files = location.files if isinstance(location, TableLocation) else location
    beside = files[0].parent if files else root or Path.cwd()
    return AttachedRows(rows, benchmark.attachments, root or beside, beside)


def _with_arguments(benchmark: Benchmark, config: RunConfig) -> Benchmark:
    """The benchmark with the suite's ``args`` in place of its own."""
    given = config.benchmark_args
    if not given:
        return benchmark
    source = f"benchmark {benchmark.name}"
    hint = f"takes: {', '.join(benchmark.args) or 'no arguments'}"
    problems = [
        Problem(source, f"args.{name}", "unknown argument", hint)
        for name in given
        if name not in benchmark.args
    ]
    if problems:
        raise ConfigError(problems)
    return replace(benchmark, args={**benchmark.args, **given})


def _of_split(paths: list[Path], split: str) -> list[Path]:
    """The files named after the split (``test.jsonl``, ``test-00000.jsonl``); all, where none is."""
    named = re.compile(re.escape(split) + r"(?:[-_.].*)?")
    return [path for path in paths if named.fullmatch(path.stem)] or paths


def _locate(benchmark: Benchmark, config: RunConfig, suite_dir: Path | None) -> list[Path] | TableLocation:
    if config.data == SAMPLE or (config.data is None and benchmark.data_path is None):
        return _local(benchmark, str(benchmark.folder / "sample.jsonl"), [], config.dataset_subset)
    if config.data is not None:
        roots = [suite_dir, Path.cwd()] if suite_dir else [Path.cwd()]
        return _local(benchmark, config.data, roots, config.dataset_subset)
    assert benchmark.data_path is not None
    subset = config.dataset_subset or benchmark.subset
    return _local(benchmark, benchmark.data_path, [benchmark.folder], subset)


def _local(
    benchmark: Benchmark, name: str, roots: Iterable[Path | None], subset: str | None
) -> list[Path] | TableLocation:
    written = Path(name).expanduser()
    candidates = [written] if written.is_absolute() else [root / written for root in roots if root]
    for candidate in candidates:
        if candidate.is_dir():
            return (
                TableLocation("folder", str(candidate), subset)
                if benchmark.files
                else _folder(candidate, subset)
            )
        paths = [candidate] if candidate.is_file() else _matches(candidate)
        if paths:
            return _files(paths, name)
        if candidate.exists():
            raise DatasetError(
                f"{candidate} is no regular file: write the rows to a file, data is read by seeking"
            )
    if _looks_local(name, written):
        looked = " and ".join(dict.fromkeys(map(str, candidates)))
        where = "" if looked == name else f"; looked for {looked}"
        raise DatasetError(f"no such data: {name}{where}")
    if not _HUB_NAME.fullmatch(name):
        raise DatasetError(
            f"{name!r} is neither a file, glob or folder that exists nor a hub name (owner/name)"
        )
    # what a benchmark says of its own data set does not hold for another one
    own = name == benchmark.data_path
    return TableLocation(
        "hub",
        name,
        subset,
        gated=own and benchmark.gated,
        revision=benchmark.revision if own else None,
    )


def _looks_local(name: str, written: Path) -> bool:
    return (
        written.is_absolute()
        or name.startswith((".", "~"))
        or bool(glob.escape(name) != name)
        or text_suffix(written) in (*SUFFIXES, ".parquet")
        or name.count("/") > 1
    )


def _matches(pattern: Path) -> list[Path]:
    if glob.escape(str(pattern)) == str(pattern):
        return []
    found = map(Path, glob.glob(str(pattern), recursive=True))  # noqa: PTH207 -- patterns may be absolute
    return sorted(path for path in found if path.is_file())


def _files(paths: list[Path], name: str) -> list[Path] | TableLocation:
    suffixes = {text_suffix(path) for path in paths}
    if suffixes <= set(SUFFIXES):
        return paths
    if suffixes == {".parquet"} and not any(path.suffix.lower() == GZIP for path in paths):
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
    texts = [path for path in inside if text_suffix(path) in SUFFIXES]
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
