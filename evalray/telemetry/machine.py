"""Facts of the machine this process runs on, as far as it may use it: processor, threads, cache, memory.

Each is read where the system says it, container limits included, and is ``None`` where it does not.
"""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_threads(cgroup: Path = _CGROUP) -> int:
    """CPUs this process may use: its affinity, and a container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return allowed


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system gives it."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware", "cpu model") and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown CPU"


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Sum of the machine's last-level caches, each counted once however many CPUs share it."""
    found: dict[tuple[int, str], int] = {}
    for folder in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level = int((folder / "level").read_text())
            shared_by = (folder / "shared_cpu_list").read_text().strip()
            if (folder / "type").read_text().strip() != "Instruction":
                found[level, shared_by] = _size_bytes((folder / "size").read_text().strip())
        except (OSError, ValueError):
            continue
    if not found:
        return None
    last = max(level for level, _ in found)
    return sum(size for (level, _), size in found.items() if level == last)


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int | None:
    """Memory that can be had without swapping, within a container's limit."""
    limits = [_meminfo_available(meminfo), _cgroup_available(cgroup)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _meminfo_available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_available(cgroup: Path) -> int | None:
    try:
        limit = int((cgroup / "memory.max").read_text())
        return max(0, limit - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError):
        return None


def _size_bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
