"""The records of a data set too large to download, read as they arrive.

Only where a benchmark declares it: the order is a shuffle within a window, not a permutation.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from evalray.datasets.bad_rows import BadRows, TellsBadRows, left_out, no_good_rows, told_apart
from evalray.datasets.base import DatasetProvider
from evalray.datasets.hub import from_hub
from evalray.datasets.mapping import RowMapper
from evalray.datasets.tables import TableLocation, explain, import_library
from evalray.definition import Benchmark
from evalray.errors import DatasetError
from evalray.prompts import RowError, RowFiltered
from evalray.types import EvalRecord, RunConfig

#: Rows held to shuffle among.
WINDOW = 10_000
#: Rows of a stream that are looked at before it is used; if all of these are bad, so is the rest.
LOOKED_AT = 1_000


class StreamedDataset(TellsBadRows, DatasetProvider):
    """A window-shuffled stream, cut to ``max_samples``, which must be given."""

    def __init__(self, benchmark: Benchmark, config: RunConfig, location: TableLocation) -> None:
        self.dataset_id = benchmark.name
        self.dataset_name = benchmark.title or benchmark.name
        self._split = benchmark.split
        self._config = config
        self._location = location
        self._mapper = RowMapper(benchmark)
        self._stream: Any = None
        self._column_names: list[str] = []
        self._identity: list[Any] = []
        self._max_samples = 0
        self._size: int | None = None
        self._bad = BadRows()
        self._repeated = 0

    def load(
        self, *, max_samples: int | None = None, split: str | None = None, seed: int | None = None
    ) -> None:
        if max_samples is None:
            raise DatasetError(f"{self.dataset_id} is streamed: set max_samples to say where to stop")
        if self._config.record_ids is not None:
            raise DatasetError(f"{self.dataset_id} is streamed: record_ids cannot be looked up in a stream")
        split = split or self._config.dataset_split or self._split
        library, location = import_library(), self._location
        try:
            if location.kind == "parquet":
                files = [str(path) for path in location.files]
                stream = library.load_dataset("parquet", data_files=files, split="train", streaming=True)
            else:
                stream = from_hub(
                    location.on_hub,
                    lambda: library.load_dataset(
                        location.name,
                        location.subset,
                        split=split,
                        revision=location.revision,
                        streaming=True,
                    ),
                )
            self._column_names = list(stream.column_names or ())
            there = [name for name in self._column_names if name in set(self._mapper.columns)]
            stream = stream.select_columns(there) if there else stream
        except DatasetError:
            raise
        except Exception as error:
            raise explain(error, location) from error
        self._stream = stream if seed is None else stream.shuffle(seed=seed, buffer_size=WINDOW)
        # a stream has no rows to hash before it is read: where it comes from stands in for them
        facts = stream.info
        self._identity = [location.name, location.subset, split, facts.dataset_size, str(facts.version)]
        self._identity += [location.revision] if location.revision else []
        self._max_samples, self._size = max_samples, None
        self._look_at_the_first(stream)

    def _look_at_the_first(self, stream: Any) -> None:
        """Raises :class:`DatasetError` now, before any engine starts, where no record will come of it."""
        bad = BadRows()
        for index, row in enumerate(self._rows(stream)):
            try:
                self._mapper.check(row)
                return
            except RowFiltered:
                bad.filtered += 1
            except RowError as error:
                bad.add(f"{self._location.name}[{index}]", str(error))
            if index + 1 == LOOKED_AT:
                break
        if bad.count or not bad.filtered:
            raise DatasetError(no_good_rows(self.dataset_id, bad, self._column_names))

    def iter_records(self) -> Iterable[EvalRecord]:
        if self._stream is None:
            raise DatasetError(f"{self.dataset_id}: the data is not loaded; call load() first")
        self._bad, self._repeated = BadRows(), 0
        seen: Counter[str] = Counter()
        given: set[str] = set()
        count = 0
        if self._max_samples:
            for index, row in enumerate(self._rows(self._stream)):
                try:
                    record = self._mapper.record(row)
                except RowFiltered:
                    self._bad.filtered += 1
                    continue
                except RowError as error:
                    self._bad.add(f"{self._location.name}[{index}]", str(error))
                    continue
                record.record_id = self._tell_apart(record.record_id, seen, given)
                yield record
                count += 1
                if count == self._max_samples:
                    break
        if not count and self._max_samples:
            raise DatasetError(no_good_rows(self.dataset_id, self._bad, self._column_names))
        self._size = count

    def _rows(self, stream: Any) -> Iterable[dict[str, Any]]:
        try:
            yield from stream
        except Exception as error:
            raise explain(error, self._location) from error

    def _tell_apart(self, record_id: str, seen: Counter[str], given: set[str]) -> str:
        final, base = record_id, record_id
        while final in given:
            seen[base] += 1
            final = f"{base}#{seen[base] + 1}"
        self._repeated += final != base
        given.add(final)
        return final

    def size(self) -> int:
        """``max_samples`` until the stream has been read to its end, then how many there were."""
        return self._max_samples if self._size is None else self._size

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self._identity, default=str).encode()).hexdigest()

    @property
    def warnings(self) -> list[str]:
        found = [f"streamed: shuffled within a window of {WINDOW:,} rows, which is not a full permutation"]
        if self._bad.filtered:
            found.append(left_out(self._bad.filtered))
        if self._repeated:
            found.append(told_apart(self._repeated))
        return found
