"""The sampler in a process of its own, with the stub found as NVML is: by its name, at run time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nvml_stub import SCRIPT_VARIABLE, build, have_compiler, script

_PROGRAM = """
import json, sys, time
from evalray.telemetry.meters import find_meters
from evalray.telemetry.sampler import NodeSampler
from evalray.telemetry.series import columns
sampler = NodeSampler(find_meters(), node_id="n")
sampler.start()
time.sleep(2.0)
sampler.stop()
loaded = [name for name in ("ray", "pyarrow", "pandas", "mlflow") if name in sys.modules]
print(json.dumps([sampler.node.to_dict(), columns(sampler.drain().ticks), loaded]))
"""


@pytest.mark.skipif(not have_compiler(), reason="gcc is needed to build the stub NVML")
def test_a_sampler_measures_in_real_time_and_loads_nothing_heavy(tmp_path: Path) -> None:
    from evalray.telemetry.series import NodeInfo
    from evalray.telemetry.windows import device_windows, node_series

    build(tmp_path)
    path = tmp_path / "nvml.script"
    path.write_text(
        script([{"power": [(0, 250.0)], "period": 0.05}, {"power": [(0, 400.0)], "mig": 1}], time.monotonic())
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(tmp_path),
        SCRIPT_VARIABLE: str(path),
        "EVALRAY_POWERCAP_ROOT": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    node, table, loaded = json.loads(done.stdout)
    assert loaded == []
    measured, sliced = node_series(NodeInfo.from_dict(node), table).values()
    windows = device_windows(measured)
    seconds = (windows.end - windows.start)[windows.valid].sum()
    assert windows.joules.sum() == pytest.approx(250 * seconds, rel=0.1)
    assert not device_windows(sliced).valid.any()


@pytest.mark.gpu
def test_a_real_gpus_counter_rises_and_its_joules_add_up() -> None:
    from evalray.telemetry import EnergyMethod, EngineUse, RequestLog, analyse, node_series
    from evalray.telemetry.meters import nvidia_meters, why_no_driver
    from evalray.telemetry.sampler import NodeSampler
    from evalray.telemetry.series import columns

    if why_no_driver() is not None:
        pytest.skip(f"no NVIDIA driver: {why_no_driver()}")
    sampler = NodeSampler(nvidia_meters(), node_id="n")
    sampler.start()
    began = time.monotonic()
    time.sleep(6.0)
    sampler.stop()
    assert all(reading is not None and reading.error is None for reading in sampler.latest())
    series = node_series(sampler.node, columns(sampler.drain().ticks))
    log = RequestLog()
    for start, end in ((1.0, 3.0), (2.0, 4.5)):
        log.add(0, sent=began + start, end=began + end, prompt_tokens=10, output_tokens=20)
    metered = {device_id: one for device_id, one in series.items() if one.info.has_energy}
    done = analyse(metered, log.columns(), [EngineUse("e", tuple(metered))])
    for device_id, ledger in zip(metered, done.ledgers, strict=True):
        read = metered[device_id].energy_joules
        if ledger.info.energy_method is EnergyMethod.HW_COUNTER:
            assert read[-1] > read[0]
        assert ledger.measured_joules is not None
        assert ledger.measured_joules > 0
        parts = (ledger.attributed_joules or 0.0) + (ledger.idle_joules or 0.0)
        assert parts == pytest.approx(ledger.measured_joules, rel=1e-9)
    assert (done.figures.energy_joules > 0).all() or not metered
