from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evalray.prometheus import SweepCollector
from evalray.runtime import ReplicaProgress, RunProgress, SweepProgress
from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    LatestReading,
    Reading,
    Tick,
)
from evalray.untrusted import sendable

Series = tuple[str, tuple[tuple[str, str], ...]]

_CELL = {"benchmark": "gsm8k", "model": "m"}
_GPU = {"node": "n1", "device": "GPU-1", "name": "NVIDIA H200", "kind": "gpu"}


def scraped(progress: SweepProgress, now: float = 0.0) -> list[tuple[Series, float]]:
    """Every sample as Prometheus reads it, empty labels left out as there."""
    registry = CollectorRegistry()
    registry.register(SweepCollector(progress, clock=lambda: now))
    text = generate_latest(registry).decode("utf-8")
    return [
        ((sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if v))), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def value_of(samples: list[tuple[Series, float]], name: str, /, **labels: str) -> float | None:
    return dict(samples).get((name, tuple(sorted(labels.items()))))


def _sweep(**more: Any) -> SweepProgress:
    run = RunProgress("gsm8k", "m", state="running", planned=10)
    run.outcomes.update({"correct": 3, "incorrect": 1, "engine_error": 2, "skipped": 1})
    run.generated, run.output_tokens, run.cost_usd, run.judging = 6, 600, 0.25, 4
    run.first_request_at = 1.0
    return SweepProgress(sweep_id="s", runs=[run], **more)


def _device(method: EnergyMethod = EnergyMethod.HW_COUNTER, **reading: Any) -> LatestReading:
    info = DeviceInfo("GPU-1", DeviceKind.GPU, "NVIDIA H200", 0, method, EnergyScope.GPU)
    device = LatestReading("n1", info)
    device.add(Tick(0, 1.0, *Reading(energy_joules=5.0)), 0.0)
    device.add(Tick(0, 2.0, *Reading(**reading)), 0.0)
    return device


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evalray_samples_planned", 10),
        ("evalray_samples_done_total", 6),
        ("evalray_sample_errors_total", 2),
        ("evalray_output_tokens_total", 600),
        ("evalray_cost_usd_total", 0.25),
        ("evalray_judge_waiting_samples", 4),
        ("evalray_accuracy_ratio", 0.75),
        ("evalray_judge_cost_usd_total", None),
    ],
)
def test_a_run_is_told_by_its_counters_and_what_was_not_measured_is_not_there(
    name: str, value: float | None
) -> None:
    assert value_of(scraped(_sweep()), name, **_CELL) == value


def test_a_run_that_has_not_begun_has_no_rate_and_no_accuracy() -> None:
    names = {name for (name, _), _ in scraped(SweepProgress(runs=[RunProgress("b", "m")]))}
    assert (
        names & {"evalray_samples_per_second", "evalray_accuracy_ratio", "evalray_samples_planned"} == set()
    )
    assert "evalray_samples_done_total" in names


def test_a_replica_is_told_by_what_it_works_on() -> None:
    replica = ReplicaProgress("m/0", "m", state="ready", in_flight=3, limit=8)
    samples = scraped(_sweep(replicas=[replica]))
    labels = {"replica": "m/0", "model": "m"}
    assert value_of(samples, "evalray_replica_requests_in_flight", **labels) == 3
    assert value_of(samples, "evalray_replica_requests_limit", **labels) == 8
    assert value_of(samples, "evalray_replica_ready", **labels) == 1


def test_a_device_is_told_in_base_units() -> None:
    reading = {
        "power_watts": 400.0,
        "utilization_pct": 25.0,
        "memory_used_bytes": 2**30,
        "energy_joules": 12.0,
    }
    samples = scraped(_sweep(devices=[_device(temperature_celsius=60.0, **reading)]))
    assert value_of(samples, "evalray_device_power_watts", **_GPU) == 400
    assert value_of(samples, "evalray_device_utilization_ratio", **_GPU) == 0.25
    assert value_of(samples, "evalray_device_memory_used_bytes", **_GPU) == 2**30
    assert value_of(samples, "evalray_device_temperature_celsius", **_GPU) == 60
    joules = value_of(samples, "evalray_device_energy_joules_total", energy_method="hw_counter", **_GPU)
    assert joules == 7


def test_a_device_without_a_meter_has_no_joules() -> None:
    samples = scraped(_sweep(devices=[_device(EnergyMethod.NONE, utilization_pct=50.0)]))
    assert value_of(samples, "evalray_device_utilization_ratio", **_GPU) == 0.5
    assert not any(name.startswith("evalray_device_energy") for (name, _), _ in samples)


def test_readings_of_a_silent_monitor_are_not_told_and_its_joules_are() -> None:
    samples = scraped(_sweep(devices=[_device(power_watts=400.0, energy_joules=12.0)]), now=3600.0)
    names = {name for (name, _), _ in samples}
    assert "evalray_device_power_watts" not in names
    assert "evalray_device_energy_joules_total" in names


def test_names_have_the_prefix_and_counters_end_in_total() -> None:
    progress = _sweep(devices=[_device(power_watts=1.0)], replicas=[ReplicaProgress("m/0", "m")])
    families = list(SweepCollector(progress).collect())
    assert all(family.name.startswith("evalray_") and family.documentation for family in families)
    for family in families:
        counts = family.type == "counter"
        assert all(sample.name.endswith("_total") == counts for sample in family.samples)


@given(st.text(), st.text(), st.text())
def test_hostile_names_come_back_as_they_were_and_add_no_series(
    benchmark: str, model: str, sweep: str
) -> None:
    plain = len(scraped(SweepProgress("s", runs=[RunProgress("b", "m")])))
    samples = scraped(SweepProgress(sweep, runs=[RunProgress(benchmark, model)]))
    assert len(samples) == plain
    labels = {"benchmark": sendable(benchmark), "model": sendable(model)}
    given_labels = {name: value for name, value in labels.items() if value}
    assert value_of(samples, "evalray_samples_done_total", **given_labels) == 0


@pytest.mark.parametrize(
    "name",
    ['m"} 1\nevalray_samples_done_total{model="x', "m\\", 'm\\"', "a\nb", "\ud800", "m\x00", "# HELP x y"],
)
def test_a_name_that_imitates_the_format_is_a_label_all_the_same(name: str) -> None:
    samples = scraped(SweepProgress(runs=[RunProgress("b", name)]))
    assert value_of(samples, "evalray_samples_done_total", benchmark="b", model=sendable(name)) == 0
    assert value_of(samples, "evalray_samples_done_total", model="x") is None


_FEW = st.sampled_from(["a", "b", "a\x00"])


@given(st.lists(st.tuples(_FEW, _FEW)), st.lists(st.tuples(_FEW, _FEW)))
def test_no_series_is_there_twice(runs: list[tuple[str, str]], replicas: list[tuple[str, str]]) -> None:
    progress = SweepProgress(
        runs=[RunProgress(benchmark, model) for benchmark, model in runs],
        replicas=[ReplicaProgress(engine, model) for engine, model in replicas],
    )
    series = [each for each, _ in scraped(progress)]
    assert len(series) == len(set(series))


def test_runs_of_one_cell_are_told_apart_by_their_number() -> None:
    runs = [
        RunProgress("b", "m", planned=1),
        RunProgress("b", "n", planned=2),
        RunProgress("b", "m", planned=3),
    ]
    samples = scraped(SweepProgress(runs=runs))
    assert value_of(samples, "evalray_samples_planned", benchmark="b", model="m", run="1") == 1
    assert value_of(samples, "evalray_samples_planned", benchmark="b", model="n") == 2
    assert value_of(samples, "evalray_samples_planned", benchmark="b", model="m", run="3") == 3
