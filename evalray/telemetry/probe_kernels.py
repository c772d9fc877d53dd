"""The child process of the hardware probe: runs the kernels and prints one JSON object.

A script on its own, with numpy (CPU) or torch (CUDA) and nothing of ours, so that the parent can fix the
number of threads before any library starts, bound its time, and have all its memory back.
Usage: probe_kernels.py cpu|cuda:N THREADS BUDGET_SECONDS ARRAY_BYTES
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

#: One timed repeat shorter than this says more about the clock and the start of threads than of the kernel.
SHORTEST_REPEAT_SECONDS = 0.05
MIN_REPEATS, MAX_REPEATS = 3, 20
SMALLEST_GEMM, USUAL_CPU_GEMM, LARGEST_CPU_GEMM, CUDA_GEMM = 512, 2048, 4096, 8192


def repeat(run: Callable[[], object], budget_seconds: float) -> list[float]:
    """Seconds of each repeat after one that warms up; at least 3, then until the budget is spent."""
    run()
    seconds: list[float] = []
    deadline = time.perf_counter() + budget_seconds
    while len(seconds) < MIN_REPEATS or (len(seconds) < MAX_REPEATS and time.perf_counter() < deadline):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def cpu_gemm(budget_seconds: float) -> tuple[float, list[float]]:
    """FLOPs of one fp32 matrix product, and the seconds of each repeat.

    The matrices grow until a product is long enough to time, or the next size would not fit the budget.
    """
    import numpy as np

    size = SMALLEST_GEMM
    while True:
        left = np.full((size, size), 0.5, dtype=np.float32)
        right, out = left.copy(), np.empty_like(left)
        run = partial(np.matmul, left, right, out=out)
        seconds = min(repeat(run, 0.0))
        long_enough = seconds >= SHORTEST_REPEAT_SECONDS and size >= USUAL_CPU_GEMM
        if long_enough or size >= LARGEST_CPU_GEMM or 8 * seconds * 2 * MIN_REPEATS > budget_seconds:
            return 2.0 * size**3, repeat(run, budget_seconds)
        size *= 2


def cpu_read(threads: int, array_bytes: int, budget_seconds: float) -> tuple[float, list[float]]:
    """Bytes of one pass over the arrays, one of its own per thread, and the seconds of each pass."""
    import numpy as np

    with ThreadPoolExecutor(threads) as pool:
        # Allocated by the threads, so that on several sockets the memory is spread over all of them.
        arrays = list(pool.map(lambda _: np.ones(array_bytes // threads // 8, np.uint64), range(threads)))
        # One instruction per vector read, and nothing kept: the loads are all there is.
        seconds = repeat(lambda: list(pool.map(np.bitwise_or.reduce, arrays)), budget_seconds)
    return float(sum(array.nbytes for array in arrays)), seconds


def cuda(device: str, array_bytes: int, budget_seconds: float) -> dict[str, Any]:
    """bf16 matrix product and a reading pass on one CUDA device."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    torch.cuda.set_device(device)

    def timed(run: Callable[[], object]) -> Callable[[], object]:
        def synchronised() -> None:
            run()
            torch.cuda.synchronize()

        return synchronised

    size = CUDA_GEMM
    left = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    right = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    gemm = repeat(timed(lambda: torch.matmul(left, right)), budget_seconds / 2)
    array = torch.ones(array_bytes // 4, device=device, dtype=torch.float32)
    read = repeat(timed(array.sum), budget_seconds / 2)
    return {
        "device": torch.cuda.get_device_name(device),
        "dtype": "bf16",
        "flops": 2.0 * size**3,
        "gemm_seconds": gemm,
        "bytes": float(array_bytes),
        "read_seconds": read,
    }


def main() -> None:
    device, threads, budget_seconds, array_bytes = (
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        int(sys.argv[4]),
    )
    if device == "cpu":
        read_bytes, read_seconds = cpu_read(threads, array_bytes, budget_seconds / 2)
        flops, gemm_seconds = cpu_gemm(budget_seconds / 2)
        report: dict[str, Any] = {
            "dtype": "fp32",
            "flops": flops,
            "gemm_seconds": gemm_seconds,
            "bytes": read_bytes,
            "read_seconds": read_seconds,
        }
    else:
        report = cuda(device, array_bytes, budget_seconds)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
