"""Which meters this machine has, and which devices a process sees of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from evalray.telemetry.hardware import find_device
from evalray.telemetry.meters.base import DeviceInfo, DeviceKind, EnergyMethod, Meter
from evalray.telemetry.meters.estimate import EstimateMeter
from evalray.telemetry.meters.nvidia import nvidia_meters
from evalray.telemetry.meters.rapl import rapl_meters
from evalray.telemetry.meters.zeus import zeus_meters


def find_meters(*, estimate: bool = False, powercap_root: Path | None = None) -> list[Meter]:
    """Every device of this machine that has a meter, measurable or not.  Devices are never left out
    silently: one that gives no energy is there with its reason.

    ``estimate``: TDP x utilisation for the GPUs that measure no energy and are in the hardware table.
    """
    meters = [*nvidia_meters(), *rapl_meters(powercap_root), *zeus_meters()]
    return [_estimated(meter) for meter in meters] if estimate else meters


def _estimated(meter: Meter) -> Meter:
    info = meter.info
    if info.energy_method is not EnergyMethod.NONE or info.kind is not DeviceKind.GPU:
        return meter
    spec = find_device(info.name, info.memory_total_bytes).spec
    if spec is None or not spec.tdp_watts or meter.read(slow=False).utilization_pct is None:
        return meter
    return EstimateMeter(meter, spec.tdp_watts)


def visible_gpus(devices: Sequence[DeviceInfo], visible: str | None = None) -> tuple[DeviceInfo, ...]:
    """The GPUs among ``devices`` that a process with ``CUDA_VISIBLE_DEVICES=visible`` uses, in its order.

    ``None`` reads the variable of this process; where it is not set, all GPUs.  Numbers are the driver's
    (PCI) order, as Ray and vLLM use them; ``GPU-...`` is a UUID or the start of one.  As in CUDA, an entry
    that names no device ends the list.  A MIG slice gives the GPU that holds it only where one GPU has
    MIG on, since its UUID does not say.
    """
    gpus = [device for device in devices if device.kind is DeviceKind.GPU]
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(gpus)
    found: list[DeviceInfo] = []
    for entry in visible.split(","):
        device = _named(entry.strip(), gpus)
        if device is None:
            break
        if device not in found:
            found.append(device)
    return tuple(found)


def _named(entry: str, gpus: Sequence[DeviceInfo]) -> DeviceInfo | None:
    if entry.isdecimal():
        matching = [gpu for gpu in gpus if gpu.index == int(entry)]
    elif entry.startswith("MIG-"):
        matching = [gpu for gpu in gpus if "MIG" in gpu.reason]
    else:
        matching = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.device_id.startswith(entry)]
    return matching[0] if len(matching) == 1 else None
