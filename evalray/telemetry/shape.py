"""The shape of a model, as far as FLOPs and bytes depend on it.

:class:`Dimensions` holds what a model's own description says, in the field's words; :func:`build_shape`
turns it into a :class:`ModelShape`: matmul weights per token, attention per kind of layer, bytes.  A model
of which only the number of parameters is known has a shape too, without attention and KV cache.

Matmul weights count every weight a token is multiplied with: no input embedding table, which is looked
up, and the head once, tied or not.  Norms and biases are left out of the FLOPs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

#: Beyond these a number is no model's, and what is worked out from it would fill the memory or mean nothing.
MOST_LAYERS, MOST_EXPERTS, LARGEST_DIMENSION = 4096, 1 << 16, 1 << 24


class UnknownShape(ValueError):  # noqa: N818 - said to users as a reason, not raised to them
    """The shape cannot be told; the message is the reason."""


def bounded(name: str, value: object, low: int, high: int) -> int:
    """``value`` where it is a whole number from ``low`` to ``high``; raises :class:`UnknownShape` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UnknownShape(f"{name} is {str(value)[:40]!r}, and no model's: give param_count_b in the suite")
    return value


class ShapeSource(StrEnum):
    """Where a shape comes from."""

    CONFIG = "config.json"
    GGUF = "gguf"
    PARAM_COUNT = "param_count_b"


class WeightSource(StrEnum):
    """How the weight bytes are known, best first."""

    TENSORS = "tensors"
    QUANTIZATION = "quantization_config"
    DTYPE = "dtype"
    PARAM_COUNT = "param_count_b"


@dataclass(slots=True, frozen=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): per head dims and ranks."""

    kv_lora_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int
    q_lora_rank: int | None = None


@dataclass(slots=True, frozen=True)
class Moe:
    """Routed experts; ``layers`` is how many layers have them."""

    experts: int
    experts_per_token: int
    expert_ffn: int
    layers: int
    shared_ffn: int = 0
    """Width of all shared experts together."""
    shared_gate: bool = False
    """Whether the shared expert has a gate of its own (one row of the hidden size)."""


@dataclass(slots=True, frozen=True)
class Dimensions:
    """A decoder-only transformer in numbers.

    ``head_dim`` is of queries and keys, ``v_head_dim`` of values.  ``windows`` has one entry per layer:
    tokens of its sliding window, ``None`` for full attention.  ``gated`` FFNs have three matrices
    (gate, up, down), others two.  ``ffn`` is the width of the dense layers, one entry per layer where it varies.
    Raises :class:`UnknownShape` where a number cannot be a model's.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    v_head_dim: int | None = None
    gated: bool = True
    tied_embeddings: bool = False
    windows: tuple[int | None, ...] = ()
    moe: Moe | None = None
    mla: Mla | None = None

    def __post_init__(self) -> None:
        bounded("the number of layers", self.layers, 1, MOST_LAYERS)
        for name in ("hidden", "heads", "head_dim", "ffn", "vocab"):
            bounded(name, getattr(self, name), 1, LARGEST_DIMENSION)
        bounded("kv_heads", self.kv_heads, 1, self.heads)
        if self.v_head_dim is not None:
            bounded("v_head_dim", self.v_head_dim, 1, LARGEST_DIMENSION)
        if (moe := self.moe) is not None:
            bounded("the number of experts", moe.experts, 1, MOST_EXPERTS)
            bounded("experts_per_token", moe.experts_per_token, 1, moe.experts)
            bounded("expert_ffn", moe.expert_ffn, 1, LARGEST_DIMENSION)
            bounded("shared_ffn", moe.shared_ffn, 0, LARGEST_DIMENSION)
            bounded("the number of layers with experts", moe.layers, 0, self.layers)
        if (mla := self.mla) is not None:
            for name in ("kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_dim"):
                bounded(name, getattr(mla, name), 1, LARGEST_DIMENSION)
            if mla.q_lora_rank is not None:
                bounded("q_lora_rank", mla.q_lora_rank, 1, LARGEST_DIMENSION)


@dataclass(slots=True, frozen=True)
class AttentionLayers:
    """``layers`` like layers: a token at context c costs ``2 * heads * (qk_dim + v_dim) * min(c, window)``."""

    layers: int
    heads: int
    qk_dim: int
    v_dim: int
    cached_values: int
    """KV-cache elements that one token adds in one layer."""
    kv_heads: int
    window: int | None = None

    @property
    def flops_per_key(self) -> int:
        """FLOPs of one query token over one key, in all these layers: QK^T and the sum of values."""
        return 2 * self.layers * self.heads * (self.qk_dim + self.v_dim)


@dataclass(slots=True, frozen=True)
class ExpertWeights:
    """The routed experts of all MoE layers; which are read depends on the tokens of a step."""

    experts: int
    experts_per_token: int
    bytes: float
    """All experts of all layers."""


@dataclass(slots=True, frozen=True)
class Weights:
    """Bytes of the weights as stored.

    ``dense_bytes`` are read once in every step whatever the tokens; the input embedding is in
    ``embedding_bytes`` and is not read but looked up (0 where it doubles as the head).
    ``replicated_bytes`` is the part of the dense ones that every tensor-parallel rank holds whole.
    """

    dense_bytes: float
    experts: ExpertWeights | None = None
    embedding_bytes: float = 0.0
    replicated_bytes: float = 0.0
    single_token_bytes: float | None = None
    """Set where experts exist but are not known one by one: a step of T tokens reads at most T times this."""
    source: WeightSource = WeightSource.DTYPE

    @property
    def total_bytes(self) -> float:
        return self.dense_bytes + self.embedding_bytes + (self.experts.bytes if self.experts else 0.0)


@dataclass(slots=True, frozen=True)
class ModelShape:
    """What the roofline needs.  ``None`` KV bytes: the cache's layout is not known, and its traffic not counted."""

    architecture: str
    source: ShapeSource
    active_matmul_params: int
    """Weights that one token is multiplied with, the head included (N_mm; experts: only the chosen ones)."""
    head_params: int
    """Of these, the output head: hidden size x vocabulary."""
    total_params: int
    """All matrices, embedding and every expert included; without norms and biases."""
    weights: Weights
    attention: tuple[AttentionLayers, ...] = ()
    kv_bytes_per_value: float | None = None
    compute_dtype: str = "bf16"
    """What the matrix multiplications run in: ``bf16``, ``fp16``, ``fp8``, ``int8``, ``fp32``."""
    dimensions: Dimensions | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def kv_bytes_per_token(self) -> float | None:
        """KV-cache bytes that one token adds, over all layers."""
        if self.kv_bytes_per_value is None:
            return None
        return self.kv_bytes_per_value * sum(kind.layers * kind.cached_values for kind in self.attention)


@dataclass(slots=True, frozen=True)
class MatmulParams:
    """Weights by what becomes of them in a step; whole model, in elements."""

    attention: int
    dense_ffn: int
    """Dense FFNs, shared experts and routers."""
    experts: int
    """All routed experts."""
    experts_active: int
    """The routed experts that one token passes through."""
    head: int
    embedding: int
    """The input table; 0 where it is tied to the head."""
    replicated: int
    """Of attention and FFN, what every tensor-parallel rank holds whole: MLA's down-projections, routers."""

    @property
    def dense(self) -> int:
        """Read in every step."""
        return self.attention + self.dense_ffn + self.head

    @property
    def active(self) -> int:
        return self.dense + self.experts_active

    @property
    def total(self) -> int:
        return self.dense + self.experts + self.embedding


def matmul_params(dims: Dimensions) -> MatmulParams:
    """Count the matrices of ``dims``."""
    attention, replicated = _attention_params(dims)
    matrices = 3 if dims.gated else 2
    moe = dims.moe
    dense_layers = dims.layers - (moe.layers if moe else 0)
    dense_ffn = dense_layers * matrices * dims.hidden * dims.ffn
    experts = experts_active = 0
    if moe:
        router = moe.layers * dims.hidden * (moe.experts + (1 if moe.shared_gate else 0))
        dense_ffn += router + moe.layers * matrices * dims.hidden * moe.shared_ffn
        replicated += router
        one_of_each_layer = moe.layers * matrices * dims.hidden * moe.expert_ffn
        experts = moe.experts * one_of_each_layer
        experts_active = moe.experts_per_token * one_of_each_layer
    head = dims.hidden * dims.vocab
    return MatmulParams(
        attention=attention,
        dense_ffn=dense_ffn,
        experts=experts,
        experts_active=experts_active,
        head=head,
        embedding=0 if dims.tied_embeddings else head,
        replicated=replicated,
    )


def _attention_params(dims: Dimensions) -> tuple[int, int]:
    """Projection weights of all layers, and the part that tensor parallelism replicates."""
    hidden, heads = dims.hidden, dims.heads
    if (mla := dims.mla) is not None:
        q_dim = heads * (mla.qk_nope_dim + mla.qk_rope_dim)
        down = hidden * (mla.kv_lora_rank + mla.qk_rope_dim)
        up = mla.kv_lora_rank * heads * (mla.qk_nope_dim + mla.v_dim)
        if mla.q_lora_rank:
            down += hidden * mla.q_lora_rank
            up += mla.q_lora_rank * q_dim
        else:
            up += hidden * q_dim
        output = heads * mla.v_dim * hidden
        return dims.layers * (down + up + output), dims.layers * down
    v_dim = dims.v_head_dim or dims.head_dim
    queries_and_keys = hidden * (heads + dims.kv_heads) * dims.head_dim
    values = hidden * dims.kv_heads * v_dim
    return dims.layers * (queries_and_keys + values + heads * v_dim * hidden), 0


def attention_layers(dims: Dimensions) -> tuple[AttentionLayers, ...]:
    """The kinds of attention layer in ``dims``, one entry per window size."""
    if (mla := dims.mla) is not None:
        qk_dim, v_dim, kv_heads = mla.qk_nope_dim + mla.qk_rope_dim, mla.v_dim, 1
        cached = mla.kv_lora_rank + mla.qk_rope_dim
    else:
        qk_dim, v_dim, kv_heads = dims.head_dim, dims.v_head_dim or dims.head_dim, dims.kv_heads
        cached = dims.kv_heads * (qk_dim + v_dim)
    windows = Counter(dims.windows or (None,) * dims.layers)
    return tuple(
        AttentionLayers(count, dims.heads, qk_dim, v_dim, cached, kv_heads, window)
        for window, count in windows.items()
    )


def build_shape(
    dims: Dimensions,
    weights: Weights,
    *,
    source: ShapeSource,
    compute_dtype: str,
    kv_bytes_per_value: float | None = 2.0,
    notes: tuple[str, ...] = (),
) -> ModelShape:
    """The shape of a model whose dimensions are known."""
    params = matmul_params(dims)
    return ModelShape(
        architecture=dims.architecture,
        source=source,
        active_matmul_params=params.active,
        head_params=params.head,
        total_params=params.total,
        weights=weights,
        attention=attention_layers(dims),
        kv_bytes_per_value=kv_bytes_per_value,
        compute_dtype=compute_dtype,
        dimensions=dims,
        notes=notes,
    )


def shape_from_param_count(
    param_count_b: float,
    active_params_b: float | None = None,
    *,
    bytes_per_param: float = 2.0,
    compute_dtype: str = "bf16",
) -> ModelShape:
    """The shape of a model of which the suite gives only parameters, in billions.

    No attention FLOPs and no KV traffic, so MFU and MBU are lower bounds for a dense model.  With
    ``active_params_b`` below the total the weights read by a step of T tokens are taken as
    min(total, T x active), an upper bound.
    Raises ``ValueError`` where a count is not positive or more are active than there are.
    """
    total = param_count_b * 1e9
    active = total if not active_params_b else active_params_b * 1e9
    if not 0 < active <= total:
        raise ValueError("param_count_b must be above 0, and active_params_b at most as much")
    notes = ["attention and KV cache not counted: only the number of parameters is known"]
    if active < total:
        notes.append("weight bytes are an upper bound: the number of experts is not known")
    return ModelShape(
        architecture="",
        source=ShapeSource.PARAM_COUNT,
        active_matmul_params=round(active),
        head_params=0,
        total_params=round(total),
        weights=Weights(
            dense_bytes=total * bytes_per_param,
            single_token_bytes=active * bytes_per_param if active < total else None,
            source=WeightSource.PARAM_COUNT,
        ),
        compute_dtype=compute_dtype,
        notes=tuple(notes),
    )
