"""What an engine needs to know of a GGUF file before anything loads it.

The native loader says only that it failed; this says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evalray.errors import EngineStartError
from evalray.gguf import GgufError, GgufFile, read_gguf


@dataclass(slots=True, frozen=True)
class GgufHeader:
    """The facts of a whole, readable model file."""

    file: GgufFile

    @property
    def architecture(self) -> str:
        return self.file.architecture

    @property
    def training_context_tokens(self) -> int | None:
        value = self.file.values.get(f"{self.architecture}.context_length")
        return value if isinstance(value, int) and value > 0 else None

    @property
    def has_chat_template(self) -> bool:
        return bool(self.file.values.get("tokenizer.chat_template"))


def read_gguf_header(file: Path) -> GgufHeader:
    """Raises :class:`EngineStartError` where ``file`` is no GGUF model or is cut short."""
    try:
        head = read_gguf(file)
    except OSError as error:
        raise EngineStartError(f"{file} cannot be read: {error.strerror}") from None
    except GgufError as error:
        raise EngineStartError(f"{error}: llamacpp runs whole GGUF model files only") from None
    if head.missing_bytes > 0:
        raise EngineStartError(f"{file} is cut short at {head.file_bytes} bytes: fetch it again")
    return GgufHeader(head)
