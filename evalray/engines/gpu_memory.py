"""Is enough GPU memory free to load a model, and who holds it if not.

Asked before a model loads, because what comes later is a stack trace.  ``nvidia-smi`` is asked
rather than CUDA: that would leave a context of some hundred megabytes in the engine's own process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from evalray.errors import EngineStartError

_GIB = 1024.0  # of the MiB that nvidia-smi reports
_QUERY_SECONDS = 30.0
#: How long a GPU whose last user has just ended may take to be free again.
RELEASE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One visible GPU: memory in MiB, and the processes on it as the driver names them."""

    name: str
    free_mib: float
    total_mib: float
    holders: tuple[str, ...] = ()


GpuProbe = Callable[[], list[GpuMemory]]


def visible_gpu_memory() -> list[GpuMemory]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves; empty where ``nvidia-smi`` cannot say."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _ask("--query-gpu=uuid,index,memory.free,memory.total", visible)
    holders: dict[str, list[str]] = {}
    for row in _ask("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", visible):
        if len(row) == 4:
            holders.setdefault(row[0], []).append(f"pid {row[1]} ({row[2]}) holds {row[3]} MiB")
    found = []
    for row in gpus:
        try:
            uuid, index, free, total = row
            found.append(GpuMemory(f"GPU {index}", float(free), float(total), tuple(holders.get(uuid, ()))))
        except ValueError:  # "[N/A]" and the like: this GPU does not say
            continue
    return found


def _ask(query: str, visible: str | None) -> list[list[str]]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    if visible:
        command.append(f"--id={visible}")
    try:
        reply = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        [field.strip() for field in line.split(",")] for line in reply.stdout.splitlines() if line.strip()
    ]


async def require_free_memory(
    fraction: float, probe: GpuProbe = visible_gpu_memory, within_seconds: float = RELEASE_SECONDS
) -> None:
    """Wait until ``fraction`` of every visible GPU is free.

    Raises :class:`EngineStartError` with who holds it when that does not happen in time.
    """
    until = time.monotonic() + within_seconds
    while True:
        short = [gpu for gpu in await asyncio.to_thread(probe) if gpu.free_mib < fraction * gpu.total_mib]
        if not short:
            return
        if time.monotonic() >= until:
            raise EngineStartError("; ".join(_describe(gpu, fraction) for gpu in short))
        await asyncio.sleep(min(1.0, max(0.0, until - time.monotonic())))


def _describe(gpu: GpuMemory, fraction: float) -> str:
    who = ", ".join(gpu.holders) or "by whom cannot be seen from here, as in a container"
    return (
        f"{gpu.name} has {gpu.free_mib / _GIB:.1f} of {gpu.total_mib / _GIB:.1f} GiB free and "
        f"gpu_memory_utilization = {fraction:g} needs {fraction * gpu.total_mib / _GIB:.1f} GiB "
        f"(in use: {who}): end what holds it, or lower gpu_memory_utilization"
    )
