"""What this machine achieves: matrix-product FLOP/s and read bandwidth, measured once and kept.

The best of several repeats, with their spread, in a child process of fixed threads, time and memory.
The figures are "achievable": what a well-tuned library reaches, less than a datasheet's peak, so that
MFU and MBU against them are higher.  Arrays are several times the last-level cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from evalray.errors import EvalRayError
from evalray.telemetry.machine import (
    available_memory_bytes,
    cpu_model,
    last_level_cache_bytes,
    usable_threads,
)
from evalray.telemetry.meters.base import DeviceInfo, DeviceKind

#: Raised when the kernels change, so that old measurements are not taken for new ones.
PROBE_VERSION = 1
DEFAULT_BUDGET_SECONDS = 6.0
_DEVICE = re.compile(r"cpu|cuda:\d{1,3}", re.ASCII)
_MIB = 1 << 20
_LEAST_ARRAY, _CUDA_ARRAY = 256 * _MIB, 2048 * _MIB
_NOISY_PCT = 25.0
_LOOK_SECONDS = 0.1
_CACHES = 4
"""The array is so many times the last-level cache."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


#: No machine is beyond this, and none at 0.
_Rate = Annotated[float, Field(gt=0, lt=1e21)]
_Spread = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProbeError(EvalRayError):
    """The probe could not measure; the message says what to do."""


@dataclass(slots=True, frozen=True)
class ProbeResult:
    """Achievable figures of one device.  Spreads are (median - best) / best time, in percent."""

    device: str
    kind: str
    """``cpu`` or ``cuda``."""
    threads: int
    dtype: str
    """Of the matrix product: ``fp32`` on a CPU, ``bf16`` on CUDA."""
    flops_per_second: _Rate
    flops_spread_pct: _Spread
    flops_repeats: int
    read_bytes_per_second: _Rate
    read_spread_pct: _Spread
    read_repeats: int
    array_bytes: int
    cache_bytes: int | None
    """Last-level cache, all of it; ``None`` where the system does not say."""
    measured_at: str
    label: str = "achievable"
    version: int = PROBE_VERSION

    @property
    def is_noisy(self) -> bool:
        """Whether the repeats differ so much that something else was running."""
        return max(self.flops_spread_pct, self.read_spread_pct) > _NOISY_PCT

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For people: figure, value, spread, how it was measured."""
        threads = f", {self.threads} threads" if self.kind == "cpu" else ""
        cache = f", last-level cache {self.cache_bytes / _MIB:.0f} MiB" if self.cache_bytes else ""
        return [
            ("device", self.device, "", f"{self.kind}{threads}, {self.measured_at}"),
            (
                "matrix product",
                f"{self.flops_per_second / 1e9:,.1f} GFLOP/s",
                f"{self.flops_spread_pct:.0f} %",
                f"{self.dtype}, best of {self.flops_repeats}",
            ),
            (
                "memory read",
                f"{self.read_bytes_per_second / 1e9:,.1f} GB/s",
                f"{self.read_spread_pct:.0f} %",
                f"{self.array_bytes / _MIB:.0f} MiB{cache}, best of {self.read_repeats}",
            ),
        ]


_RESULT = TypeAdapter(ProbeResult)
_FIELDS = {field.name for field in fields(ProbeResult)}


def probe(
    device: str = "cpu", threads: int | None = None, budget_seconds: float = DEFAULT_BUDGET_SECONDS
) -> ProbeResult:
    """Measure ``cpu`` or ``cuda:N``.  Raises :class:`ProbeError`; takes about ``budget_seconds``."""
    if not _DEVICE.fullmatch(device):
        raise ProbeError(f"the device {device!r} is neither cpu nor cuda:0, cuda:1 …")
    threads = threads or usable_threads()
    cache = last_level_cache_bytes() if device == "cpu" else None
    array_bytes = _array_bytes(cache) if device == "cpu" else _CUDA_ARRAY
    report = _run_kernels(device, threads, budget_seconds, array_bytes)
    gemm, read = report["gemm_seconds"], report["read_seconds"]
    return ProbeResult(
        device=report.get("device") or cpu_model(),
        kind=device.partition(":")[0],
        threads=threads,
        dtype=report["dtype"],
        flops_per_second=report["flops"] / min(gemm),
        flops_spread_pct=_spread_pct(gemm),
        flops_repeats=len(gemm),
        read_bytes_per_second=report["bytes"] / min(read),
        read_spread_pct=_spread_pct(read),
        read_repeats=len(read),
        array_bytes=array_bytes,
        cache_bytes=cache,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def cached_probe(
    device: str = "cpu",
    threads: int | None = None,
    *,
    refresh: bool = False,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
) -> ProbeResult:
    """The kept measurement of this device and number of threads, or a new one, which is then kept.

    A kept one that was made on a busy machine is made again, and the better of each figure kept.
    A cache that cannot be written costs a new measurement next time, nothing else.
    """
    threads = threads or usable_threads()
    kept = None if refresh else load_probe(device, threads)
    if kept is not None and not kept.is_noisy:
        return kept
    with _one_at_a_time(3 * budget_seconds + 60):
        kept = None if refresh else load_probe(device, threads)
        if kept is not None and not kept.is_noisy:
            return kept
        result = probe(device, threads, budget_seconds)
        if kept is not None:
            result = _better_of(kept, result)
        _keep(result, probe_file(device, threads))
        return result


@contextlib.contextmanager
def _one_at_a_time(wait_seconds: float) -> Iterator[None]:
    """Probes of one user on one machine: two at once would give each the half, and little spread to tell it by.

    Where that cannot be settled in time, or at all, they run all the same.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            name = Path(tempfile.gettempdir()) / f"evalray-probe-{os.getuid()}.lock"
            lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, lock)
            deadline = time.monotonic() + wait_seconds
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(_LOOK_SECONDS)
        yield


def _better_of(earlier: ProbeResult, later: ProbeResult) -> ProbeResult:
    """What a device reached in either: whatever else ran can only have made a figure smaller."""
    best = later
    if earlier.flops_per_second > later.flops_per_second:
        best = replace(
            best,
            flops_per_second=earlier.flops_per_second,
            flops_spread_pct=earlier.flops_spread_pct,
            flops_repeats=earlier.flops_repeats,
        )
    if earlier.read_bytes_per_second > later.read_bytes_per_second:
        best = replace(
            best,
            read_bytes_per_second=earlier.read_bytes_per_second,
            read_spread_pct=earlier.read_spread_pct,
            read_repeats=earlier.read_repeats,
            array_bytes=earlier.array_bytes,
        )
    return best


def load_probe(device: str = "cpu", threads: int | None = None) -> ProbeResult | None:
    """The kept measurement, or ``None``: never made, of other hardware, unreadable or out of date."""
    threads = threads or usable_threads()
    try:
        text = probe_file(device, threads).read_text(encoding="utf-8")
        if set(json.loads(text)) != _FIELDS:
            return None
        result = _RESULT.validate_json(text, strict=True)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    own = device != "cpu" or result.device == cpu_model()
    return result if own and (result.version, result.threads) == (PROBE_VERSION, threads) else None


def kept_probes(devices: Sequence[DeviceInfo]) -> dict[str, ProbeResult]:
    """What was measured on this machine of its processor and of the GPUs among ``devices``."""
    gpus = [f"cuda:{device.index}" for device in devices if device.kind is DeviceKind.GPU]
    found = {device: load_probe(device) for device in ("cpu", *gpus)}
    return {device: result for device, result in found.items() if result is not None}


def cache_folder() -> Path:
    """``EVALRAY_CACHE``, else ``XDG_CACHE_HOME/evalray``, else ``~/.cache/evalray``."""
    if own := os.environ.get("EVALRAY_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "evalray"


def probe_file(device: str, threads: int) -> Path:
    """Where the measurement of a device is kept: by processor model, for CUDA by host and index."""
    model = cpu_model() if device == "cpu" else f"{platform.node()}-{device}"
    slug = re.sub(r"[^A-Za-z0-9]+", "-", model).strip("-").lower()[:80] or "unknown"
    return cache_folder() / f"probe-{slug}-{threads}-threads.json"


def _keep(result: ProbeResult, file: Path) -> None:
    beside = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
        beside.replace(file)
    except OSError:
        return


def _run_kernels(device: str, threads: int, budget_seconds: float, array_bytes: int) -> dict[str, Any]:
    kernels = Path(__file__).with_name("probe_kernels.py")
    arguments = [device, str(threads), str(budget_seconds), str(array_bytes)]
    environment = os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads))
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(kernels), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * budget_seconds + 60,  # the imports and the arrays come on top of the repeats
            check=True,
        )
        report: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise ProbeError("the probe did not end in time: try again when the machine is less busy") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().rpartition("\n")[2]
        if error.returncode < 0:
            last = f"killed by signal {-error.returncode}, as when memory runs out"
        raise ProbeError(f"the probe failed on {device}: {last or 'no reason given'}") from None
    except (OSError, ValueError) as error:
        raise ProbeError(f"the probe could not run on {device}: {error}") from None
    return report


def _array_bytes(cache_bytes: int | None) -> int:
    wanted = max(_LEAST_ARRAY, _CACHES * (cache_bytes or 0))
    available = available_memory_bytes()
    if available is not None and wanted > available // 2:
        raise ProbeError(
            f"the probe needs {wanted / _MIB:.0f} MiB, several times the processor's cache, and half of "
            f"{available / _MIB:.0f} MiB is free: run it when more memory is free"
        )
    return wanted


def _spread_pct(seconds: list[float]) -> float:
    best = min(seconds)
    return 100.0 * (median(seconds) - best) / best
