"""Which peak a utilisation is measured against, and where it comes from.

The suite's own figures win; then the hardware table's dense peak for the dtype the model computes in;
then what ``evalray hardware probe`` reached on this machine.  FLOP/s and bandwidth are settled one by
one, and each keeps its source: a percentage without its peak cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from evalray.telemetry.hardware import DeviceMatch, DeviceSpec, find_device
from evalray.telemetry.meters import DeviceInfo
from evalray.telemetry.probe import ProbeResult


class PeakSource(StrEnum):
    """Where a peak comes from."""

    SUITE = "suite"
    TABLE = "table"
    ACHIEVABLE = "achievable"
    """Measured on this machine by ``evalray hardware probe``: below the datasheet's."""
    NONE = "none"


#: What a device without a dtype's own unit computes it in: weights are widened, activations stay.
_WIDENED = {"fp8": "bf16", "bf16": "fp16"}


@dataclass(slots=True, frozen=True)
class Peak:
    """The peaks of one device.  ``None`` where nothing is known; ``detail`` says which row or probe, or why not."""

    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    dtype: str = ""
    """The dtype whose peak ``flops_per_second`` is."""
    flops_source: PeakSource = PeakSource.NONE
    bandwidth_source: PeakSource = PeakSource.NONE
    device: str = ""
    detail: str = ""

    @property
    def flops_label(self) -> str:
        flops = self.flops_per_second or 0.0
        amount = f"{flops / 1e12:.5g} TFLOP/s" if flops >= 1e12 else f"{flops / 1e9:.4g} GFLOP/s"
        return f"{amount} ({self.dtype}, {self.flops_source})"

    @property
    def bandwidth_label(self) -> str:
        return f"{(self.bytes_per_second or 0) / 1e9:.4g} GB/s ({self.bandwidth_source})"

    def to_dict(self) -> dict[str, Any]:
        """For a summary or a log: plain values."""
        return {
            key: str(value) if isinstance(value, StrEnum) else value for key, value in asdict(self).items()
        }


def match_of_all(gpus: Sequence[DeviceInfo]) -> DeviceMatch:
    """The one row of all GPUs of an engine, of which there is at least one; none where they differ."""
    found = [find_device(gpu.name, gpu.memory_total_bytes, sliced=gpu.sliced) for gpu in gpus]
    if any(match.spec is not found[0].spec for match in found):
        names = ", ".join(dict.fromkeys(match.device for match in found))
        return DeviceMatch(names, reason=f"an engine on differing GPUs ({names}) has no one peak")
    return found[0]


def table_flops(spec: DeviceSpec, compute_dtype: str) -> tuple[float | None, str]:
    """Peak FLOP/s of ``spec`` and the dtype it is of: a dtype the device lacks runs in the next wider one."""
    dtype = compute_dtype
    while dtype not in spec.tflops and dtype in _WIDENED:
        dtype = _WIDENED[dtype]
    peak = spec.tflops.get(dtype)
    return (None if peak is None else peak * 1e12), dtype


def resolve_peak(
    compute_dtype: str,
    *,
    match: DeviceMatch | None = None,
    probe: ProbeResult | None = None,
    suite_tflops: float | None = None,
    suite_bandwidth_gb_s: float | None = None,
) -> Peak:
    """Settle the peaks of one device, best source first.  A suite's 0 means "not given", as in the seed."""
    flops, flops_source, dtype = None, PeakSource.NONE, compute_dtype
    bandwidth, bandwidth_source = None, PeakSource.NONE
    details: list[str] = []
    spec = match.spec if match else None
    if suite_tflops:
        flops, flops_source = suite_tflops * 1e12, PeakSource.SUITE
    elif spec and (found := table_flops(spec, compute_dtype))[0] is not None:
        (flops, dtype), flops_source = found, PeakSource.TABLE
    elif probe and probe.flops_per_second:
        flops, flops_source, dtype = probe.flops_per_second, PeakSource.ACHIEVABLE, probe.dtype
    elif spec:
        details.append(f"{spec.name} has no {compute_dtype} peak in the table")
    if suite_bandwidth_gb_s:
        bandwidth, bandwidth_source = suite_bandwidth_gb_s * 1e9, PeakSource.SUITE
    elif spec:
        bandwidth, bandwidth_source = spec.bandwidth_gb_s * 1e9, PeakSource.TABLE
    elif probe and probe.read_bytes_per_second:
        bandwidth, bandwidth_source = probe.read_bytes_per_second, PeakSource.ACHIEVABLE
    sources = {flops_source, bandwidth_source}
    if spec and PeakSource.TABLE in sources:
        unread = "" if spec.checked else " (not compared with the vendor's own page)"
        details.append(f"{spec.name}: {spec.source}{unread}")
    if probe and PeakSource.ACHIEVABLE in sources:
        busy = " on a busy machine" if probe.is_noisy else ""
        details.append(f"{probe.device}, {probe.threads} threads, measured {probe.measured_at}{busy}")
    if match and not match.spec and PeakSource.NONE in sources:
        details.append(match.reason)
    device = spec.name if spec else probe.device if probe else match.device if match else ""
    return Peak(flops, bandwidth, dtype, flops_source, bandwidth_source, device, "; ".join(details))
