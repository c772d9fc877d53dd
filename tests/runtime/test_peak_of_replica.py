"""What a replica's MFU and MBU are measured against: its own node, never the driver's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evalray.engines.base import EngineConfig
from evalray.plan import Deployment
from evalray.runtime.actor import EngineActor
from evalray.runtime.engine_facts import peak_of
from evalray.telemetry import (
    ClockPair,
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    NodeInfo,
    PeakSource,
    ProbeResult,
    load_probe,
)
from evalray.telemetry import probe as probe_module

_PROBE = ProbeResult("CPU", "cpu", 2, "fp32", 5e11, 1.0, 9, 4e10, 2.0, 9, 1 << 28, None, "2026-01-01")
_GPU = DeviceInfo("g", DeviceKind.GPU, "an unlisted GPU", 1, EnergyMethod.NONE, None)
_DEPLOYMENT = Deployment("m", EngineConfig("m", "llamacpp"))


def _node(**probes: ProbeResult) -> NodeInfo:
    return NodeInfo("0123456789", (), 0.0, ClockPair(0.0, 1e9), probes=probes)


@pytest.fixture(autouse=True)
def _driver_has_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALRAY_CACHE", str(tmp_path))
    monkeypatch.setattr(probe_module, "probe", lambda *_: _PROBE)
    monkeypatch.setattr(probe_module, "cpu_model", lambda: "CPU")
    monkeypatch.setattr(probe_module, "usable_threads", lambda: 2)
    probe_module.cached_probe()
    assert load_probe() == _PROBE


def test_a_processor_is_measured_against_the_probe_of_its_own_node() -> None:
    peak = peak_of(_DEPLOYMENT, _node(cpu=_PROBE), (), "bf16")
    assert (peak.flops_per_second, peak.flops_source) == (5e11, PeakSource.ACHIEVABLE)


@pytest.mark.parametrize(("node", "said"), [(_node(), "node 01234567"), (None, "not sampled")])
def test_the_drivers_probe_is_no_other_nodes(node: NodeInfo | None, said: str) -> None:
    peak = peak_of(_DEPLOYMENT, node, (), "bf16")
    assert (peak.flops_per_second, peak.bytes_per_second) == (None, None)
    assert said in peak.detail
    assert "evalray hardware probe" in peak.detail


def test_a_gpu_is_measured_against_the_probe_of_that_gpu_on_its_node() -> None:
    on_gpu = Deployment("m", EngineConfig("m", "vllm"), gpus_per_replica=1)
    assert peak_of(on_gpu, _node(cpu=_PROBE), (_GPU,), "bf16").flops_per_second is None
    node = NodeInfo("n", (), 0.0, ClockPair(0.0, 1e9), probes={"cuda:1": _PROBE, "cuda:0": _PROBE})
    assert peak_of(on_gpu, node, (_GPU,), "bf16").flops_per_second == 5e11


@pytest.mark.parametrize("before", [None, "FASTEST_FIRST"])
def test_an_engine_counts_gpus_as_its_meters_do(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", before or "")
    EngineActor(EngineConfig("m", "llamacpp"), "m/0")
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_nodes_probes_come_back_as_they_were_recorded() -> None:
    node = _node(cpu=_PROBE)
    assert NodeInfo.from_dict(node.to_dict()) == node
