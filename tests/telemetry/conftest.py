"""Shapes of published models: what their config.json says, cut to what matters."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalray.telemetry import ModelShape, Peak, find_device, resolve_peak, shape_of_config

Config = dict[str, Any]


def _config(family: str, layers: int, hidden: int, heads: int, ffn: int, vocab: int, **more: Any) -> Config:
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **more,
    }


_MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
_WINDOWED = ["sliding_attention", "full_attention"]

_CONFIGS: dict[str, Config] = {
    "Llama-3.1-8B": _config("llama", 32, 4096, 32, 14336, 128256, num_key_value_heads=8),
    "Llama-2-7B": _config("llama", 32, 4096, 32, 11008, 32000, torch_dtype="float16"),
    "Llama-2-70B": _config("llama", 80, 8192, 64, 28672, 32000, num_key_value_heads=8),
    "SmolLM2-135M": _config(
        "llama", 30, 576, 9, 1536, 49152, num_key_value_heads=3, tie_word_embeddings=True
    ),
    "Mistral-7B-v0.1": _config(
        "mistral", 32, 4096, 32, 14336, 32000, num_key_value_heads=8, sliding_window=4096
    ),
    "Qwen2.5-7B": _config(
        "qwen2",
        28,
        3584,
        28,
        18944,
        152064,
        num_key_value_heads=4,
        sliding_window=131072,
        max_window_layers=28,
        use_sliding_window=False,
    ),
    "Qwen3-30B-A3B": _config(
        "qwen3_moe",
        48,
        2048,
        32,
        6144,
        151936,
        num_key_value_heads=4,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        sliding_window=None,
    ),
    "Qwen1.5-MoE-A2.7B": _config(
        "qwen2_moe",
        24,
        2048,
        16,
        5632,
        151936,
        num_key_value_heads=16,
        num_experts=60,
        num_experts_per_tok=4,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        decoder_sparse_step=1,
    ),
    "Mixtral-8x7B": _config(
        "mixtral",
        32,
        4096,
        32,
        14336,
        32000,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "gemma-2-9b": _config(
        "gemma2",
        42,
        3584,
        16,
        14336,
        256000,
        num_key_value_heads=8,
        head_dim=256,
        sliding_window=4096,
        tie_word_embeddings=True,
    ),
    "gemma-3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    },
    "Phi-3-mini-4k": _config("phi3", 32, 3072, 32, 8192, 32064, num_key_value_heads=32, sliding_window=2047),
    "phi-2": _config("phi", 32, 2560, 32, 10240, 51200, num_key_value_heads=32),
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": None,
        "vocab_size": 50257,
    },
    "gpt-oss-120b": _config(
        "gpt_oss",
        36,
        2880,
        64,
        2880,
        201088,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=128,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=_WINDOWED * 18,
        quantization_config={"quant_method": "mxfp4"},
    ),
    "DeepSeek-V2-Lite": _config(
        "deepseek_v2",
        27,
        2048,
        16,
        10944,
        102400,
        num_key_value_heads=16,
        q_lora_rank=None,
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        moe_layer_freq=1,
        **_MLA,
    ),
    "DeepSeek-V3": _config(
        "deepseek_v3",
        61,
        7168,
        128,
        18432,
        129280,
        num_key_value_heads=128,
        q_lora_rank=1536,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
        **_MLA,
    ),
}


@pytest.fixture
def configs() -> dict[str, Config]:
    return _CONFIGS


@pytest.fixture
def shape_named(configs: dict[str, Config]) -> Callable[[str], ModelShape]:
    """The shape of one of the published models."""

    def named(name: str) -> ModelShape:
        result = shape_of_config(configs[name])
        assert result.shape is not None, result.reason
        return result.shape

    return named


@pytest.fixture
def h100() -> Peak:
    return resolve_peak("bf16", match=find_device("NVIDIA H100 80GB HBM3", 81559 * 2**20))


# -- devices ----------------------------------------------------------------------------------------

sys.path.insert(0, str(Path(__file__).parent / "stub_nvml"))

from nvml_stub import CLOCK_VARIABLE, SCRIPT_VARIABLE, Script, VirtualClock, build, have_compiler, script  # noqa: E402


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub NVML, compiled and loaded: the real pynvml then finds it under NVML's own name."""
    import pynvml

    if not have_compiler():
        pytest.skip("gcc is needed to build the stub NVML")
    if pynvml.nvmlLib is not None:
        pytest.skip("this process has loaded a real NVML already")
    library = build(tmp_path_factory.mktemp("nvml"))
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return library


@pytest.fixture
def stub_devices(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Sequence[Script]], VirtualClock]]:
    """Gives the stub its devices and a clock that the test moves."""

    def load(devices: Sequence[Script]) -> VirtualClock:
        _shut_nvml()
        (tmp_path / "nvml.script").write_text(script(devices))
        clock = VirtualClock(tmp_path / "nvml.clock")
        monkeypatch.setenv(SCRIPT_VARIABLE, str(tmp_path / "nvml.script"))
        monkeypatch.setenv(CLOCK_VARIABLE, str(tmp_path / "nvml.clock"))
        return clock

    yield load
    _shut_nvml()


def _shut_nvml() -> None:
    """However often it was initialised."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        for _ in range(1000):
            pynvml.nvmlShutdown()
