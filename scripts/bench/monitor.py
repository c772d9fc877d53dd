"""What a node's sampler costs: CPU share of one core and memory, at 8 devices and 10 Hz.

    python scripts/bench/monitor.py [--devices N] [--period SECONDS] [--seconds S]

The sampler runs in a process of its own on the stub NVML (built with gcc), as it runs in its actor, and is
drained every second.  Memory is USS above the same process before anything of telemetry was imported.
The stub answers at once, so the driver's own time per query is not in the figure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import report

STUB = Path(__file__).resolve().parents[2] / "tests" / "telemetry" / "stub_nvml"
TARGET_CPU_SHARE = 0.02
TARGET_MIB = 60.0


def measure(seconds: float) -> dict[str, float]:
    import psutil

    process = psutil.Process()
    before = process.memory_full_info().uss
    from evalray.telemetry.meters import find_meters
    from evalray.telemetry.sampler import NodeSampler

    sampler = NodeSampler(find_meters(), node_id="bench")
    sampler.start()
    time.sleep(1.0)
    cpu, started, ticks, peak = time.process_time(), time.monotonic(), 0, 0
    while time.monotonic() - started < seconds:
        time.sleep(1.0)
        ticks += len(sampler.drain().ticks)
        peak = max(peak, process.memory_full_info().uss)
    elapsed = time.monotonic() - started
    share = (time.process_time() - cpu) / elapsed
    sampler.stop()
    return {
        "devices": len(sampler.node.devices),
        "tick_seconds": sampler.node.tick_seconds,
        "update_period_seconds": sampler.node.devices[0].update_period_seconds or 0.0,
        "ticks_per_device_and_second": ticks / elapsed / len(sampler.node.devices),
        "cpu_share": share,
        "target_cpu_share": TARGET_CPU_SHARE,
        "uss_mib_above_empty": (peak - before) / 2**20,
        "target_mib": TARGET_MIB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--period", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.seconds)))
        return
    sys.path.insert(0, str(STUB))
    import nvml_stub

    with tempfile.TemporaryDirectory() as folder:
        nvml_stub.build(Path(folder))
        devices = [{"power": [(0, 400.0 + k)], "period": options.period} for k in range(options.devices)]
        script = Path(folder) / "nvml.script"
        script.write_text(nvml_stub.script(devices))
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": folder,
            nvml_stub.SCRIPT_VARIABLE: str(script),
            "EVALRAY_POWERCAP_ROOT": folder,
        }
        command = [sys.executable, __file__, "--inside", "--seconds", str(options.seconds)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    report("monitor", json.loads(done.stdout))


if __name__ == "__main__":
    main()
