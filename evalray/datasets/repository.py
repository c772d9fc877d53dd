"""Data sets that are folders of files: the table of questions, and the files that come with them.

A benchmark's ``data.files`` says where the table lies for a subset and a split; the repository is
downloaded as it is, or a local copy of it is used.  ``data.attachments`` says which columns lead to
a question's file; each row then has the columns ``attachment_name``, ``attachment_path`` (absolute)
and ``attachment_type``, empty where the question has none.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from evalray.datasets.hub import HubDataset, snapshot
from evalray.datasets.mapping import ATTACHMENT_PATH
from evalray.datasets.source import RowSource, ScannedRow
from evalray.definition import Attachments, Benchmark
from evalray.errors import DatasetError
from evalray.prompts import as_text, is_missing

_NAME, _PATH, _TYPE = "attachment_name", ATTACHMENT_PATH, "attachment_type"


def snapshot_folder(benchmark: Benchmark, dataset: HubDataset, subset: str | None, split: str) -> Path:
    """The repository in the local cache, with the files of that split.  Raises :class:`DatasetError`."""
    patterns = {
        str(PurePosixPath(name.format(split=split)).parent / "*") for name in _names_of(benchmark, subset)
    }
    return snapshot(dataset, sorted(patterns))


def table_file(benchmark: Benchmark, folder: Path, subset: str | None, split: str) -> Path | None:
    """The file with the questions of a subset and split; ``None`` where the folder is built otherwise.

    Raises :class:`DatasetError` for a split or a subset that is not there.
    """
    names = _names_of(benchmark, subset)
    for name in names:
        file = folder / name.format(split=split)
        if file.is_file():
            return file
    there = sorted({found for name in names for found in _splits(folder, name)})
    if there:
        raise DatasetError(f"{folder}: no split {split!r}; there are {', '.join(there)}; set split")
    return None


def _names_of(benchmark: Benchmark, subset: str | None) -> tuple[str, ...]:
    if subset is None:
        return next(iter(benchmark.files.values()))
    try:
        return benchmark.files[subset]
    except KeyError:
        known = ", ".join(benchmark.files)
        raise DatasetError(f"{benchmark.name}: no subset {subset!r}; there are {known}; set subset") from None


def _splits(folder: Path, name: str) -> Iterator[str]:
    before, _, after = name.partition("{split}")
    pattern = re.compile(re.escape(before) + r"([^/]+)" + re.escape(after))
    for path in folder.glob(glob.escape(before) + "*" + glob.escape(after)):
        if found := pattern.fullmatch(path.relative_to(folder).as_posix()):
            yield found[1]


class AttachedRows:
    """The rows of a source, each with the file that comes with it.

    ``root`` is the data set's folder, ``beside`` the one its table lies in.  A file that is missing
    makes its row a bad one, named: a question without its file cannot be answered.
    """

    def __init__(self, rows: RowSource, attachments: Attachments, root: Path, beside: Path) -> None:
        self._rows = rows
        self._attachments = attachments
        self._root = root.resolve()
        self._beside = beside.resolve()
        self.batch = rows.batch

    @property
    def column_names(self) -> Sequence[str]:
        return self._rows.column_names

    def scan(self, columns: Sequence[str]) -> Iterator[ScannedRow]:
        used = self._attachments
        wanted = {*columns, *(column for column in (used.name, used.path, used.id) if column)}
        for key, line, row in self._rows.scan(sorted(wanted)):
            yield key, line, row if isinstance(row, str) else self._attached(row)

    def where(self, key: int, line: int) -> str:
        return self._rows.where(key, line)

    def read(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        rows = []
        for row in self._rows.read(keys):
            attached = self._attached(row)
            if isinstance(attached, str):
                raise DatasetError(f"{attached}; it was there when the data was opened: run again")
            rows.append(attached)
        return rows

    def _attached(self, row: dict[str, Any]) -> dict[str, Any] | str:
        used = self._attachments
        name, path, row_id = (
            "" if column is None or is_missing(row.get(column)) else as_text(row[column]).strip()
            for column in (used.name, used.path, used.id)
        )
        found = self._find(name, path, row_id)
        if found is not None:
            kind = found.suffix.lstrip(".").lower()
            return {**row, _NAME: found.name, _PATH: str(found), _TYPE: kind}
        if name or path:
            return f"the attachment {name or path!r} is not in {self._beside}"
        return {**row, _NAME: "", _PATH: "", _TYPE: ""}

    def _find(self, name: str, path: str, row_id: str) -> Path | None:
        for folder, relative in ((self._root, path), (self._beside, name), (self._root, name)):
            if relative and (file := self._inside(folder / relative)) is not None:
                return file
        if not row_id:
            return None
        # as a word of its own: row 1 has no part in page-10.png
        own = re.compile(rf"(?<![^\W_]){re.escape(row_id)}(?![^\W_])")
        named = next((file for file in self._files if own.search(file)), None)
        return self._inside(self._beside / named) if named is not None else None

    def _inside(self, file: Path) -> Path | None:
        """A file of the data set; what a row says must not lead out of it to files of this machine."""
        try:
            # the hub's cache keeps contents elsewhere and links to them: the link's own place counts
            place = file.parent.resolve() / file.name
            within = place.is_relative_to(self._root) or place.is_relative_to(self._beside)
            return place if within and place.is_file() else None
        except (OSError, ValueError):
            return None

    @cached_property
    def _files(self) -> list[str]:
        if not self._beside.is_dir():
            return []
        return sorted(entry.name for entry in self._beside.iterdir() if not entry.name.startswith("metadata"))
