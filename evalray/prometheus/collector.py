"""What Prometheus is told of a sweep: its live counters and its devices' newest readings, as metric families.

Reads, and changes nothing.  What was not measured has no sample.  Label values are text that nobody vouches
for (names of models, benchmarks and devices): whatever they hold, a scrape stays readable and its series apart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from evalray.runtime.progress import ReplicaProgress, RunProgress, SweepProgress
from evalray.telemetry import LatestReading
from evalray.untrusted import sendable

_RUN_LABELS = ("benchmark", "model", "run")
_REPLICA_LABELS = ("replica", "model")
_DEVICE_LABELS = ("node", "device", "name", "kind")


@dataclass(frozen=True, slots=True)
class _Family:
    """One metric of every run or device.  A counter's name gets its ``_total`` from the client library."""

    name: str
    help: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily] = GaugeMetricFamily


_OF_RUN: tuple[tuple[_Family, Callable[[RunProgress], float | None]], ...] = (
    (_Family("evalray_samples_planned", "Samples of the run, epochs included."), lambda run: run.planned),
    (
        _Family(
            "evalray_samples_done", "Samples with an outcome, resumed ones included.", CounterMetricFamily
        ),
        lambda run: run.done,
    ),
    (
        _Family(
            "evalray_sample_errors", "Samples that ended in an error, not in a grade.", CounterMetricFamily
        ),
        lambda run: run.errors,
    ),
    (
        _Family("evalray_output_tokens", "Tokens that this process had generated.", CounterMetricFamily),
        lambda run: run.output_tokens,
    ),
    (
        _Family("evalray_cost_usd", "Dollars that this process's generations cost.", CounterMetricFamily),
        lambda run: run.cost_usd,
    ),
    (
        _Family(
            "evalray_judge_cost_usd", "Dollars that this process's judgements cost.", CounterMetricFamily
        ),
        lambda run: run.judge_cost_usd,
    ),
    (
        _Family("evalray_samples_per_second", "Mean rate of generation since this process's first request."),
        lambda run: run.samples_per_second,
    ),
    (
        _Family("evalray_accuracy_ratio", "Correct among the scored samples so far, from 0 to 1."),
        lambda run: run.accuracy,
    ),
    (_Family("evalray_judge_waiting_samples", "Answers that wait for a judge."), lambda run: run.judging),
)
_OF_REPLICA: tuple[tuple[_Family, Callable[[ReplicaProgress], float]], ...] = (
    (
        _Family("evalray_replica_requests_in_flight", "Requests that the replica works on."),
        lambda replica: replica.in_flight,
    ),
    (
        _Family("evalray_replica_requests_limit", "Requests that the replica works on at most."),
        lambda replica: replica.limit,
    ),
    (
        _Family("evalray_replica_ready", "Whether the replica serves (1) or starts, or is gone (0)."),
        lambda replica: replica.state == "ready",
    ),
)
#: Each with the quantity of the reading and what makes it a base unit.
_OF_DEVICE: tuple[tuple[_Family, str, float], ...] = (
    (_Family("evalray_device_power_watts", "Power of the device."), "power_watts", 1.0),
    (
        _Family("evalray_device_utilization_ratio", "Share of time it was busy, 0 to 1."),
        "utilization_pct",
        0.01,
    ),
    (_Family("evalray_device_memory_used_bytes", "Memory in use on the device."), "memory_used_bytes", 1.0),
    (_Family("evalray_device_temperature_celsius", "Temperature of the device."), "temperature_celsius", 1.0),
)


class SweepCollector:
    """For a ``CollectorRegistry``; :meth:`collect` may be called from any thread while the sweep runs."""

    def __init__(self, progress: SweepProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "evalray_sweep",
            "Which sweep this is.",
            value={"sweep_id": sendable(self._progress.sweep_id), "version": _version()},
        )
        yield from _of_runs(list(self._progress.runs))
        yield from _of_replicas(list(self._progress.replicas))
        yield from _of_devices(list(self._progress.devices), self._clock())


def _of_runs(runs: Sequence[RunProgress]) -> Iterator[Metric]:
    """Runs that share benchmark and model are told apart by their number in the suite, as ``run``.

    Others have it empty, which to Prometheus is no label.
    """
    names = [(sendable(run.benchmark), sendable(run.model)) for run in runs]
    cells = Counter(names)
    labels = [(*name, str(number) if cells[name] > 1 else "") for number, name in enumerate(names, 1)]
    for family, read in _OF_RUN:
        metric = family.kind(family.name, family.help, labels=_RUN_LABELS)
        for run, label in zip(runs, labels, strict=True):
            if (value := read(run)) is not None:
                metric.add_metric(label, value)
        yield metric


def _of_replicas(replicas: Sequence[ReplicaProgress]) -> Iterator[Metric]:
    """One series a name: two deployments of one model name their replicas alike, and are summed."""
    sums = {family.name: Counter[tuple[str, str]]() for family, _ in _OF_REPLICA}
    for replica in replicas:
        for family, read in _OF_REPLICA:
            sums[family.name][sendable(replica.engine_id), sendable(replica.model)] += int(read(replica))
    for family, _ in _OF_REPLICA:
        metric = family.kind(family.name, family.help, labels=_REPLICA_LABELS)
        for label, value in sums[family.name].items():
            metric.add_metric(label, value)
        yield metric


def _of_devices(devices: Sequence[LatestReading], now: float) -> Iterator[Metric]:
    labels = [
        tuple(map(sendable, (device.node_id, device.info.device_id, device.info.name, device.info.kind)))
        for device in devices
    ]
    for family, quantity, scale in _OF_DEVICE:
        metric = family.kind(family.name, family.help, labels=_DEVICE_LABELS)
        for device, label in zip(devices, labels, strict=True):
            if (value := device.value(quantity, now)) is not None:
                metric.add_metric(label, value * scale)
        yield metric
    energy = CounterMetricFamily(
        "evalray_device_energy_joules",
        "Energy that the device used since it is sampled, and how it is measured.",
        labels=(*_DEVICE_LABELS, "energy_method"),
    )
    for device, label in zip(devices, labels, strict=True):
        if device.energy_joules is not None:
            energy.add_metric((*label, str(device.info.energy_method)), device.energy_joules)
    yield energy


def _version() -> str:
    try:
        return version("evalray")
    except PackageNotFoundError:
        return ""
