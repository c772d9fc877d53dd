"""Dimensions of a model from the metadata of its GGUF file.

Architectures are listed for the same reason as in :mod:`evalray.telemetry.config_shape`; the FFN's kind,
the tied head and the vocabulary are read off the tensor table, which cannot be out of step with the weights.
"""

from __future__ import annotations

from evalray.gguf import GgufFile
from evalray.telemetry.shape import MOST_LAYERS, Dimensions, Mla, Moe, UnknownShape, bounded

_KNOWN_NAMES = (
    "llama qwen2 qwen2vl qwen3 qwen3vl qwen2moe qwen3moe qwen3vlmoe gemma gemma2 gemma3 phi2 phi3 phimoe "
    "command-r cohere2 olmo olmo2 olmoe granite granitemoe stablelm internlm2 exaone exaone4 glm4 glm4moe "
    "smollm3 seed_oss ernie4_5 hunyuan-dense gpt2 gptneox starcoder2 falcon bloom nemotron arcee baichuan "
    "deepseek deepseek2 gpt-oss mistral3 minicpm"
)
_KNOWN = frozenset(_KNOWN_NAMES.split())
#: Every n-th layer attends everything where the file gives a window and no pattern.
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "cohere2": 4, "gpt-oss": 2, "exaone4": 4, "olmo2": 4}


def gguf_dimensions(file: GgufFile) -> Dimensions:
    """Raises :class:`UnknownShape` with the reason."""
    return _Metadata(file).dimensions()


class _Metadata:
    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._architecture = file.architecture
        self._shapes = {tensor.name: tensor.shape for tensor in file.tensors}

    def dimensions(self) -> Dimensions:
        if self._architecture not in _KNOWN:
            name = self._architecture or "(general.architecture missing)"
            raise UnknownShape(f"the architecture {name} is not known: give param_count_b in the suite")
        layers = self._integer("block_count") - self._integer("nextn_predict_layers", 0)
        bounded("block_count", layers, 1, MOST_LAYERS)
        hidden = self._integer("embedding_length")
        heads = self._integer("attention.head_count")
        head_dim = self._integer("attention.key_length", hidden // heads)
        return Dimensions(
            architecture=self._architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            v_head_dim=self._integer("attention.value_length", head_dim),
            ffn=self._integer("feed_forward_length"),
            vocab=self._vocabulary(),
            gated=self._gated(),
            tied_embeddings=not self._has("output.weight"),
            windows=self._windows(layers),
            moe=self._moe(layers),
            mla=self._mla(),
        )

    def _integer(self, key: str, default: int | None = None) -> int:
        """A number, or an array of the same number for every layer."""
        value = self._file.values.get(f"{self._architecture}.{key}")
        if isinstance(value, tuple):
            if len(set(value)) != 1:
                raise UnknownShape(f"{key} differs between the layers")
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and (value > 0 or default == 0):
            return value
        if default is None:
            raise UnknownShape(f"the file does not say {self._architecture}.{key}")
        return default

    def _has(self, suffix: str) -> bool:
        return any(name == suffix or name.endswith(f".{suffix}") for name in self._shapes)

    def _vocabulary(self) -> int:
        table = self._shapes.get("token_embd.weight")
        return table[-1] if table else self._integer("vocab_size")

    def _gated(self) -> bool:
        """Whether there is a gate, on its own or fused with the up projection (phi3)."""
        if any(
            self._has(name) for name in ("ffn_gate.weight", "ffn_gate_exps.weight", "ffn_gate_up_exps.weight")
        ):
            return True
        fused = 2 * self._integer("feed_forward_length")
        return any(name.endswith("ffn_up.weight") and fused in shape for name, shape in self._shapes.items())

    def _windows(self, layers: int) -> tuple[int | None, ...]:
        window = self._integer("attention.sliding_window", 0)
        if not window:
            return ()
        pattern = self._file.values.get(f"{self._architecture}.attention.sliding_window_pattern")
        if isinstance(pattern, tuple):
            if len(pattern) < layers:
                raise UnknownShape(f"the file lists {len(pattern)} windows for {layers} layers")
            return tuple(window if slides else None for slides in pattern[:layers])
        every = pattern if isinstance(pattern, int) and pattern > 0 else _FULL_EVERY.get(self._architecture)
        if every is None:
            return (window,) * layers
        return tuple(None if (layer + 1) % every == 0 else window for layer in range(layers))

    def _moe(self, layers: int) -> Moe | None:
        experts = self._integer("expert_count", 0)
        if not experts:
            return None
        width = self._integer("expert_feed_forward_length", self._integer("feed_forward_length"))
        routers = {name for name in self._shapes if name.endswith("ffn_gate_inp.weight")}
        with_experts = len(routers) or layers - self._integer("leading_dense_block_count", 0)
        shared = self._integer("expert_shared_feed_forward_length", 0)
        return Moe(
            experts=experts,
            experts_per_token=self._integer("expert_used_count"),
            expert_ffn=width,
            layers=min(layers, with_experts),
            shared_ffn=shared or width * self._integer("expert_shared_count", 0),
            shared_gate=self._has("ffn_gate_inp_shexp.weight"),
        )

    def _mla(self) -> Mla | None:
        rank = self._integer("attention.kv_lora_rank", 0)
        if not rank:
            return None
        rope = self._integer("rope.dimension_count")
        # Files for the absorbed form carry the per-head dims under *_mla, and the latent's under the plain keys.
        qk = self._integer("attention.key_length_mla", self._integer("attention.key_length"))
        return Mla(
            kv_lora_rank=rank,
            qk_nope_dim=qk - rope,
            qk_rope_dim=rope,
            v_dim=self._integer("attention.value_length_mla", self._integer("attention.value_length")),
            q_lora_rank=self._integer("attention.q_lora_rank", 0) or None,
        )
