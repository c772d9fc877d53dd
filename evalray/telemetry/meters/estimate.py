"""Energy guessed from TDP x utilisation, for devices that measure none.  Only when the user asks for it.

A guess by a constant and a duty cycle: off by a factor of two or more is common (a GPU that waits for
memory is fully "utilised" at half its power).  Every figure of it says ``estimate``.
"""

from __future__ import annotations

import dataclasses

from evalray.telemetry.meters.base import DeviceKind, EnergyMethod, EnergyScope, Meter, Reading

#: Share of its TDP that a device draws at rest.
IDLE_SHARE = 0.15


class EstimateMeter(Meter):
    """Wraps a meter that gives utilisation and no energy; its power is then integrated over time."""

    def __init__(self, meter: Meter, tdp_watts: float) -> None:
        """Raises ``ValueError`` where the TDP is not above 0."""
        if not tdp_watts > 0:
            raise ValueError("the TDP for an energy estimate must be above 0 W")
        self._meter = meter
        self._tdp_watts = tdp_watts
        scope = EnergyScope.GPU if meter.info.kind is DeviceKind.GPU else EnergyScope.PACKAGE
        self.info = dataclasses.replace(
            meter.info,
            energy_method=EnergyMethod.ESTIMATE,
            energy_scope=scope,
            power_scope=scope,
            power_limit_watts=meter.info.power_limit_watts or tdp_watts,
            reason=f"estimated from {tdp_watts:g} W TDP x utilisation; {meter.info.reason}".rstrip("; "),
        )

    def read(self, *, slow: bool) -> Reading:
        reading = self._meter.read(slow=slow)
        if reading.utilization_pct is None:
            return reading
        share = IDLE_SHARE + (1 - IDLE_SHARE) * reading.utilization_pct / 100
        return reading._replace(power_watts=self._tdp_watts * share)

    def close(self) -> None:
        self._meter.close()
