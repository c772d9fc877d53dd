"""Dimensions of a model from its Hugging Face ``config.json``.

Families are listed, because what a key means differs between them: an architecture that is not listed
is unknown, with the reason, rather than counted wrongly.  Multimodal wrappers are read by their text part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evalray.telemetry.shape import MOST_LAYERS, Dimensions, Mla, Moe, UnknownShape, bounded

Config = Mapping[str, Any]

#: Gated FFNs: gate, up and down projections.
_GATED_NAMES = (
    "llama mistral ministral ministral3 mixtral qwen2 qwen2_vl_text qwen2_5_vl_text qwen3 qwen3_vl_text gemma "
    "gemma2 gemma3_text phi3 cohere cohere2 olmo olmo2 olmo3 granite stablelm internlm2 internlm3 exaone exaone4 "
    "glm glm4 smollm3 helium seed_oss ernie4_5 hunyuan_v1_dense qwen2_moe qwen3_moe qwen3_vl_moe_text olmoe "
    "phimoe granitemoe deepseek deepseek_v2 deepseek_v3 kimi_k2 glm4_moe gpt_oss mimo yi baichuan"
)
_GATED = frozenset(_GATED_NAMES.split())
#: FFNs of two matrices.
_PLAIN_NAMES = "phi gpt2 gpt_neo gpt_neox gptj gpt_bigcode starcoder2 opt falcon bloom nemotron arcee"
_PLAIN = frozenset(_PLAIN_NAMES.split())
#: Dense layers first, a width of their own for the experts, shared experts counted in experts.
_DEEPSEEK = frozenset({"deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe"})
#: Every n-th layer attends everything, the others through the window, where the layers are not listed.
_FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "olmo3": 4, "exaone4": 4}
_WINDOW_ON_ALL = frozenset({"mistral", "ministral", "ministral3", "mixtral", "phi3", "phimoe", "starcoder2"})
_TIED_BY_DEFAULT = frozenset(
    {"gemma", "gemma2", "gemma3_text", "cohere", "cohere2", "gpt2", "opt", "bloom", "gpt_bigcode"}
)
#: `transformers` writes only what differs from a class's defaults; these are the ones in use.
_HEAD_DIM_DEFAULTS = {"gemma": 256, "gemma2": 256, "gemma3_text": 256, "gpt_oss": 64}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4},
}


def text_config(config: Config) -> dict[str, Any]:
    """The part that describes the language model, with what only the top level says filled in."""
    inner = next(
        (config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), dict)), None
    )
    if inner is None:
        return dict(config)
    outer = {key: value for key, value in config.items() if key not in ("model_type", "text_config")}
    return outer | {key: value for key, value in inner.items() if value is not None}


def config_dimensions(config: Config) -> Dimensions:
    """Raises :class:`UnknownShape` with the reason."""
    text = text_config(config)
    family = str(text.get("model_type") or "").lower()
    if family not in _GATED | _PLAIN:
        raise UnknownShape(
            f"the architecture {family or '(model_type missing)'} is not known: give param_count_b in the suite"
        )
    text = _DEFAULTS.get(family, {}) | text
    kinds = set(text.get("layer_types") or ())
    if strange := kinds - {"full_attention", "sliding_attention"}:
        raise UnknownShape(f"layers of the kind {min(map(str, strange))} are not modelled")
    hidden = _integer(text, "hidden_size", "n_embd", "d_model")
    heads = _integer(text, "num_attention_heads", "n_head", "num_heads")
    layers = _integer(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    bounded("num_hidden_layers", layers, 1, MOST_LAYERS)
    return Dimensions(
        architecture=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(text, family, heads),
        head_dim=_head_dim(text, family, hidden, heads),
        ffn=_ffn(text, hidden),
        vocab=_integer(text, "vocab_size"),
        gated=family in _GATED,
        tied_embeddings=bool(text.get("tie_word_embeddings", family in _TIED_BY_DEFAULT)),
        windows=_windows(text, family, layers),
        moe=_moe(text, family, layers),
        mla=_mla(text),
    )


def _integer(config: Config, *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    if default is not None:
        return default
    raise UnknownShape(f"config.json does not say {keys[0]}")


def _head_dim(text: Config, family: str, hidden: int, heads: int) -> int:
    return _integer(
        text, "head_dim", "attention_head_dim", default=_HEAD_DIM_DEFAULTS.get(family, hidden // heads)
    )


def _kv_heads(text: Config, family: str, heads: int) -> int:
    if family == "falcon" and not text.get("new_decoder_architecture"):
        return 1 if text.get("multi_query", True) else heads
    if family == "gpt_bigcode":
        return 1 if text.get("multi_query", True) else heads
    return _integer(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads)


def _ffn(text: Config, hidden: int) -> int:
    return _integer(
        text, "intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "hidden_dim", default=4 * hidden
    )


def _mla(text: Config) -> Mla | None:
    rank = text.get("kv_lora_rank")
    if not rank:
        return None
    return Mla(
        kv_lora_rank=_integer(text, "kv_lora_rank"),
        qk_nope_dim=_integer(text, "qk_nope_head_dim"),
        qk_rope_dim=_integer(text, "qk_rope_head_dim"),
        v_dim=_integer(text, "v_head_dim"),
        q_lora_rank=text.get("q_lora_rank") or None,
    )


# -- sliding windows --------------------------------------------------------------------------------


def _windows(text: Config, family: str, layers: int) -> tuple[int | None, ...]:
    window = text.get("sliding_window")
    if not isinstance(window, int) or isinstance(window, bool) or window <= 0:
        return ()
    listed = text.get("layer_types")
    if isinstance(listed, list):
        if len(listed) != layers:
            raise UnknownShape(f"config.json lists {len(listed)} layer_types for {layers} layers")
        return tuple(window if kind == "sliding_attention" else None for kind in listed)
    if "use_sliding_window" in text or family.startswith("qwen"):
        if not text.get("use_sliding_window", False):
            return ()
        first = _integer(text, "max_window_layers", default=layers)
        return tuple(window if layer >= first else None for layer in range(layers))
    if family in _FULL_EVERY:
        every = _integer(
            text, "sliding_window_pattern", "_sliding_window_pattern", default=_FULL_EVERY[family]
        )
        return tuple(None if (layer + 1) % every == 0 else window for layer in range(layers))
    return (window,) * layers if family in _WINDOW_ON_ALL else ()


# -- experts ----------------------------------------------------------------------------------------


def _moe(text: Config, family: str, layers: int) -> Moe | None:
    reader = _MOE_READERS.get(family)
    return reader(text, layers) if reader else None


def _every_layer(text: Config, layers: int) -> Moe:
    """Mixtral and its like: all layers have experts, as wide as ``intermediate_size``."""
    return Moe(
        experts=_integer(text, "num_local_experts", "num_experts"),
        experts_per_token=_integer(text, "num_experts_per_tok", "experts_per_token"),
        expert_ffn=_integer(text, "intermediate_size"),
        layers=layers,
        shared_ffn=_integer(text, "shared_intermediate_size", default=0),
    )


def _qwen_moe(text: Config, layers: int) -> Moe | None:
    experts = _integer(text, "num_experts", default=0)
    if not experts:
        return None
    step = _integer(text, "decoder_sparse_step", default=1)
    dense = set(text.get("mlp_only_layers") or ())
    shared = _integer(text, "shared_expert_intermediate_size", default=0)
    return Moe(
        experts=experts,
        experts_per_token=_integer(text, "num_experts_per_tok"),
        expert_ffn=_integer(text, "moe_intermediate_size"),
        layers=sum((layer + 1) % step == 0 and layer not in dense for layer in range(layers)),
        shared_ffn=shared,
        shared_gate=shared > 0,
    )


def _deepseek_moe(text: Config, layers: int) -> Moe | None:
    experts = _integer(text, "n_routed_experts", default=0)
    if not experts:
        return None
    first, step = int(text.get("first_k_dense_replace") or 0), _integer(text, "moe_layer_freq", default=1)
    width = _integer(text, "moe_intermediate_size")
    return Moe(
        experts=experts,
        experts_per_token=_integer(text, "num_experts_per_tok"),
        expert_ffn=width,
        layers=sum(layer >= first and layer % step == 0 for layer in range(layers)),
        shared_ffn=width * _integer(text, "n_shared_experts", default=0),
    )


_MoeReader = Callable[[Config, int], Moe | None]
_READERS: tuple[tuple[_MoeReader, Iterable[str]], ...] = (
    (_every_layer, ("mixtral", "gpt_oss", "phimoe", "olmoe", "granitemoe")),
    (_qwen_moe, ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text")),
    (_deepseek_moe, _DEEPSEEK),
)
_MOE_READERS = {family: reader for reader, families in _READERS for family in families}
