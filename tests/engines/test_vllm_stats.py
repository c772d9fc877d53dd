from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evalray.engines.base import WorkCounters
from evalray.engines.vllm_stats import StepTotals


def _step(flops: int, read: int, written: int) -> Any:
    perf = SimpleNamespace(
        num_flops_per_gpu=flops, num_read_bytes_per_gpu=read, num_write_bytes_per_gpu=written
    )
    return SimpleNamespace(perf_stats=perf)


@pytest.mark.parametrize("devices", [1, 8])
def test_the_estimates_of_all_steps_and_devices_are_summed(devices: int) -> None:
    totals = StepTotals()
    totals.devices = devices
    for step in (_step(100, 20, 3), SimpleNamespace(perf_stats=None), None, _step(1, 2, 3)):
        totals.add(step)
    assert totals.total() == WorkCounters(101.0 * devices, 22.0 * devices, 6.0 * devices)


def test_an_engine_that_estimates_nothing_has_no_counters_not_zeros() -> None:
    totals = StepTotals()
    totals.add(SimpleNamespace(perf_stats=None))
    assert totals.total() is None
