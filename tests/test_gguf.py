from __future__ import annotations

import struct
from pathlib import Path

import pytest

from evalray.gguf import KEPT_ARRAY_LENGTH, GgufError, read_gguf


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _file(entries: list[bytes], tensors: list[bytes], weights: int) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries + tensors)
    return head + b"\0" * (-len(head) % 32 + weights)


def _array(key: str, *values: int) -> bytes:
    return _string(key) + struct.pack("<IIQ", 9, 5, len(values)) + struct.pack(f"<{len(values)}i", *values)


def _tensor(name: str, offset: int, *shape: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _string(name) + dimensions + struct.pack("<IQ", 2, offset)


def test_short_arrays_of_numbers_are_kept_and_long_ones_skipped(tmp_path: Path) -> None:
    long = _array("long", *range(KEPT_ARRAY_LENGTH + 1))
    (tmp_path / "m.gguf").write_bytes(_file([_array("short", 1, -2), long, _array("after", 3)], [], 0))
    assert read_gguf(tmp_path / "m.gguf").values == {"short": (1, -2), "after": (3,)}


def test_a_tensor_takes_the_bytes_up_to_the_next_whatever_their_order(tmp_path: Path) -> None:
    tensors = [_tensor("late", 96, 4), _tensor("first", 0, 8, 2), _tensor("middle", 64, 3)]
    (tmp_path / "m.gguf").write_bytes(_file([], tensors, 128))
    found = {tensor.name: tensor for tensor in read_gguf(tmp_path / "m.gguf").tensors}
    assert {name: tensor.bytes for name, tensor in found.items()} == {"late": 32, "first": 64, "middle": 32}
    assert (found["first"].shape, found["first"].elements) == ((8, 2), 16)


def test_a_file_cut_within_its_weights_says_how_much_is_missing_at_least(tmp_path: Path) -> None:
    whole = _file([], [_tensor("a", 0, 8), _tensor("b", 64, 8)], 65)
    (tmp_path / "m.gguf").write_bytes(whole)
    assert read_gguf(tmp_path / "m.gguf").missing_bytes == 0
    (tmp_path / "m.gguf").write_bytes(whole[:-20])
    cut = read_gguf(tmp_path / "m.gguf")
    assert cut.missing_bytes == 20
    assert all(tensor.bytes >= 0 for tensor in cut.tensors)


@pytest.mark.parametrize("alignment", [0, -1])
def test_an_impossible_alignment_is_damage(tmp_path: Path, alignment: int) -> None:
    entry = _string("general.alignment") + struct.pack("<Ii", 5, alignment)
    (tmp_path / "m.gguf").write_bytes(_file([entry], [], 0))
    with pytest.raises(GgufError, match="damaged"):
        read_gguf(tmp_path / "m.gguf")


def test_a_tensor_of_absurdly_many_dimensions_is_damage(tmp_path: Path) -> None:
    tensor = _string("t") + struct.pack("<I", 2**31)
    (tmp_path / "m.gguf").write_bytes(_file([], [tensor], 0))
    with pytest.raises(GgufError, match="damaged"):
        read_gguf(tmp_path / "m.gguf")
