"""The shape of a model, from the best description there is.

A GGUF file, a model folder with ``config.json`` (and perhaps its safetensors), a bare ``config.json`` or
its content, else the suite's parameter counts.  What cannot be told is ``None`` with the reason; nothing
here raises for what a model's files say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalray.gguf import GgufError
from evalray.telemetry.config_shape import config_dimensions, text_config
from evalray.telemetry.gguf_shape import gguf_dimensions
from evalray.telemetry.quantization import precision
from evalray.telemetry.shape import (
    Dimensions,
    ModelShape,
    ShapeSource,
    UnknownShape,
    Weights,
    build_shape,
    shape_from_param_count,
)
from evalray.telemetry.weights import (
    UnreadableWeights,
    gguf_sizes,
    read_whole_gguf,
    safetensors_sizes,
    weights_of_precision,
    weights_of_tensors,
)

#: llama.cpp's default KV cache, and the dtype its fast matrix products come closest to.
_GGUF_KV_BYTES, _GGUF_COMPUTE = 2.0, "fp16"


@dataclass(slots=True, frozen=True)
class ShapeResult:
    """A shape, or ``None`` and the reason."""

    shape: ModelShape | None
    reason: str = ""


def model_shape(
    path: Path | None = None,
    *,
    param_count_b: float | None = None,
    active_params_b: float | None = None,
    kv_bytes_per_value: float | None = None,
) -> ShapeResult:
    """The shape of the model at ``path`` (GGUF file, folder, ``config.json``), else by parameter counts.

    ``kv_bytes_per_value`` overrides the KV cache's 2 bytes where an engine is told otherwise (fp8: 1).
    """
    reason = "the model's description is not on this machine: give param_count_b in the suite"
    if path is not None:
        found = shape_of_path(path, kv_bytes_per_value=kv_bytes_per_value)
        if found.shape is not None:
            return found
        reason = found.reason
    if param_count_b:
        try:
            return ShapeResult(shape_from_param_count(param_count_b, active_params_b), reason)
        except ValueError as error:
            reason = str(error)
    return ShapeResult(None, reason)


def shape_of_path(path: Path, *, kv_bytes_per_value: float | None = None) -> ShapeResult:
    """The shape of a GGUF file, a model folder or a ``config.json``."""
    if path.suffix.lower() == ".gguf":
        return shape_of_gguf(path, kv_bytes_per_value=kv_bytes_per_value)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        return ShapeResult(None, f"{file} cannot be read: {error.strerror}")
    except (ValueError, RecursionError):
        return ShapeResult(None, f"{file} is no JSON")
    folder = path if path.is_dir() else file.parent
    return shape_of_config(config, folder=folder, kv_bytes_per_value=kv_bytes_per_value)


def shape_of_config(
    config: Any, *, folder: Path | None = None, kv_bytes_per_value: float | None = None
) -> ShapeResult:
    """The shape of a model by the content of its ``config.json``; its safetensors are looked for in ``folder``."""
    if not isinstance(config, Mapping):
        return ShapeResult(None, "config.json holds no object")
    try:
        dims = config_dimensions(config)
        stored = precision(config, text_config(config))
    except UnknownShape as reason:
        return ShapeResult(None, str(reason))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        return ShapeResult(None, f"config.json has a value of the wrong kind: {error}")
    notes = [stored.reason] if stored.reason else []
    weights = weights_of_precision(dims, stored)
    if stored.narrowed_from_fp32:
        notes.append("the checkpoint is float32: weight bytes counted at 16 bits, as engines serve it")
    elif folder is not None:
        weights, note = _tensor_weights(folder, dims, weights)
        notes += [note] if note else []
    return ShapeResult(
        build_shape(
            dims,
            weights,
            source=ShapeSource.CONFIG,
            compute_dtype=stored.compute_dtype,
            kv_bytes_per_value=kv_bytes_per_value or stored.dtype_bytes,
            notes=tuple(notes),
        )
    )


def _tensor_weights(folder: Path, dims: Dimensions, otherwise: Weights) -> tuple[Weights, str]:
    try:
        return weights_of_tensors(safetensors_sizes(folder), dims), ""
    except UnreadableWeights as error:
        return otherwise, f"weight bytes counted from config.json: {error}"


def shape_of_gguf(file: Path, *, kv_bytes_per_value: float | None = None) -> ShapeResult:
    """The shape of a GGUF model; of a split one the file may be any part, and all are read."""
    try:
        model = read_whole_gguf(file)
        dims = gguf_dimensions(model)
        weights = weights_of_tensors(gguf_sizes(model), dims)
    except OSError as error:
        return ShapeResult(None, f"{file} cannot be read: {error.strerror}")
    except (GgufError, UnknownShape, UnreadableWeights) as error:
        return ShapeResult(None, str(error))
    return ShapeResult(
        build_shape(
            dims,
            weights,
            source=ShapeSource.GGUF,
            compute_dtype=_GGUF_COMPUTE,
            kv_bytes_per_value=kv_bytes_per_value or _GGUF_KV_BYTES,
        )
    )
