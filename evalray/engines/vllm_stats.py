"""What vLLM reports of every step, as far as anything of it is kept: its estimates of its own work.

With ``engine_args.enable_mfu_metrics`` vLLM estimates the FLOPs and bytes of each step (the counters
``vllm:estimated_flops_per_gpu_total`` and the like of its server).  They are summed here, over all devices
of the engine, to be put beside ours.
"""

from __future__ import annotations

from typing import Any

from evalray.engines.base import WorkCounters


class StepTotals:
    """Sums of vLLM's per-step estimates.  Written by its output handler, read from the same event loop."""

    def __init__(self) -> None:
        self.devices = 1
        """Devices of the engine: vLLM's figures are of one."""
        self._steps = 0
        self._flops = self._read = self._written = 0.0

    def add(self, scheduler_stats: Any) -> None:
        """One step's statistics, or none."""
        step = getattr(scheduler_stats, "perf_stats", None)
        if step is not None:
            self._steps += 1
            self._flops += step.num_flops_per_gpu
            self._read += step.num_read_bytes_per_gpu
            self._written += step.num_write_bytes_per_gpu

    def total(self) -> WorkCounters | None:
        """Everything so far; ``None`` where vLLM estimated nothing."""
        if not self._steps:
            return None
        each = (self._flops, self._read, self._written)
        flops, read, written = (self.devices * amount for amount in each)
        return WorkCounters(flops=flops, read_bytes=read, write_bytes=written)


def stat_logger(totals: StepTotals) -> Any:
    """A logger class that logs nothing: with one, vLLM keeps each request's timings and no metrics server's."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class QuietStats(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

        def record(self, scheduler_stats: Any = None, *arguments: Any, **named: Any) -> None:
            totals.add(scheduler_stats)

        def log_engine_initialized(self) -> None: ...

    return QuietStats
