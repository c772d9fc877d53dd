"""What a process's work makes a GPU of the stub NVML draw: written by an engine, read by the stub as it runs.

A log is a file ``PREFIX-0``, ``PREFIX-1``, ... by writer; ``stub_nvml.c`` has the format.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

_ENTRIES = 65536
_BYTES = 8 + 24 * _ENTRIES


class PowerLog:
    """One writer's log of one GPU."""

    def __init__(self, prefix: Path) -> None:
        blank = prefix.with_name(f".{prefix.name}.{os.getpid()}")
        with blank.open("wb") as file:
            file.truncate(_BYTES)
        number = 0
        while not _claim(blank, prefix.with_name(f"{prefix.name}-{number}")):
            number += 1
        with blank.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _BYTES)
        blank.unlink()
        self._count, self._at, self._millijoules, self._watts = 0, time.monotonic(), 0.0, 0.0

    def change(self, watts: float) -> None:
        """Draw so much more, or less, from now on."""
        now = time.monotonic()
        self._millijoules += self._watts * (now - self._at) * 1e3
        self._at, self._watts = now, self._watts + watts
        struct.pack_into("3d", self._page, 8 + 24 * self._count, now, self._millijoules, self._watts)
        self._count += 1
        struct.pack_into("d", self._page, 0, float(self._count))


def _claim(blank: Path, path: Path) -> bool:
    try:
        os.link(blank, path)
    except FileExistsError:
        return False
    return True
