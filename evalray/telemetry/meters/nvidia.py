"""NVIDIA GPUs through NVML (``nvidia-ml-py``, whose module is ``pynvml``).

The energy counter first (Volta and newer); power integrated over time where there is none, by the
instantaneous field where the driver has it, since the plain reading is a 1 s average on most cards.
Devices are held by UUID and taken up again after a reset.  A GPU in MIG mode has no energy: its counter
is of the whole board, whoever uses the slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pynvml

from evalray.telemetry.meters.base import DeviceInfo, DeviceKind, EnergyMethod, EnergyScope, Meter, Reading
from evalray.telemetry.meters.null import NullMeter

#: How long a device that was lost is left alone before it is asked for again.
RETRY_SECONDS = 5.0
#: A quantity that fails so often in a row at the start, with so long between, is not there.
_TRIES, _BETWEEN_SECONDS = 3, 0.01

_LOST = frozenset(
    (
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    )
)
#: A quantity that answers so at the start is never asked for again.
_ABSENT = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
)
_NAMES = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
_INSTANT = pynvml.NVML_FI_DEV_POWER_INSTANT
#: Chips whose plain power reading is instantaneous although they are Ampere (GA100).
_GA100 = ("A100", "A800", "A30 ", "DRIVE-PG199")

#: A quantity: asks NVML for it, given the handle.
Query = Callable[[Any], Any]


class DeviceLostError(Exception):
    """The driver no longer answers for a device; ``code`` is NVML's name of why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def error_name(error: pynvml.NVMLError) -> str:
    """NVML's own name of an error, e.g. ``GPU_IS_LOST``."""
    return str(_NAMES.get(error.value, f"NVML_{error.value}"))


def nvidia_meters() -> list[Meter]:
    """A meter for each physical NVIDIA GPU of this machine, in NVML's order; none without a driver.

    A GPU that cannot be opened has a meter that says why.
    """
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return []
    return [_open(index) for index in range(count)]


def why_no_driver() -> str | None:
    """Why NVML cannot be used here, in NVML's words; ``None`` where it can."""
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return f"{error_name(error)}: {error}"
    return None


def _open(index: int) -> Meter:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return NvidiaMeter(_text(pynvml.nvmlDeviceGetUUID(handle)), index)
    except Exception as error:  # noqa: BLE001 - a name that is no text, say: the other GPUs are measured all the same
        code = (
            error_name(error) if isinstance(error, pynvml.NVMLError) else f"{type(error).__name__}: {error}"
        )
        if isinstance(error, DeviceLostError):
            code = error.code
        reason = f"NVML cannot open GPU {index}: {code}; see nvidia-smi -i {index}"
        return NullMeter(f"nvidia:{index}", DeviceKind.GPU, "NVIDIA GPU", index, reason)


class NvidiaMeter(Meter):
    """One GPU, by UUID."""

    def __init__(self, uuid: str, index: int) -> None:
        """Raises :class:`DeviceLostError` or ``NVMLError`` where the GPU does not answer."""
        self._uuid = uuid
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._retry_at = 0.0
        self._lost = ""
        self._refusal = ""
        """What the last quantity that is not there answered."""
        name = _name(self._handle)
        sliced = self._ask(_mig_mode) == pynvml.NVML_DEVICE_MIG_ENABLE
        memory = self._ask(_memory)
        limit = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        self._energy = None if sliced else self._present(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        refusal = self._refusal
        self._power, power_scope = (None, None) if sliced else self._find_power()
        self._utilization = None if sliced else self._present(_utilization)
        self._slow = [
            self._present(query)
            for query in (_memory_used, _sm_clock, _memory_clock, _temperature, _throttle_reasons)
        ]
        method, scope, reason = _settle(sliced, self._energy is not None, power_scope, refusal)
        average = self._power is pynvml.nvmlDeviceGetPowerUsage and self._averages(name)
        self.info = DeviceInfo(
            uuid,
            DeviceKind.GPU,
            name,
            index,
            method,
            scope,
            reason,
            memory_total_bytes=None if memory is None else int(memory.total),
            power_limit_watts=limit / 1e3 if limit else None,
            power_scope=power_scope,
            power_is_average=average,
            sliced=sliced,
        )

    def read(self, *, slow: bool) -> Reading:
        if self._lost and not self._regain():
            return Reading(error=self._lost)
        try:
            energy = self._ask(self._energy)
            power = self._ask(self._power)
            utilization = self._ask(self._utilization)
            rest = [self._ask(query) for query in self._slow] if slow else [None] * len(self._slow)
        except DeviceLostError as error:
            self._lost = error.code
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return Reading(error=error.code)
        return Reading(
            None if energy is None else energy / 1e3,
            None if power is None else power / 1e3,
            utilization,
            *rest,
        )

    def read_counter(self) -> float | None:
        try:
            millijoules = self._ask(self._energy)
        except DeviceLostError:
            return None
        return None if millijoules is None else millijoules / 1e3

    def _regain(self) -> bool:
        """Take the device up again after it was lost, at most every ``RETRY_SECONDS``."""
        if time.monotonic() < self._retry_at:
            return False
        self._retry_at = time.monotonic() + RETRY_SECONDS
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except pynvml.NVMLError as error:
            self._lost = error_name(error)
            return False
        self._lost = ""
        return True

    def _ask(self, query: Query | None) -> Any:
        """What ``query`` gives, ``None`` where it fails this once; raises :class:`DeviceLostError`."""
        if query is None:
            return None
        try:
            return query(self._handle)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                raise DeviceLostError(error_name(error)) from None
            return None

    def _present(self, query: Query) -> Query | None:
        """``query``, unless the device has no such thing: it says so, or fails again and again."""
        for attempt in range(_TRIES):
            time.sleep(_BETWEEN_SECONDS if attempt else 0.0)
            try:
                query(self._handle)
            except pynvml.NVMLError as error:
                if error.value in _LOST:
                    raise DeviceLostError(error_name(error)) from None
                self._refusal = error_name(error)
                if error.value in _ABSENT:
                    return None
            else:
                return query
        return None

    def _find_power(self) -> tuple[Query | None, EnergyScope | None]:
        """The best power reading there is.  Grace-Hopper boards answer for the whole module alone."""
        for query, scope in (
            (_instant_gpu_power, EnergyScope.GPU),
            (_instant_module_power, EnergyScope.MODULE),
            (pynvml.nvmlDeviceGetPowerUsage, EnergyScope.GPU),
        ):
            if self._present(query):
                return query, scope
        return None, None

    def _averages(self, name: str) -> bool:
        architecture = self._ask(pynvml.nvmlDeviceGetArchitecture)
        if architecture is None or architecture == pynvml.NVML_DEVICE_ARCH_UNKNOWN:
            return True
        return architecture >= pynvml.NVML_DEVICE_ARCH_AMPERE and not any(chip in name for chip in _GA100)


def _settle(
    sliced: bool, counter: bool, power_scope: EnergyScope | None, refusal: str
) -> tuple[EnergyMethod, EnergyScope | None, str]:
    """How energy is had, what it is of, and the reason where something is missing.

    ``refusal`` is what the counter answered where there is none.
    """
    why = "older than Volta, or a vGPU" if refusal == "NOT_SUPPORTED" else f"NVML answers {refusal}"
    if sliced:
        reason = "MIG is on: energy and power exist for the whole GPU only; switch it off to measure energy"
        return EnergyMethod.NONE, None, reason
    if counter:
        return EnergyMethod.HW_COUNTER, EnergyScope.GPU, ""
    if power_scope is EnergyScope.MODULE:
        reason = f"no energy counter ({why}); power is of the whole module, CPU included"
        return EnergyMethod.INTEGRATED_POWER, power_scope, reason
    if power_scope is not None:
        return EnergyMethod.INTEGRATED_POWER, power_scope, f"no energy counter ({why})"
    return EnergyMethod.NONE, None, f"the driver gives neither energy nor power for this GPU ({why})"


def _field(handle: Any, field: int, scope: int) -> Any:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [(field, scope)])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return value.value.uiVal


def _instant_gpu_power(handle: Any) -> Any:
    return _field(handle, _INSTANT, pynvml.NVML_POWER_SCOPE_GPU)


def _instant_module_power(handle: Any) -> Any:
    return _field(handle, _INSTANT, pynvml.NVML_POWER_SCOPE_MODULE)


def _mig_mode(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMigMode(handle)[0]


def _memory(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _memory_used(handle: Any) -> Any:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def _utilization(handle: Any) -> Any:
    return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _sm_clock(handle: Any) -> Any:
    return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))


def _memory_clock(handle: Any) -> Any:
    return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM))


def _temperature(handle: Any) -> Any:
    return float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _throttle_reasons(handle: Any) -> Any:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _name(handle: Any) -> str:
    try:
        return _text(pynvml.nvmlDeviceGetName(handle))
    except UnicodeDecodeError:  # pynvml takes all names for UTF-8
        return "NVIDIA GPU"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
