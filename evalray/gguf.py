"""Read the head of a GGUF file: its key-value part and its table of tensors, never the weights.

Numbers, strings and short arrays of numbers are kept; long arrays (a tokenizer's words and scores) are
skipped.  The bytes of a tensor are the distance to the next one, so that no table of quantisation types
has to be kept up to date; that includes the padding, which is less than the alignment of 32 bytes.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_MAX_ENTRIES = 1 << 20
_MAX_DIMENSIONS = 8
_DEFAULT_ALIGNMENT = 32

#: Arrays of numbers up to this length are kept: one entry per layer, never one per word.
KEPT_ARRAY_LENGTH = 1024

Scalar = int | float | bool
Value = str | Scalar | tuple[Scalar, ...]


class GgufError(ValueError):
    """The file is no GGUF file, or is damaged or cut short."""


@dataclass(slots=True, frozen=True)
class GgufTensor:
    """One entry of the tensor table; ``shape`` has the fastest-running dimension first."""

    name: str
    shape: tuple[int, ...]
    offset: int
    """From the start of the weights."""
    bytes: int
    """Storage, padding to the file's alignment included."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(slots=True)
class GgufFile:
    """What a GGUF file says of itself; ``missing_bytes`` is a lower bound, 0 for a whole file."""

    version: int
    values: dict[str, Value] = field(default_factory=dict)
    tensors: list[GgufTensor] = field(default_factory=list)
    file_bytes: int = 0
    missing_bytes: int = 0

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))


def read_gguf(file: Path) -> GgufFile:
    """Raises :class:`GgufError` where ``file`` is no GGUF file or ends within its head, ``OSError`` unread."""
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise GgufError(f"{file} is not a GGUF file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _Reader(data).read()
            except (struct.error, KeyError, IndexError, OverflowError, RecursionError):
                raise GgufError(f"{file} is damaged or cut short within its header: fetch it again") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(_MAGIC)

    def read(self) -> GgufFile:
        head = GgufFile(version=self._u32(), file_bytes=len(self._data))
        tensors, entries = self._u64(), self._u64()
        if max(tensors, entries) > _MAX_ENTRIES:
            raise KeyError("implausible count")
        for _ in range(entries):
            key, kind = self._string(), self._u32()
            value = self._value(kind)
            if value is not None:
                head.values[key] = value
        table = [self._tensor() for _ in range(tensors)]
        alignment = head.values.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise KeyError("implausible alignment")
        weights = -(-self._at // alignment) * alignment
        head.tensors = _with_sizes(table, len(self._data) - weights)
        if table:
            # The last tensor has at least one byte; its true size needs the quantisation's tables.
            last = max(offset for _, _, offset in table)
            head.missing_bytes = max(0, weights + last + 1 - len(self._data))
        return head

    def _tensor(self) -> tuple[str, tuple[int, ...], int]:
        name, dimensions = self._string(), self._u32()
        if dimensions > _MAX_DIMENSIONS:
            raise KeyError("implausible dimensions")
        shape = tuple(self._u64() for _ in range(dimensions))
        self._at += _U32.size
        return name, shape, self._u64()

    def _value(self, kind: int) -> Value | None:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._scalar(_SCALARS[kind])

    def _array(self) -> tuple[Scalar, ...] | None:
        """The array where it is short and of numbers; skipped otherwise."""
        kind, count = self._u32(), self._u64()
        if kind == _STRING:
            self._check(8 * count)
            at, read, data = self._at, _U64.unpack_from, self._data
            for _ in range(count):  # a tokenizer has hundreds of thousands: kept tight
                at += 8 + read(data, at)[0]
            self._at = at
            return None
        if kind == _ARRAY:
            self._check(12 * count)
            for _ in range(count):
                self._array()
            return None
        form = _SCALARS[kind]
        self._check(form.size * count)
        if count <= KEPT_ARRAY_LENGTH:
            return tuple(self._scalar(form) for _ in range(count))
        self._at += form.size * count
        return None

    def _check(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise IndexError("past the end")

    def _scalar(self, form: struct.Struct) -> Scalar:
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        assert isinstance(value, (int, float))
        return value

    def _u32(self) -> int:
        return int(self._scalar(_U32))

    def _u64(self) -> int:
        return int(self._scalar(_U64))

    def _string(self) -> str:
        size = self._u64()
        self._check(size)
        start, self._at = self._at, self._at + size
        return self._data[start : self._at].decode("utf-8", "replace")


def _with_sizes(table: list[tuple[str, tuple[int, ...], int]], weight_bytes: int) -> list[GgufTensor]:
    ends = [*sorted({offset for _, _, offset in table}), weight_bytes]
    following = dict(itertools.pairwise(ends))
    return [
        GgufTensor(name, shape, offset, max(0, following[offset] - offset)) for name, shape, offset in table
    ]
