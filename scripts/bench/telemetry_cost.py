"""Output tokens per second with telemetry on, against off, through the ``llamacpp`` engine and all of EvalRay.

    python scripts/bench/telemetry_cost.py [--pairs 9] [--questions 40] [--slots 8] [--max-tokens 128]
                                           [--cases none stub] [--devices 8] [--data FILE]

``evalray run`` with ``--telemetry`` and ``--no-telemetry``, in turn, and who begins alternates.  Timed from
the first request to the last answer, so neither loading nor what is worked out afterwards is in it.  Case
``none``: a machine without a meter, where no monitor runs.  Case ``stub``: the stub NVML (built with gcc)
with so many devices, on both sides; with telemetry on the monitor samples them all at 10 Hz beside the engine.
The target is a median of the pairs' ratios of at least 0.99; its interval is of order statistics.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from common import gsm8k_suite, median_interval, report, rows_of, run_evalray, summary, tokens_per_second

STUB = Path(__file__).resolve().parents[2] / "tests" / "telemetry" / "stub_nvml"
TARGET = 0.99


def environment_of(case: str, devices: int, folder: Path) -> dict[str, str]:
    """The meters that a run finds: none, or the stub's GPUs."""
    (folder / "powercap").mkdir()
    environment = {"EVALRAY_POWERCAP_ROOT": str(folder / "powercap"), "EVALRAY_CACHE": str(folder / "cache")}
    if case == "none":
        return environment
    sys.path.insert(0, str(STUB))
    import nvml_stub

    (folder / "nvml").mkdir()
    nvml_stub.build(folder / "nvml")
    script = folder / "nvml.script"
    script.write_text(nvml_stub.script([{"power": [(0, 400.0 + k)], "period": 0.1} for k in range(devices)]))
    paths = os.pathsep.join(filter(None, [str(folder / "nvml"), os.environ.get("LD_LIBRARY_PATH")]))
    return {**environment, "LD_LIBRARY_PATH": paths, nvml_stub.SCRIPT_VARIABLE: str(script)}


def measure(
    options: argparse.Namespace, sweep: str, folder: Path, environment: dict[str, str], flag: str
) -> float:
    """Output tokens per second of one run."""
    suite = gsm8k_suite(options)
    run = run_evalray(suite, folder, "--sweep-id", sweep, flag, environment=environment)
    return tokens_per_second(rows_of(run))


def readings(sweep: Path) -> int:
    """How many readings of devices the monitors of a sweep left."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in (sweep / "telemetry").glob("ticks-*.parquet"))


def compare(options: argparse.Namespace, case: str) -> dict:
    on, off, read = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = environment_of(case, options.devices, folder)
        for pair in range(options.pairs):
            sides = [("--telemetry", on), ("--no-telemetry", off)]
            for flag, rates in sides if pair % 2 == 0 else reversed(sides):
                sweep = f"pair-{pair}{flag}"
                rates.append(measure(options, sweep, folder, environment, flag))
                found = readings(folder / "results" / sweep)
                assert flag == "--telemetry" or not found, "telemetry ran though it was off"
                if flag == "--telemetry":
                    read.append(found)
            print(f"{case}, pair {pair}: on {on[-1]:.1f} tok/s, off {off[-1]:.1f} tok/s, {on[-1] / off[-1]:.4f}, "
                  f"{read[-1]} readings", flush=True)  # fmt: skip
    assert case == "none" or min(read) > 0, "no monitor sampled: the stub was not found"
    ratios = [a / b for a, b in zip(on, off, strict=True)]
    low, high, confidence = median_interval(ratios)
    return {
        "ratio_to_off": statistics.median(ratios),
        "interval": [low, high],
        "interval_confidence": confidence,
        "ratios": ratios,
        "on_tokens_per_second": summary(on),
        "off_tokens_per_second": summary(off),
        "devices": options.devices if case == "stub" else 0,
        "readings": summary([float(number) for number in read]),
        "met": statistics.median(ratios) >= TARGET,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--cases", nargs="+", choices=("none", "stub"), default=["none", "stub"])
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    figures = {case: compare(options, case) for case in options.cases}
    report("telemetry_cost", {**figures, "target": {"ratio_to_off": f">= {TARGET}"}})


if __name__ == "__main__":
    main()
