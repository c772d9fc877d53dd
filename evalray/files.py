"""Whole files in one step, so that a reader sees the old one or the new one and never half of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what takes ``path``'s place when the block ends well; it is removed when not.

    For files that can be made again: nothing is brought to the disk by force.  Raises ``OSError``.
    """
    beside = path.with_name(f".{path.name}.tmp")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
