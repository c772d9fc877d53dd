"""A row source over Hugging Face ``datasets``: hub names, Parquet files, folders, saved data sets.

The tables stay memory-mapped: one pass reads them in batches and only in the columns in use, later
reads take rows by index.  The library is imported when data is loaded, not before.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evalray.datasets.hub import (
    HubDataset,
    error_chain,
    from_hub,
    gated_error,
    import_hub,
    is_unreachable,
    not_found_error,
    unreachable_error,
)
from evalray.datasets.source import ScannedRow
from evalray.errors import DatasetError

_SCAN_BATCH = 512


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where ``datasets`` finds a table.

    ``name`` is what the user wrote; ``files`` are the Parquet files of kind ``parquet``.
    """

    kind: Literal["hub", "folder", "saved", "parquet"]
    name: str
    subset: str | None = None
    files: tuple[Path, ...] = ()
    gated: bool = False
    revision: str | None = None

    @property
    def on_hub(self) -> HubDataset:
        return HubDataset(self.name, self.revision, self.gated)


class Table:
    """The rows of one split; a key is a row's index."""

    batch = 32

    def __init__(self, location: TableLocation, split: str, *, split_is_asked: bool) -> None:
        self._name = location.name
        self._table = _load(location, split, split_is_asked).with_format("arrow")
        self.column_names: Sequence[str] = list(self._table.column_names)

    def scan(self, columns: Sequence[str]) -> Iterator[ScannedRow]:
        there = [column for column in self._table.column_names if column in set(columns)]
        if not there:
            yield from ((index, index, {}) for index in range(len(self._table)))
            return
        self._table = self._table.select_columns(there)
        index = 0
        for batch in self._table.iter(batch_size=_SCAN_BATCH):
            for row in batch.to_pylist():
                yield index, index, row
                index += 1

    def where(self, key: int, line: int) -> str:
        return f"{self._name}[{key}]"

    def read(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table[list(keys)].to_pylist()
        return rows


def _load(location: TableLocation, split: str, split_is_asked: bool) -> Any:
    library = import_library()
    try:
        match location.kind:
            case "parquet":
                # files that are named one by one have no splits of their own
                files = [str(path) for path in location.files]
                return library.load_dataset("parquet", data_files=files, split="train")
            case "hub":
                return from_hub(
                    location.on_hub,
                    lambda: library.load_dataset(
                        location.name, location.subset, split=split, revision=location.revision
                    ),
                )
            case "folder":
                found = library.load_dataset(location.name, location.subset)
            case "saved":
                splits = _saved_splits(Path(location.name))
                if splits is None:
                    return library.load_from_disk(location.name)
                chosen = _choose(location.name, splits, split, split_is_asked)
                return library.load_from_disk(str(Path(location.name) / chosen))
    except DatasetError:
        raise
    except Exception as error:
        raise explain(error, location) from error
    if not isinstance(found, dict):
        return found
    return found[_choose(location.name, list(found), split, split_is_asked)]


def _saved_splits(folder: Path) -> list[str] | None:
    """The splits of a saved dictionary of tables; ``None`` where a single table was saved."""
    try:
        written = json.loads((folder / "dataset_dict.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return list(map(str, written["splits"]))


def _choose(name: str, there: list[str], split: str, is_asked: bool) -> str:
    if split in there:
        return split
    if len(there) == 1 and not is_asked:
        return there[0]
    raise DatasetError(f"{name}: no split {split!r}; there are {', '.join(there)}; set split")


def import_library() -> Any:
    """The ``datasets`` package, silenced: the terminal belongs to the command line."""
    try:
        import datasets
    except ImportError as error:
        raise DatasetError(
            f"reading tables needs the package datasets: pip install datasets ({error})"
        ) from error
    datasets.disable_progress_bars()
    # what it logs on the way to an exception would break into the display
    logging.getLogger("datasets").setLevel(logging.CRITICAL)
    import_hub()
    return datasets


def explain(error: BaseException, location: TableLocation) -> DatasetError:
    """What ``datasets`` raised, as one line that says what to do."""
    name, chain = location.name, error_chain(error)
    kinds = {type(link).__name__ for link in chain}
    text = " ".join(str(error).split())
    whole = " ".join(str(link) for link in chain)
    not_found = "DatasetNotFoundError" in kinds
    if "GatedRepoError" in kinds or "gated dataset" in whole or (location.gated and not_found):
        return gated_error(name)
    if "RevisionNotFoundError" in kinds or (not_found and "Revision" in whole):
        return DatasetError(
            f"{name}: no revision {location.revision!r}; set revision to a commit, tag or branch of it"
        )
    if not_found:
        return not_found_error(name)
    if "BatchSize must be greater than 0" in whole or (location.kind == "saved" and "IndexError" in kinds):
        # the library does not expect an empty table, and builds all splits of a folder at once
        if location.kind in ("saved", "parquet"):
            return DatasetError(f"{name}: the data has no rows")
        return DatasetError(f"{name}: a table in it has no rows; name the files of another split in data")
    if "scripts are no longer supported" in whole:
        return DatasetError(
            f"{name} is built by a script, which datasets 4 and later refuse: "
            "use a Parquet copy of it, or point data at a local file"
        )
    if unknown := re.search(r'(?:Unknown split |Bad split: )"?([^".\s]+)"?\..*?(\[.*?\])', whole):
        return DatasetError(f"{name}: no split {unknown[1]!r}; there are {_listed(unknown[2])}; set split")
    if unknown := re.search(r"BuilderConfig '(.*?)' not found.*?(\[.*?\])", whole):
        return DatasetError(f"{name}: no subset {unknown[1]!r}; there are {_listed(unknown[2])}; set subset")
    if "Config name is missing" in whole:
        listed = re.search(r"(\[.*?\])", whole)
        there = f": {_listed(listed[1])}" if listed else ""
        return DatasetError(f"{name} has several subsets; set subset to one of them{there}")
    if is_unreachable(error):
        return unreachable_error(name)
    if len(location.files) > 1 and (damaged := _first_damaged(location.files)):
        return DatasetError(f"{damaged}: not a whole Parquet file; copy it anew, or leave it out of data")
    return DatasetError(f"{name} cannot be loaded: {type(error).__name__}: {text[:300]}")


def _first_damaged(files: Sequence[Path]) -> Path | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in files:
        try:
            pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            return path
    return None


def _listed(python_list: str) -> str:
    return ", ".join(re.findall(r"'([^']*)'", python_list)) or python_list
