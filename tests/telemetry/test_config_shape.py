from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.telemetry import (
    ModelShape,
    ShapeSource,
    WeightSource,
    model_shape,
    prefill_flops,
    shape_of_config,
    shape_of_path,
    weight_bytes,
)
from evalray.telemetry.config_shape import config_dimensions

Config = dict[str, Any]
Named = Callable[[str], ModelShape]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-2-70B", 68_976_648_192),
        ("SmolLM2-135M", 134_515_008),
        ("Mistral-7B-v0.1", 7_241_732_096),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen1.5-MoE-A2.7B", 14_315_784_192),
        ("Mixtral-8x7B", 46_702_792_704),
        ("gemma-2-9b", 9_241_705_984),
        ("Phi-3-mini-4k", 3_821_079_552),
        ("phi-2", 2_779_683_840),
        ("gpt-oss-120b", 116_829_156_672),
        ("DeepSeek-V2-Lite", 15_706_484_224),
        ("DeepSeek-V3", 671_026_419_200),
    ],
)
def test_matrices_add_up_to_the_published_parameters(shape_named: Named, name: str, published: int) -> None:
    """What is missing is norms and biases: less than 0.4 per mille."""
    assert 0 <= published - shape_named(name).total_params < 4e-4 * published


@pytest.mark.parametrize(
    ("name", "active_b"), [("gpt-oss-120b", 5.13), ("DeepSeek-V3", 36.6), ("Mixtral-8x7B", 12.7)]
)
def test_only_the_chosen_experts_are_active(shape_named: Named, name: str, active_b: float) -> None:
    assert shape_named(name).active_matmul_params / 1e9 == pytest.approx(active_b, abs=0.05)


def test_a_tied_head_counts_once_and_an_untied_embedding_is_not_read(shape_named: Named) -> None:
    tied, untied = shape_named("SmolLM2-135M"), shape_named("Llama-3.1-8B")
    assert tied.active_matmul_params == tied.total_params
    assert tied.weights.embedding_bytes == 0
    assert untied.total_params - untied.active_matmul_params == 4096 * 128256
    assert untied.weights.dense_bytes == 2 * untied.active_matmul_params


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("Llama-3.1-8B", {None: 32}),
        ("Mistral-7B-v0.1", {4096: 32}),
        ("Qwen2.5-7B", {None: 28}),
        ("gemma-2-9b", {4096: 21, None: 21}),
        ("gemma-3-4b", {1024: 29, None: 5}),
        ("gpt-oss-120b", {128: 18, None: 18}),
        ("Mixtral-8x7B", {None: 32}),
    ],
)
def test_windows_follow_each_familys_pattern(
    shape_named: Named, name: str, windows: dict[int | None, int]
) -> None:
    assert {kind.window: kind.layers for kind in shape_named(name).attention} == windows


def test_the_first_layer_of_gemma_slides_and_the_sixth_of_gemma_3_does_not(
    configs: dict[str, Config],
) -> None:
    assert config_dimensions(configs["gemma-2-9b"]).windows[:2] == (4096, None)
    assert config_dimensions(configs["gemma-3-4b"]).windows[:6] == (1024,) * 5 + (None,)


def test_qwen_windows_start_at_max_window_layers(configs: dict[str, Config]) -> None:
    config = configs["Qwen2.5-7B"] | {"use_sliding_window": True, "max_window_layers": 20}
    assert config_dimensions(config).windows == (None,) * 20 + (131072,) * 8


def test_the_language_model_of_a_multimodal_model_is_read(configs: dict[str, Config]) -> None:
    dims = config_dimensions(configs["gemma-3-4b"])
    assert (dims.layers, dims.hidden, dims.heads, dims.kv_heads, dims.head_dim) == (34, 2560, 8, 4, 256)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "mamba2"}, "mamba2"),
        ({"model_type": None}, "model_type missing"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention"),
        ({"layer_types": ["full_attention"], "sliding_window": 5}, "1 layer_types for 32 layers"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is '1000000000'"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers"),
        (
            {"sliding_window": 64, "use_sliding_window": True, "num_hidden_layers": 10**12},
            "num_hidden_layers",
        ),
        ({"hidden_size": 10**12}, "hidden is"),
        ({"num_attention_heads": 10**6}, "head_dim is '0'"),
        ({"num_key_value_heads": 33}, "kv_heads is '33'"),
        (
            {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9},
            "experts_per_token is '9'",
        ),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [-1, 1]}}, "wrong kind"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 0]}}, "wrong kind"),
    ],
)
def test_what_cannot_be_told_is_none_with_the_reason(
    configs: dict[str, Config], change: Config, reason: str
) -> None:
    result = shape_of_config(configs["Llama-3.1-8B"] | change)
    assert result.shape is None
    assert reason in result.reason


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers(10**8, 10**30)
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_keys = st.sampled_from(
    [
        "model_type",
        "text_config",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "sliding_window",
        "layer_types",
        "kv_lora_rank",
        "n_routed_experts",
        "first_k_dense_replace",
        "moe_layer_freq",
        "num_hidden_layers",
        "q_lora_rank",
        "quantization_config",
        "torch_dtype",
    ]
)


@pytest.mark.parametrize("rank", ["abc", -5, 1.5, [1], float("nan"), 10**30])
def test_a_rank_that_is_none_is_the_reason_and_raises_nothing(
    configs: dict[str, Config], rank: object
) -> None:
    result = shape_of_config(configs["DeepSeek-V3"] | {"q_lora_rank": rank})
    assert result.shape is None
    assert "q_lora_rank" in result.reason


@given(
    st.sampled_from(["llama", "qwen3_moe", "deepseek_v3", "gemma2"]),
    st.dictionaries(_keys, _json, max_size=4),
)
def test_no_config_however_odd_raises(family: str, changes: Config) -> None:
    config = {
        "model_type": family,
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
    }
    result = shape_of_config(config | changes)
    assert (result.shape is None) == bool(result.reason)


@pytest.mark.parametrize("content", [None, [], "text", 3])
def test_a_config_that_is_no_object_is_refused(content: object) -> None:
    assert shape_of_config(content).shape is None


# -- precision --------------------------------------------------------------------------------------

_FP8_GROUP = {
    "weights": {"num_bits": 8, "type": "float"},
    "input_activations": {"num_bits": 8, "type": "float"},
}
_INT8_GROUP = {
    "weights": {"num_bits": 8, "type": "int"},
    "input_activations": {"num_bits": 8, "type": "int"},
}
_W4_GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 128}, "input_activations": None}


@pytest.mark.parametrize(
    ("settings", "bytes_per_weight", "compute"),
    [
        (None, 2.0, "bf16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5195, "bf16"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5195, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0, "bf16"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.000, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, 1.000, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0, "int8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": _FP8_GROUP}}, 1.0, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": _INT8_GROUP}}, 1.0, "int8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": _W4_GROUP}}, 0.516, "bf16"),
    ],
)
def test_quantised_weights_take_their_bits_and_compute_in_the_activations_dtype(
    configs: dict[str, Config], settings: Config | None, bytes_per_weight: float, compute: str
) -> None:
    result = shape_of_config(configs["Llama-3.1-8B"] | {"quantization_config": settings})
    assert result.shape is not None
    shape = result.shape
    linear = shape.active_matmul_params - shape.head_params
    stored = (shape.weights.dense_bytes - 2 * shape.head_params) / linear
    assert stored == pytest.approx(bytes_per_weight, abs=5e-4)
    assert shape.compute_dtype == compute
    assert shape.weights.source is (WeightSource.QUANTIZATION if settings else WeightSource.DTYPE)
    assert shape.notes == ()


def test_an_unknown_format_is_counted_at_the_dtype_and_says_so(configs: dict[str, Config]) -> None:
    result = shape_of_config(configs["Llama-3.1-8B"] | {"quantization_config": {"quant_method": "novel"}})
    assert result.shape is not None
    assert result.shape.weights.dense_bytes == 2 * result.shape.active_matmul_params
    assert "novel" in result.shape.notes[0]


def test_a_float32_checkpoint_counts_as_served_in_16_bits(configs: dict[str, Config], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configs["SmolLM2-135M"] | {"torch_dtype": "float32"}))
    result = shape_of_path(tmp_path)
    assert result.shape is not None
    assert result.shape.weights.dense_bytes == 2 * result.shape.active_matmul_params
    assert "float32" in result.shape.notes[0]


def test_gpt_oss_quantises_its_experts_only(shape_named: Named) -> None:
    shape = shape_named("gpt-oss-120b")
    assert shape.weights.experts is not None
    assert shape.weights.experts.bytes == 36 * 128 * 3 * 2880 * 2880 * 4.25 / 8
    assert shape.weights.total_bytes / 1e9 == pytest.approx(65.2, abs=0.1)
    assert shape.compute_dtype == "bf16"


def test_an_fp8_kv_cache_halves_the_traffic(configs: dict[str, Config]) -> None:
    result = shape_of_config(configs["Llama-3.1-8B"], kv_bytes_per_value=1.0)
    assert result.shape is not None
    assert result.shape.kv_bytes_per_token == 65536


# -- parameter counts -------------------------------------------------------------------------------


def test_parameter_counts_give_a_shape_without_attention() -> None:
    shape = model_shape(param_count_b=8.0).shape
    assert shape is not None
    assert shape.source is ShapeSource.PARAM_COUNT
    assert prefill_flops(shape, 100) == 2 * 8_000_000_000 * 100
    assert weight_bytes(shape, 50) == 16e9
    assert shape.kv_bytes_per_token is None
    assert shape.notes


def test_active_parameters_bound_the_bytes_of_a_step() -> None:
    shape = model_shape(param_count_b=30, active_params_b=3).shape
    assert shape is not None
    assert prefill_flops(shape, 10) == 2 * 3_000_000_000 * 10
    assert [weight_bytes(shape, tokens) for tokens in (1, 4, 100)] == [6e9, 24e9, 60e9]


@pytest.mark.parametrize(("total", "active"), [(3.0, 30.0), (-1.0, None)])
def test_impossible_counts_give_no_shape(total: float, active: float | None) -> None:
    result = model_shape(param_count_b=total, active_params_b=active)
    assert result.shape is None
    assert "param_count_b" in result.reason


def test_nothing_known_says_what_to_give(tmp_path: Path) -> None:
    assert "param_count_b" in model_shape().reason
    assert "cannot be read" in model_shape(tmp_path / "absent").reason
    (tmp_path / "config.json").write_text("{")
    assert "no JSON" in model_shape(tmp_path).reason


def test_counts_stand_in_for_a_description_that_cannot_be_read(tmp_path: Path) -> None:
    result = model_shape(tmp_path / "absent", param_count_b=8.0)
    assert result.shape is not None
    assert "cannot be read" in result.reason
