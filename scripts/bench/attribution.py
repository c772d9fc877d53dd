"""How long it takes to attribute the energy of 8 GPUs over 10 hours to 1,000,000 requests, and in how much memory.

    python scripts/bench/attribution.py [--requests N] [--hours H] [--gpus G]

Synthetic: one engine a GPU, 100 ms windows, requests spread over the whole time.  Prints seconds, peak
memory above the inputs' start, mean concurrency per GPU, and how well the joules add up.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import numpy as np
from common import report

from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    DeviceSeries,
    EnergyMethod,
    EnergyScope,
    EngineUse,
    ModelShape,
    RequestColumns,
    analyse,
    attribute,
    device_windows,
    shape_of_config,
)

TARGET_SECONDS = 60.0
TARGET_GIB = 1.0


def llama() -> ModelShape:
    found = shape_of_config(
        {
            "model_type": "llama",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "torch_dtype": "bfloat16",
            "tie_word_embeddings": False,
        }
    )
    assert found.shape is not None
    return found.shape


def series(index: int, seconds: float, rng: np.random.Generator) -> DeviceSeries:
    info = DeviceInfo(
        f"GPU-{index}",
        DeviceKind.GPU,
        "NVIDIA H100 80GB HBM3",
        index,
        EnergyMethod.HW_COUNTER,
        EnergyScope.GPU,
    )
    times = np.arange(0.0, seconds, 0.1)
    power = rng.uniform(300, 700, len(times))
    energy = np.round(np.cumsum(power * 0.1) * 1e3) / 1e3
    return DeviceSeries(info, times, energy, power, np.full(len(times), 90.0), np.zeros(len(times), bool))


def requests(count: int, gpus: int, seconds: float, rng: np.random.Generator) -> RequestColumns:
    sent = np.sort(rng.uniform(0, seconds - 60, count))
    prefill = rng.uniform(0.05, 0.5, count)
    output = rng.integers(64, 1024, count).astype(float)
    first = sent + prefill
    return RequestColumns(
        rng.integers(0, gpus, count).astype(np.int32),
        sent,
        sent.copy(),
        first,
        first + output * 0.03,
        rng.integers(50, 2000, count).astype(float),
        np.zeros(count),
        output,
    )


def gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--gpus", type=int, default=8)
    options = parser.parse_args()
    rng, seconds, shape = np.random.default_rng(0), options.hours * 3600, llama()
    before = gib()
    columns = requests(options.requests, options.gpus, seconds, rng)
    engines = [EngineUse(f"llama/{index}", (f"GPU-{index}",), shape) for index in range(options.gpus)]
    started = time.perf_counter()
    windows = {f"GPU-{i}": device_windows(series(i, seconds, rng)) for i in range(options.gpus)}
    done = attribute(columns, engines, windows)
    elapsed = time.perf_counter() - started
    del windows
    started = time.perf_counter()
    everything = analyse({f"GPU-{i}": series(i, seconds, rng) for i in range(options.gpus)}, columns, engines)
    all_figures = time.perf_counter() - started
    assert len(everything.figures.energy_joules) == options.requests
    measured = math.fsum(ledger.measured_joules or 0.0 for ledger in done.ledgers)
    idle = math.fsum(ledger.idle_joules or 0.0 for ledger in done.ledgers)
    shares = done.shares
    given = math.fsum(
        x for part in (shares.prefill_joules, shares.decode_joules) for x in part[DeviceKind.GPU]
    )
    report(
        "attribution",
        {
            "requests": options.requests,
            "gpus": options.gpus,
            "hours": options.hours,
            "mean_concurrency_per_gpu": float((columns.end - columns.sent).sum() / seconds / options.gpus),
            "seconds": elapsed,
            "target_seconds": TARGET_SECONDS,
            "seconds_for_all_figures": all_figures,
            "peak_gib_above_start": gib() - before,
            "target_gib": TARGET_GIB,
            "conservation_error": abs(given + idle - measured) / measured,
        },
    )


if __name__ == "__main__":
    main()
