"""One meter per physical device, one file a vendor."""

from evalray.telemetry.meters.base import (
    TELEMETRY_VERSION,
    DeviceInfo,
    DeviceKind,
    EnergyMethod,
    EnergyScope,
    Meter,
    Reading,
)
from evalray.telemetry.meters.discover import find_meters, visible_gpus
from evalray.telemetry.meters.estimate import EstimateMeter
from evalray.telemetry.meters.null import NullMeter
from evalray.telemetry.meters.nvidia import NvidiaMeter, nvidia_meters, why_no_driver
from evalray.telemetry.meters.rapl import RaplMeter, rapl_meters
from evalray.telemetry.meters.zeus import zeus_meters

__all__ = [
    "TELEMETRY_VERSION",
    "DeviceInfo",
    "DeviceKind",
    "EnergyMethod",
    "EnergyScope",
    "EstimateMeter",
    "Meter",
    "NullMeter",
    "NvidiaMeter",
    "RaplMeter",
    "Reading",
    "find_meters",
    "nvidia_meters",
    "rapl_meters",
    "visible_gpus",
    "why_no_driver",
    "zeus_meters",
]
