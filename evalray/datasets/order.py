"""The order of a run and the telling apart of repeated ids, over 64-bit hashes of the ids.

Both are functions of the ids and the seed alone, written out here rather than taken from a random
number generator whose stream a library may change: the same data and seed give the same order
years later, and a row added or mended moves no other row relative to its neighbours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
UInt32s = npt.NDArray[np.uint32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hash64(text: str) -> int:
    """A stable 64-bit hash of an id."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")


def mix64(values: UInt64s) -> UInt64s:
    """SplitMix64's output function (Steele, Lea and Flood, 2014): a bijection that scatters its input."""
    z = values + _GOLDEN
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@dataclass(slots=True, frozen=True)
class Repeats:
    """Rows whose id occurred before, in file order, and which occurrence each is (2, 3, ...)."""

    rows: UInt32s
    occurrences: UInt32s

    def occurrence(self, row: int) -> int:
        """1 for the first occurrence."""
        at = int(np.searchsorted(self.rows, row))
        if at < len(self.rows) and int(self.rows[at]) == row:
            return int(self.occurrences[at])
        return 1


def find_repeats(hashes: UInt64s) -> Repeats:
    """Which rows repeat an earlier id.  Two different ids with one hash (1 in 10^7 for a million
    rows) would only gain a suffix that neither needed."""
    by_hash = np.argsort(hashes, kind="stable").astype(np.uint32)
    ordered = hashes[by_hash]
    same = np.empty(len(hashes), dtype=bool)
    same[:1] = False
    np.equal(ordered[1:], ordered[:-1], out=same[1:])
    del ordered
    if not same.any():
        empty = np.empty(0, dtype=np.uint32)
        return Repeats(empty, empty)
    index = np.arange(len(hashes), dtype=np.uint32)
    group_start = np.maximum.accumulate(np.where(same, np.uint32(0), index))
    rows, occurrences = by_hash[same], (index - group_start + 1)[same]
    in_file_order = np.argsort(rows, kind="stable")
    return Repeats(rows[in_file_order], occurrences[in_file_order].astype(np.uint32))


def seeded_order(hashes: UInt64s, repeats: Repeats, seed: int | None) -> UInt32s:
    """A permutation of the rows: sorted by the mix of seed, id hash and occurrence.

    ``seed=None`` keeps the file's order.
    """
    if seed is None:
        return np.arange(len(hashes), dtype=np.uint32)
    offset = mix64(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    keys = mix64(hashes ^ offset)
    if len(repeats.rows):
        keys[repeats.rows] = mix64(keys[repeats.rows] ^ repeats.occurrences.astype(np.uint64))
    return np.argsort(keys, kind="stable").astype(np.uint32)
