"""What every reader of model text does first, be it an answer or a judge's reply.

Pure, and linear in the text.  Engines remove reasoning before anyone is asked; the removal here is
for text that did not come through one (imported rows, files), and concerns only the common tag.
"""

from __future__ import annotations

_ZERO_WIDTH = dict.fromkeys(
    [0x00AD, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF, *range(0xFE00, 0xFE10)]
)


def without_reasoning(text: str) -> str:
    """What follows the last ``</think>``; nothing, if a reply opens with ``<think>`` and never closes it."""
    if "</think>" in text:
        return text.rpartition("</think>")[2]
    return "" if text[:64].lstrip().startswith("<think>") else text


def strip_invisible(text: str) -> str:
    """``text`` without zero-width characters and NULs."""
    if text.isascii():
        return text.replace("\0", "")
    return text.translate(_ZERO_WIDTH).replace("\0", "")


def sendable(text: str) -> str:
    """``text`` as any server takes it: no NUL, and lone surrogates as question marks."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
