"""What is told of device time without joules: why a run has none, and that some of its time is in no figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from evalray.telemetry import DeviceLedger

#: From this part of the devices' time on, and from so many seconds, a run's joules need a word of warning.
_MUCH, _LONG = 0.05, 1.0
#: The causes that :class:`evalray.telemetry.windows.Fault` names.
_CAUSES = {
    "reset": "the energy counter went backward",
    "implausible": "more than 1.2 x the power limit allows",
    "frozen": "the energy counter stood still",
    "lost": "the device did not answer",
    "gap": "the power was not read",
    "edge": "before the counter's first update or after its last",
    "no_meter": "no meter",
}


def why_no_joules(ledgers: Iterable[DeviceLedger]) -> str:
    """Why requests on devices that have a meter have no joules."""
    lost = _lost(ledgers)
    if not lost:
        return "no request was in a measured stretch"
    found = (f"{_CAUSES.get(cause, cause)} ({seconds:.1f} s)" for cause, seconds in lost.items())
    return f"no request was in a valid window: {', '.join(found)}"


def much_unmeasured(
    ledgers: Iterable[DeviceLedger], invalid_seconds: float | None, device_seconds: float
) -> str | None:
    """A warning where so much of a run's device time is in no window that its joules are too few."""
    lost = invalid_seconds or 0.0
    if lost < _LONG or lost < _MUCH * device_seconds:
        return None
    causes = ", ".join(_CAUSES.get(cause, cause) for cause in _lost(ledgers))
    return (
        f"{lost:.1f} s of {device_seconds:.1f} s of its devices were not validly measured"
        f"{f' ({causes})' if causes else ''}: their joules are in no figure; energy_coverage says it of each sample"
    )


def _lost(ledgers: Iterable[DeviceLedger]) -> dict[str, float]:
    """Invalid seconds by cause, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    for ledger in ledgers:
        for cause, lost in ledger.invalid_seconds.items():
            seconds[cause] += lost
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))
