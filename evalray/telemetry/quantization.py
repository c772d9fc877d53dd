"""Bits per weight, compute dtype and KV-cache dtype, from a model's ``config.json``.

Bits include what a format stores beside the weights (scales, zero points).  "Compute dtype" is what the
matrix products run in: weight-only formats (W4A16, W8A16) are widened to the activations' dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

_DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "float": 4.0}
_COMPUTE = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_FP8_BLOCK = 128


@dataclass(slots=True, frozen=True)
class Precision:
    """``linear_bytes`` per quantised weight; ``dtype_bytes`` per weight left alone (head, embedding, router).

    ``experts_only`` formats quantise the routed experts and nothing else (gpt-oss's MXFP4).
    """

    linear_bytes: float
    dtype_bytes: float
    compute_dtype: str
    quantized: bool = False
    experts_only: bool = False
    narrowed_from_fp32: bool = False
    """The files hold 4 bytes a weight, and what is served holds 2."""
    reason: str = ""
    """Why the bytes are a guess; empty where they are not."""


def dtype_bytes(name: str) -> float | None:
    """Bytes of one element of a dtype by its torch name."""
    return _DTYPE_BYTES.get(name.removeprefix("torch."))


def precision(config: Config, text: Config) -> Precision:
    """How a model's weights are stored and computed with.  ``text`` is the language model's part."""
    name = str(_first(config, text, "dtype", "torch_dtype") or "bfloat16").removeprefix("torch.")
    plain = _DTYPE_BYTES.get(name, 2.0)
    compute = _COMPUTE.get(name, "bf16")
    narrowed = compute == "fp32"
    if narrowed:  # engines serve fp32 checkpoints in 16 bits unless told otherwise
        compute, plain = "bf16", 2.0
    settings = _first(config, text, "quantization_config", "compression_config")
    if not isinstance(settings, Mapping):
        return Precision(plain, plain, compute, narrowed_from_fp32=narrowed)
    method = str(settings.get("quant_method", "")).lower()
    if method in ("gptq", "awq", "autoawq", "auto-round", "auto_round"):
        return Precision(_grouped(settings.get("bits"), settings.get("group_size"), 4), plain, compute, True)
    if method == "mxfp4":
        return Precision((4 + 8 / 32) / 8, plain, compute, True, experts_only=True)
    if method in ("fp8", "fbgemm_fp8"):
        rows, columns = settings.get("weight_block_size") or (_FP8_BLOCK, _FP8_BLOCK)
        if not (rows > 0 and columns > 0):
            raise ValueError(f"weight_block_size is {rows} x {columns}")
        return Precision(1 + 4 / (rows * columns), plain, "fp8", True)
    if method == "bitsandbytes":
        four = bool(settings.get("load_in_4bit") or settings.get("_load_in_4bit"))
        return Precision(0.5 + 4 / 64 if four else 1.0, plain, compute if four else "int8", True)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(settings, plain, compute)
    reason = f"the format {method or '(without a name)'} is not known: weight bytes taken from the dtype"
    return Precision(plain, plain, compute, True, reason=reason)


def _first(config: Config, text: Config, *keys: str) -> Any:
    return next((part[key] for part in (config, text) for key in keys if part.get(key) is not None), None)


def _grouped(bits: Any, group_size: Any, default_bits: int) -> float:
    """Bytes per weight with an fp16 scale and a zero point of the weights' own width for each group."""
    bits = bits if isinstance(bits, int) and 0 < bits <= 32 else default_bits
    group = group_size if isinstance(group_size, int) and group_size > 0 else 0
    beside = (16 + bits) / group if group else 0.0
    return float((bits + beside) / 8)


def _compressed(settings: Config, plain: float, compute: str) -> Precision:
    """compressed-tensors: the first group of the scheme stands for all; schemes rarely have a second."""
    groups = settings.get("config_groups")
    group: Config = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = group.get("weights") or {}
    activations = group.get("input_activations")
    bits = weights.get("num_bits")
    if not isinstance(bits, int) or not 0 < bits <= 32:
        return Precision(
            plain, plain, compute, True, reason="config_groups does not say num_bits of the weights"
        )
    if isinstance(activations, Mapping) and activations.get("num_bits") == 8:
        compute = "fp8" if activations.get("type") == "float" else "int8"
    size = weights.get("group_size")
    scale = 16 / size if isinstance(size, int) and size > 0 else 0.0
    return Precision((bits + scale) / 8, plain, compute, True)
