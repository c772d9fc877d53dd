"""Read the header of a GGUF file: what a model says of itself, before anything loads it.

The native loader says only that it failed; this says why.  Reads the key-value part and the
tensor table, keeps scalars and strings, skips arrays, and touches no weights.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

from evalray.errors import EngineStartError

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
_DEFAULT_ALIGNMENT = 32


@dataclass(slots=True)
class GgufHeader:
    """Scalars and strings of the key-value part; ``missing_bytes`` is a lower bound, 0 for a whole file."""

    version: int
    values: dict[str, str | int | float | bool] = field(default_factory=dict)
    missing_bytes: int = 0

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def training_context_tokens(self) -> int | None:
        value = self.values.get(f"{self.architecture}.context_length")
        return value if isinstance(value, int) and value > 0 else None

    @property
    def has_chat_template(self) -> bool:
        return bool(self.values.get("tokenizer.chat_template"))


def read_gguf_header(file: Path) -> GgufHeader:
    """Raises :class:`EngineStartError` where ``file`` is no GGUF model or is cut short."""
    try:
        with file.open("rb") as stream:
            if stream.read(4) != _MAGIC:
                raise EngineStartError(f"{file} is not a GGUF model file: llamacpp runs GGUF files only")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Reader(data).header()
                header_bytes = len(data)
    except OSError as error:
        raise EngineStartError(f"{file} cannot be read: {error.strerror}") from None
    except (struct.error, UnicodeDecodeError, KeyError, IndexError, OverflowError):
        raise EngineStartError(f"{file} is damaged or cut short within its header: fetch it again") from None
    if header.missing_bytes > 0:
        raise EngineStartError(f"{file} is cut short at {header_bytes} bytes: fetch it again")
    return header


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = len(_MAGIC)

    def header(self) -> GgufHeader:
        header = GgufHeader(version=self._u32())
        tensors, entries = self._u64(), self._u64()
        if max(tensors, entries) > _MAX_ENTRIES:
            raise KeyError("implausible count")
        for _ in range(entries):
            key, kind = self._string(), self._u32()
            if kind == _ARRAY:
                self._skip_array()
            elif kind == _STRING:
                header.values[key] = self._string()
            else:
                header.values[key] = self._scalar(_SCALARS[kind])
        last_offset = self._last_tensor_offset(tensors)
        alignment = header.values.get("general.alignment", _DEFAULT_ALIGNMENT)
        assert isinstance(alignment, int)
        weights = -(-self._at // max(1, alignment)) * max(1, alignment)
        if tensors:
            # The last tensor has at least one byte; its true size needs the quantisation's tables.
            header.missing_bytes = max(0, weights + last_offset + 1 - len(self._data))
        return header

    def _last_tensor_offset(self, tensors: int) -> int:
        last = 0
        for _ in range(tensors):
            self._string()
            dimensions = self._u32()
            self._at += 8 * dimensions + 4
            last = max(last, self._u64())
        return last

    def _skip_array(self) -> None:
        kind, count = self._u32(), self._u64()
        if kind == _STRING:
            self._check(8 * count)
            at, read, data = self._at, _U64.unpack_from, self._data
            for _ in range(count):  # a tokenizer has hundreds of thousands: kept tight
                at += 8 + read(data, at)[0]
            self._at = at
        elif kind == _ARRAY:
            self._check(12 * count)
            for _ in range(count):
                self._skip_array()
        else:
            self._check(_SCALARS[kind].size * count)
            self._at += _SCALARS[kind].size * count

    def _check(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise IndexError("past the end")

    def _scalar(self, form: struct.Struct) -> int | float | bool:
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
