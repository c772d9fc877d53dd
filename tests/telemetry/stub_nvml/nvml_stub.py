"""Builds the stub NVML and writes its scripts; see ``stub_nvml.c`` for what a device's keys mean."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SCRIPT_VARIABLE = "EVALRAY_STUB_NVML"
CLOCK_VARIABLE = "EVALRAY_STUB_NVML_CLOCK"
LIBRARY = "libnvidia-ml.so.1"

#: A device's script: its keys and their values.
Script = Mapping[str, object]


def have_compiler() -> bool:
    return shutil.which("gcc") is not None


def build(folder: Path) -> Path:
    """Compile the stub into ``folder``, which then serves as LD_LIBRARY_PATH; returns the library."""
    library = folder / LIBRARY
    source = Path(__file__).with_name("stub_nvml.c")
    command = ["gcc", "-std=gnu11", "-O1", "-fPIC", "-shared", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([*command, "-o", str(library), str(source), "-lm"], check=True, timeout=120)
    return library


def script(devices: Sequence[Script], start: float = 0.0) -> str:
    """The text of a script file.  A ``power`` may be a list of (seconds, watts)."""
    lines = [f"start = {start!r}"]
    for device in devices:
        lines.append("[device]")
        lines += [f"{key} = {_value(value)}" for key, value in device.items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(f"{seconds:.6f}:{watts:.3f}" for seconds, watts in value)
    return str(int(value)) if isinstance(value, bool) else str(value)


class VirtualClock:
    """A clock that only moves when told, shared with the stub through a file."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(struct.pack("d", 0.0))
        self._file = os.open(path, os.O_RDWR)
        self._page = mmap.mmap(self._file, 8)

    def now(self) -> float:
        return float(struct.unpack("d", self._page[:8])[0])

    def set(self, seconds: float) -> None:
        self._page[:8] = struct.pack("d", seconds)

    def advance(self, seconds: float) -> None:
        self.set(self.now() + seconds)
