"""What is known of a replica beside what it does: its model's shape, its devices and their peaks.

Most of it is known when the replica starts.  A hardware probe, a suite's peaks and its parameter counts may come
later: whoever repeats the sweep's command then has the figures of what is there already worked out with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalray.engines import resolve_model_path
from evalray.errors import EvalRayError
from evalray.plan import Deployment
from evalray.runtime.recording import EngineLife, Recorder, read_engines, recorded_node
from evalray.telemetry import (
    DeviceInfo,
    DeviceKind,
    ModelShape,
    NodeInfo,
    Peak,
    PeakSource,
    ShapeResult,
    ShapeSource,
    kept_probes,
    match_of_all,
    model_shape,
    read_clocks,
    resolve_peak,
    visible_gpus,
)

_ADVICE = (
    "run `evalray hardware probe` there, or give gpu_peak_tflops and gpu_peak_bandwidth_gb_s in the suite, "
    "and repeat the command"
)


def figures_given(deployment: Deployment) -> dict[str, Any]:
    """The model's hardware figures from the suite."""
    return deployment.runs[0].config.metadata if deployment.runs else {}


def own_devices(deployment: Deployment, node: NodeInfo | None, visible: str | None) -> tuple[DeviceInfo, ...]:
    """The devices a replica computes on: the GPUs it sees, else the node's processors and their memory."""
    if node is None:
        return ()
    if deployment.gpus_per_replica:
        return visible_gpus(node.devices, visible) if visible is not None else visible_gpus(node.devices, "")
    return tuple(device for device in node.devices if device.kind is not DeviceKind.GPU)


def shape_of(deployment: Deployment) -> ShapeResult:
    config, figures = deployment.engine_config, figures_given(deployment)
    return model_shape(
        _model_files(config.path, config.model),
        param_count_b=figures.get("param_count_b"),
        active_params_b=figures.get("active_params_b"),
    )


def _model_files(path: str | None, model: str) -> Path | None:
    """Where the model's description is on this machine: its file or folder, or the hub's cache."""
    if path:
        with contextlib.suppress(EvalRayError, OSError, ValueError):
            return resolve_model_path(path)
        return Path(path) if Path(path).exists() else None
    if Path(model).exists():
        return Path(model)
    with contextlib.suppress(Exception):
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
        if isinstance(found, str):
            return Path(found).parent
    return None


def peak_of(deployment: Deployment, node: NodeInfo | None, own: Sequence[DeviceInfo], dtype: str) -> Peak:
    """The peak of one of a replica's devices.  A probe counts where it was made on the node itself."""
    figures = figures_given(deployment)
    gpus = [device for device in own if device.kind is DeviceKind.GPU]
    device = f"cuda:{gpus[0].index}" if gpus else "" if deployment.gpus_per_replica else "cpu"
    peak = resolve_peak(
        dtype,
        match=match_of_all(gpus) if gpus else None,
        probe=node.probes.get(device) if node else None,
        suite_tflops=figures.get("gpu_peak_tflops"),
        suite_bandwidth_gb_s=figures.get("gpu_peak_bandwidth_gb_s"),
    )
    if device == "cpu" and not peak.detail and None in (peak.flops_per_second, peak.bytes_per_second):
        where = f"node {node.node_id[:8]}" if node else "the replica's node, which was not sampled,"
        return replace(peak, detail=f"no hardware probe of {where} is known: {_ADVICE}")
    return peak


def parameter_counts(deployment: Deployment, shape: ModelShape | None) -> tuple[float | None, float | None]:
    """All parameters and the active ones, in billions: the suite's, else the shape's."""
    figures = figures_given(deployment)
    total = figures.get("param_count_b") or (shape.total_params / 1e9 if shape else None)
    routed = shape.active_matmul_params / 1e9 if shape and shape.weights.experts else None
    return total, figures.get("active_params_b") or routed


# -- what came later --------------------------------------------------------------------------------

#: Two readings of one machine's clocks, since it was started, differ by less.
_SAME_START_SECONDS = 5.0


def learn_later(
    directory: Path, recorder: Recorder, run: str, deployment: Deployment, *, local: bool
) -> None:
    """Write down what has become known of the replicas that earlier processes of the sweep had for ``run``.

    ``local``: the sweep's only node is this machine, so that its probes count for what was measured on it.
    Raises ``OSError``.
    """
    for life in read_engines(directory):
        if run not in life.runs or life.stretch == recorder.stretch:
            continue
        node = recorded_node(directory, life.node_id, life.stretch)
        if node is not None and local and _is_this_machine(node):
            node = replace(node, probes={**kept_probes(node.devices), **node.probes})
        known = facts_now(life, deployment, node)
        if known.to_dict() != life.to_dict():
            recorder.known_later(known)


def facts_now(life: EngineLife, deployment: Deployment, node: NodeInfo | None) -> EngineLife:
    """A replica of an earlier process with the figures that the suite and the node's probes give now.

    What was known stays as it is, but for what the suite says or said.
    """
    shape, reason = life.shape, life.shape_reason
    if shape is None or shape.source is ShapeSource.PARAM_COUNT:
        found = shape_of(deployment)
        shape, reason = (found.shape, found.reason) if found.shape is not None else (shape, reason)
    own = tuple(device for device in node.devices if device.device_id in life.device_ids) if node else ()
    peak = peak_of(deployment, node, own, shape.compute_dtype if shape else "bf16")
    total, active = parameter_counts(deployment, shape)
    return replace(
        life,
        shape=shape,
        shape_reason=reason,
        peak=_peak_now(life.peak, peak) if life.shape is not None else peak,
        param_count_b=total,
        active_params_b=active,
    )


def _peak_now(known: Peak | None, found: Peak) -> Peak:
    """``known``, with what is better or newer in ``found``."""
    if known is None:
        return found
    open_to = (PeakSource.SUITE, PeakSource.NONE)
    new = known
    if found.flops_source is PeakSource.SUITE or known.flops_source in open_to:
        new = replace(
            new,
            flops_per_second=found.flops_per_second,
            flops_source=found.flops_source,
            dtype=found.dtype,
        )
    if found.bandwidth_source is PeakSource.SUITE or known.bandwidth_source in open_to:
        new = replace(new, bytes_per_second=found.bytes_per_second, bandwidth_source=found.bandwidth_source)
    return known if new == known else replace(new, device=found.device, detail=found.detail)


def _is_this_machine(node: NodeInfo) -> bool:
    """Whether the node's readings were taken here, since this machine was started last."""
    here, there = read_clocks(), node.clock
    started = [pair.wall_seconds - pair.monotonic_seconds for pair in (here, there)]
    return abs(started[0] - started[1]) < _SAME_START_SECONDS
