"""Bytes of a model's weights: from the tensors themselves where they can be read, else from the dtype.

Tensors are told apart by name: the input embedding is looked up, not read; routed experts are read as
they are hit; towers for images and sound, and layers for multi-token prediction, take no part in decoding
text.  Everything else is read in every step.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalray.gguf import GgufError, GgufFile, read_gguf
from evalray.telemetry.quantization import Precision
from evalray.telemetry.shape import Dimensions, ExpertWeights, Weights, WeightSource, matmul_params

_EMBEDDING = re.compile(
    r"^(.*\.)?(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|token_embd)\.(weight|qweight)$"
)
_HEAD = re.compile(r"^(.*\.)?(lm_head|embed_out|output)\.(weight|qweight)$")
_EXPERTS = re.compile(r"(\.experts\.|\.experts_|_exps\.|\.block_sparse_moe\.experts)")
_SHARED = re.compile(r"shared_expert|_shexp\.")
_ASIDE = re.compile(
    r"(^|\.)(vision_\w+|visual|image_\w+|audio_\w+|multi_modal_projector|mtp|per_layer_token_embd)(\.|$)|^(v|mm|a)\."
    r"|^rope_freqs\.|rotary_emb\.inv_freq$|position_embd|embed_positions|^(.*\.)?wpe\."
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h)\.(\d+)\.")
_REPLICATED = re.compile(r"norm|kv_a_|q_a_proj|attn_q_a|attn_kv_a|\.gate\.weight|ffn_gate_inp|router")
_MAX_HEADER_BYTES = 100 << 20
_LARGEST_FILE_BYTES = 1 << 50
_SHARD = re.compile(r"^(.*)-\d{5}-of-(\d{5})\.gguf$")


class UnreadableWeights(ValueError):  # noqa: N818 - a reason for falling back, not a failure
    """The tensors cannot be read here; the message is the reason."""


Sizes = Iterable[tuple[str, float]]


def weights_of_tensors(sizes: Sizes, dims: Dimensions) -> Weights:
    """Sort ``(name, bytes)`` of every tensor into what a step reads.

    Layers beyond ``dims.layers`` are for multi-token prediction and left out.
    """
    dense = experts = embedding = replicated = 0.0
    has_head = False
    for name, size in sizes:
        layer = _LAYER.search(name)
        if _ASIDE.search(name) or (layer and int(layer[1]) >= dims.layers):
            continue
        if _EMBEDDING.match(name):
            embedding += size
        elif _EXPERTS.search(name) and not _SHARED.search(name):
            experts += size
        else:
            dense += size
            has_head = has_head or _HEAD.match(name) is not None
            replicated += size if _REPLICATED.search(name) else 0.0
    if not dense:
        raise UnreadableWeights("no weights among the tensors")
    if not has_head:  # tied: the one table is looked up and multiplied with
        dense, embedding = dense + embedding, 0.0
    return Weights(
        dense_bytes=dense,
        experts=_experts(dims, experts),
        embedding_bytes=embedding,
        replicated_bytes=replicated,
        source=WeightSource.TENSORS,
    )


def weights_of_precision(dims: Dimensions, stored: Precision) -> Weights:
    """Bytes by counting matrices: quantised ones at their bits, head and embedding at the plain dtype."""
    params = matmul_params(dims)
    linear = stored.dtype_bytes if stored.experts_only else stored.linear_bytes
    routers = dims.moe.layers * dims.hidden * dims.moe.experts if dims.moe else 0
    quantised = params.attention + params.dense_ffn - routers
    return Weights(
        dense_bytes=quantised * linear + (params.head + routers) * stored.dtype_bytes,
        experts=_experts(dims, params.experts * stored.linear_bytes),
        embedding_bytes=params.embedding * stored.dtype_bytes,
        replicated_bytes=(params.replicated - routers) * linear + routers * stored.dtype_bytes,
        source=WeightSource.QUANTIZATION if stored.quantized else WeightSource.DTYPE,
    )


def _experts(dims: Dimensions, size: float) -> ExpertWeights | None:
    if not dims.moe or not size:
        return None
    return ExpertWeights(dims.moe.experts, dims.moe.experts_per_token, size)


# -- safetensors ------------------------------------------------------------------------------------


def safetensors_sizes(folder: Path) -> list[tuple[str, float]]:
    """Name and bytes of every tensor of a model folder, from the headers alone.

    With an index, the shards it names; without, ``model.safetensors`` or the only ones there are.
    Raises :class:`UnreadableWeights`.  Format: https://github.com/huggingface/safetensors#format
    """
    index = folder / "model.safetensors.index.json"
    sizes: list[tuple[str, float]] = []
    for file in _indexed(index) if index.is_file() else _unindexed(folder):
        sizes += _header_sizes(file)
    return sizes


def _indexed(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UnreadableWeights(f"{index.name} cannot be read: {error}") from None
    strange = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if strange:
        raise UnreadableWeights(f"{index.name} names files outside its folder")
    return [index.parent / name for name in sorted(names)]


def _unindexed(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    found = [whole] if whole.is_file() else sorted(folder.glob("*.safetensors"))
    if not found:
        raise UnreadableWeights(f"no safetensors in {folder.name or folder}")
    return found


def _header_sizes(file: Path) -> list[tuple[str, float]]:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MAX_HEADER_BYTES:
                raise UnreadableWeights(f"{file.name} is no safetensors file")
            header: Mapping[str, Any] = json.loads(stream.read(length))
        entries = [(name, entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__"]
        return [(name, _tensor_bytes(*offsets)) for name, offsets in entries]
    except OSError as error:
        raise UnreadableWeights(f"{file.name} cannot be read: {error.strerror}") from None
    except (struct.error, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise UnreadableWeights(f"{file.name} is damaged or cut short: fetch it again") from None


def _tensor_bytes(begin: int, end: int) -> float:
    """Raises ``ValueError`` where no file has such a place."""
    if not 0 <= begin <= end <= _LARGEST_FILE_BYTES:
        raise ValueError("a tensor lies outside of any file")
    return float(end - begin)


# -- GGUF -------------------------------------------------------------------------------------------


def gguf_parts(file: Path) -> list[Path]:
    """The file, or all parts of the split model that it is one of."""
    if (part := _SHARD.match(file.name)) is None:
        return [file]
    return [
        file.with_name(f"{part[1]}-{number:05d}-of-{part[2]}.gguf") for number in range(1, int(part[2]) + 1)
    ]


def read_whole_gguf(file: Path) -> GgufFile:
    """One model: the first part's values with the tensors of all.

    Raises ``OSError``, and :class:`evalray.gguf.GgufError` where a part is damaged or cut short.
    """
    parts = [read_gguf(part) for part in gguf_parts(file)]
    if any(part.missing_bytes for part in parts):
        raise GgufError(f"{file} is cut short: fetch it again")
    tensors = [tensor for part in parts for tensor in part.tensors]
    return replace(parts[0], tensors=tensors, file_bytes=sum(part.file_bytes for part in parts))


def gguf_sizes(file: GgufFile) -> list[tuple[str, float]]:
    """Name and bytes of every tensor."""
    return [(tensor.name, float(tensor.bytes)) for tensor in file.tensors]
