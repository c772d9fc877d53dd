"""The records of a benchmark over any row source, in seeded order, without holding a row.

Loading makes one pass over the data that checks every row and keeps 12 bytes of each good one:
where it is, and its place in the order.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from evalray.datasets.bad_rows import BadRows, TellsBadRows, left_out, no_good_rows, told_apart
from evalray.datasets.base import DatasetProvider
from evalray.datasets.mapping import RowMapper
from evalray.datasets.order import Repeats, UInt32s, UInt64s, find_repeats, hash64, seeded_order
from evalray.datasets.source import RowSource
from evalray.definition import Benchmark
from evalray.errors import DatasetError
from evalray.prompts import RowError, RowFiltered
from evalray.types import EvalRecord, RunConfig
from evalray.wording import counted

OpenSource = Callable[[str | None], RowSource]
"""Opens the rows of a split; ``None`` is the benchmark's own."""

_NUMBERED_ID = re.compile(r"#\d+$")


class IndexedDataset(TellsBadRows, DatasetProvider):
    """A benchmark's records with random access.  Not for two threads at once."""

    def __init__(self, benchmark: Benchmark, config: RunConfig, open_source: OpenSource) -> None:
        self.dataset_id = benchmark.name
        self.dataset_name = benchmark.title or benchmark.name
        self._config = config
        self._open_source = open_source
        self._mapper = RowMapper(benchmark)
        self._source: RowSource | None = None
        self._keys = array("Q")
        self._order: UInt32s = np.empty(0, dtype=np.uint32)
        self._repeats = Repeats(self._order, self._order)
        self._digest = ""
        self._bad = BadRows()
        self._warnings: list[str] = []

    def load(
        self, *, max_samples: int | None = None, split: str | None = None, seed: int | None = None
    ) -> None:
        source = self._source = self._open_source(split or self._config.dataset_split)
        self._warnings, self._bad = [], BadRows()
        hashes, numbered = self._scan(source)
        self._repeats = find_repeats(hashes)
        # before repeats are renumbered: asking for some record ids must not change the order
        order = seeded_order(hashes, self._repeats, seed)
        wanted = self._config.record_ids
        repeated = len(self._repeats.rows)
        if repeated:
            first = self._mapper.record_id(self._row(int(self._repeats.rows[0])))
            self._warnings.append(f"{told_apart(repeated)}; first: {first!r}")
        final = self._number_repeats(hashes) if repeated and (numbered or wanted is not None) else hashes
        if wanted is not None:
            order = self._select(order, final, wanted)
        if self._bad.filtered:
            self._warnings.append(left_out(self._bad.filtered))
        self._order = order[:max_samples].copy()

    def _scan(self, source: RowSource) -> tuple[UInt64s, bool]:
        """The id hashes of the good rows, and whether an id already looks like a numbered repeat."""
        mapper, bad = self._mapper, self._bad
        keys, hashes, digest, numbered = array("Q"), array("Q"), hashlib.sha256(), False
        for key, line, row in source.scan(mapper.columns):
            if isinstance(row, str):
                bad.add(source.where(key, line), row)
                continue
            try:
                checked = mapper.check(row)
            except RowFiltered:
                bad.filtered += 1
                continue
            except RowError as error:
                bad.add(source.where(key, line), str(error))
                continue
            record_id = checked.record_id
            keys.append(key)
            hashes.append(hash64(record_id))
            digest.update(checked.canonical)
            numbered = numbered or ("#" in record_id and _NUMBERED_ID.search(record_id) is not None)
        if not keys:
            raise DatasetError(no_good_rows(self.dataset_id, bad, source.column_names))
        self._keys, self._digest = keys, digest.hexdigest()
        return np.frombuffer(hashes, dtype=np.uint64), numbered

    def _number_repeats(self, hashes: UInt64s) -> UInt64s:
        """Skips numbers that the data's own ids already use; returns the hashes of the final ids."""
        own = np.sort(hashes)
        taken: set[int] = set()
        final, occurrences = hashes.copy(), self._repeats.occurrences.copy()
        for at, row in enumerate(self._repeats.rows):
            record_id = self._mapper.record_id(self._row(int(row)))
            number = int(occurrences[at])
            while True:
                hashed = hash64(f"{record_id}#{number}")
                place = int(np.searchsorted(own, np.uint64(hashed)))
                if hashed not in taken and (place == len(own) or int(own[place]) != hashed):
                    break
                number += 1
            taken.add(hashed)
            occurrences[at], final[row] = number, hashed
        self._repeats = Repeats(self._repeats.rows, occurrences)
        return final

    def _select(self, order: UInt32s, hashes: UInt64s, record_ids: list[str]) -> UInt32s:
        wanted = {hash64(record_id): record_id for record_id in record_ids}
        selected = order[np.isin(hashes[order], np.array(sorted(wanted), dtype=np.uint64))]
        found = {int(hashed) for hashed in hashes[selected]}
        absent = [record_id for hashed, record_id in wanted.items() if hashed not in found]
        if absent:
            listed = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
            are = "is" if len(absent) == 1 else "are"
            message = f"{len(absent)} of {counted(len(wanted), 'record id')} {are} not in the data: {listed}"
            if len(absent) == len(wanted):
                raise DatasetError(f"{self.dataset_id}: {message}")
            self._warnings.append(message)
        return selected

    def iter_records(self) -> Iterable[EvalRecord]:
        return (record for _, record in self.iter_pending(lambda position: False))

    def iter_pending(self, is_done: Callable[[int], bool]) -> Iterator[tuple[int, EvalRecord]]:
        source = self._loaded()
        pending = (position for position in range(len(self._order)) if not is_done(position))
        while positions := list(islice(pending, source.batch)):
            rows = [int(self._order[position]) for position in positions]
            for position, row, cells in zip(
                positions, rows, source.read([self._keys[row] for row in rows]), strict=True
            ):
                occurrence = self._repeats.occurrence(row)
                yield position, self._mapper.record(cells, f"#{occurrence}" if occurrence > 1 else "")

    def size(self) -> int:
        self._loaded()
        return len(self._order)

    def digest(self) -> str:
        """SHA-256 over the columns in use of every good row, in file order: the same for the same
        data in another format, whatever the seed and ``max_samples``."""
        self._loaded()
        return self._digest

    @property
    def warnings(self) -> list[str]:
        return list(self._warnings)

    def _row(self, row: int) -> dict[str, object]:
        return self._loaded().read([self._keys[row]])[0]

    def _loaded(self) -> RowSource:
        if self._source is None:
            raise DatasetError(f"{self.dataset_id}: the data is not loaded; call load() first")
        return self._source
