from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.telemetry import (
    ModelShape,
    Peak,
    PeakSource,
    Sequence,
    decode_flops,
    decode_kv_bytes,
    decode_span_flops,
    decoding,
    distinct_experts,
    estimated_steps,
    minimum_seconds,
    prefill_flops,
    request_flops,
    request_utilization,
    resolve_peak,
    shape_of_config,
    step_bytes,
    utilization,
    weight_bytes,
    window_bytes,
)
from evalray.telemetry.roofline import attended_keys

Named = Callable[[str], ModelShape]
LLAMA, A100 = "Llama-3.1-8B", 2039e9

# -- check values -----------------------------------------------------------------------------------


def test_llama_8b_has_its_matmul_weights_and_kv_bytes(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    assert shape.active_matmul_params == 7_504_658_432
    assert shape.kv_bytes_per_token == 131_072


@pytest.mark.parametrize(
    ("batch", "gigabytes", "milliseconds", "gflop", "mfu_at_full_bandwidth"),
    [(1, "15.14", "4.52", "15.5", "0.35"), (64, "23.60", "7.04", "995.0", "14.3")],
)
def test_a_decode_step_of_llama_8b_on_an_h100(
    shape_named: Named,
    h100: Peak,
    batch: int,
    gigabytes: str,
    milliseconds: str,
    gflop: str,
    mfu_at_full_bandwidth: str,
) -> None:
    shape = shape_named(LLAMA)
    traffic = step_bytes(shape, [decoding(1024)] * batch).total
    flops = batch * decode_flops(shape, 1024)
    seconds = minimum_seconds(flops, traffic, h100)
    assert seconds is not None
    used = utilization(flops, traffic, seconds, h100)
    assert f"{traffic / 1e9:.2f}" == gigabytes
    assert f"{seconds * 1e3:.2f}" == milliseconds
    assert f"{flops / 1e9:.1f}" == gflop
    assert used.mbu_pct == pytest.approx(100)
    assert f"{used.mfu_pct:.{len(mfu_at_full_bandwidth.partition('.')[2])}f}" == mfu_at_full_bandwidth
    assert used.warnings == ()


def test_the_seeds_request_formula_exceeds_the_device_under_batching(shape_named: Named, h100: Peak) -> None:
    """4355 %: at batch 64 at the roofline, it reads all weights for every token."""
    seconds = step_bytes(shape_named(LLAMA), [decoding(1024)] * 64).total / 3350e9
    used = request_utilization(
        param_count_b=8.03, active_params_b=None, tokens_per_second=64 / seconds, peak=h100
    )
    assert f"{used.mbu_pct:.0f}" == "4355"
    assert used.warnings == ()


def test_the_seeds_request_formula_takes_active_parameters_for_flops_only() -> None:
    peak = Peak(100e12, 1000e9)
    used = request_utilization(
        param_count_b=30, active_params_b=3, tokens_per_second=10, peak=peak, devices=2
    )
    assert used.mfu_pct == pytest.approx(100 * 2 * 3e9 * 10 / (100e12 * 2))
    assert used.mbu_pct == pytest.approx(100 * 30e9 * 2 * 10 / (1000e9 * 2))


def test_prefill_of_2048_tokens_is_linear_plus_causal_attention(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    linear = 2 * (shape.active_matmul_params - shape.head_params) * 2048 + 2 * shape.head_params
    attention = prefill_flops(shape, 2048) - linear
    assert (f"{linear / 1e12:.2f}", f"{attention / 1e12:.2f}") == ("28.59", "1.10")
    assert (
        f"{4 * 32 * 4096 * 2048**2 / 1e12:.2f}" == "2.20"
    )  # what counting causal attention whole would give


@pytest.mark.parametrize(
    ("tokens_per_second", "gb_per_second", "percent"),
    [(104.9, 1397.31, "68.5"), (155.58, 1069.20, "52.4"), (196.80, 862.69, "42.3"), (19.13, 1322.58, "64.9")],
)
def test_gpt_fast_reports_the_same_mbu(tokens_per_second: float, gb_per_second: float, percent: str) -> None:
    token_bytes = gb_per_second * 1e9 / tokens_per_second
    used = utilization(None, token_bytes, 1 / tokens_per_second, Peak(None, A100))
    assert f"{used.mbu_pct:.1f}" == percent
    assert used.mfu_pct is None


def test_llama_2_7b_moves_what_gpt_fast_says_per_token(shape_named: Named) -> None:
    traffic = step_bytes(shape_named("Llama-2-7B"), [decoding(200)]).total
    assert f"{traffic / 1e9:.2f}" == f"{1397.31 / 104.9:.2f}" == "13.32"
    assert f"{utilization(None, traffic, 1 / 104.9, Peak(None, 1935e9)).mbu_pct:.1f}" == "72.2"


def test_a_seven_billion_model_at_14_ms_takes_half_of_2_terabytes() -> None:
    assert utilization(None, 14e9, 0.014, Peak(None, 2e12)).mbu_pct == pytest.approx(50)


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens", "expected"), [(8, 2, 4, "5.47"), (256, 8, 16, "102")]
)
def test_distinct_experts_are_fewer_than_tokens_times_chosen(
    experts: int, chosen: int, tokens: int, expected: str
) -> None:
    found = distinct_experts(experts, chosen, tokens)
    assert f"{found:.{len(expected.partition('.')[2])}f}" == expected
    assert found < min(experts, tokens * chosen)


# -- FLOPs ------------------------------------------------------------------------------------------


def test_attention_of_a_decoded_token_grows_with_its_context(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    assert decode_flops(shape, 1024) == 2 * 7_504_658_432 + 4 * 32 * 32 * 128 * 1024


def test_a_request_is_its_prefill_and_one_token_less_to_decode(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    flops = request_flops(shape, 100, 3)
    assert flops.prefill == prefill_flops(shape, 100)
    assert flops.decode == decode_flops(shape, 101) + decode_flops(shape, 102)
    assert flops.total == flops.prefill + flops.decode
    assert request_flops(shape, 100, 1).decode == request_flops(shape, 100, 0).decode == 0


def test_cached_prompt_tokens_cost_no_flops_but_are_attended(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    assert prefill_flops(shape, 10, 90) < prefill_flops(shape, 100)
    assert prefill_flops(shape, 10, 90) > prefill_flops(shape, 10)
    assert request_flops(shape, 100, 1, cached_tokens=100).prefill == prefill_flops(shape, 1, 99)


def test_chunks_of_a_prompt_add_up_to_the_whole(shape_named: Named) -> None:
    shape = shape_named("gpt-oss-120b")
    chunks = prefill_flops(shape, 300, 0, logit_rows=0) + prefill_flops(shape, 212, 300)
    assert chunks == prefill_flops(shape, 512)


def test_a_sliding_window_caps_attention(shape_named: Named) -> None:
    shape = shape_named("Mistral-7B-v0.1")
    assert decode_flops(shape, 4096) == decode_flops(shape, 100_000)
    assert decode_flops(shape, 4095) < decode_flops(shape, 4096)


def test_only_the_windowed_layers_are_capped(shape_named: Named) -> None:
    shape = shape_named("gpt-oss-120b")
    per_key = 4 * 18 * 64 * 64
    assert decode_flops(shape, 2000) - decode_flops(shape, 1000) == per_key * 1000


def test_mla_attends_over_its_own_dims(shape_named: Named) -> None:
    shape = shape_named("DeepSeek-V3")
    per_key = 2 * 61 * 128 * (128 + 64 + 128)
    assert decode_flops(shape, 1001) - decode_flops(shape, 1) == per_key * 1000
    assert shape.kv_bytes_per_token == 61 * (512 + 64) * 2


@given(st.integers(0, 300), st.integers(1, 300), st.none() | st.integers(1, 200))
def test_attended_keys_are_the_sum_over_the_tokens(before: int, tokens: int, window: int | None) -> None:
    one_by_one = sum(min(before + i, window or before + i) for i in range(1, tokens + 1))
    assert attended_keys(before, tokens, window) == one_by_one


@settings(max_examples=50)
@given(
    st.sampled_from(["dense", "windowed", "experts", "latent"]),
    st.integers(1, 5000),
    st.integers(1, 50),
)
def test_a_span_of_tokens_costs_what_its_tokens_cost(name: str, first: int, tokens: int) -> None:
    shape = _SHAPES[name]
    steps = range(first, first + tokens)
    assert decode_span_flops(shape, first, tokens) == sum(decode_flops(shape, c) for c in steps)
    one_by_one = [step_bytes(shape, [decoding(c)]) for c in steps]
    assert decode_kv_bytes(shape, first, tokens) == pytest.approx(
        sum(step.kv_read + step.kv_written for step in one_by_one), rel=1e-12
    )


# -- bytes ------------------------------------------------------------------------------------------


def test_weights_are_read_once_for_a_whole_batch(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    assert step_bytes(shape, [decoding(1)]).weights == step_bytes(shape, [decoding(1)] * 100).weights
    assert step_bytes(shape, []).total == 0


def test_a_prefill_step_reads_the_cache_before_it_and_writes_its_own(shape_named: Named) -> None:
    step = step_bytes(shape_named(LLAMA), [Sequence(new_tokens=100, cached_tokens=50)])
    assert (step.kv_read, step.kv_written) == (50 * 131072, 100 * 131072)


def test_a_windowed_layer_reads_no_more_than_its_window(shape_named: Named) -> None:
    step = step_bytes(shape_named("Mistral-7B-v0.1"), [decoding(50_000)])
    assert step.kv_read + step.kv_written == 4096 * 131072


def test_ranks_beyond_the_kv_heads_keep_copies_of_the_cache(shape_named: Named) -> None:
    grouped, latent = shape_named(LLAMA), shape_named("DeepSeek-V3")
    for ranks, copies in ((8, 1), (16, 2)):
        step = step_bytes(grouped, [decoding(100)], tensor_parallel=ranks)
        assert step.kv_read == copies * step_bytes(grouped, [decoding(100)]).kv_read
    eight = step_bytes(latent, [decoding(100)], tensor_parallel=8)
    assert eight.kv_read == 8 * step_bytes(latent, [decoding(100)]).kv_read
    assert eight.weights > step_bytes(latent, [decoding(100)]).weights


def test_one_token_reads_its_own_experts_and_many_read_all(shape_named: Named) -> None:
    shape = shape_named("Mixtral-8x7B")
    one, many = weight_bytes(shape, 1), weight_bytes(shape, 1000)
    assert one == pytest.approx(2 * shape.active_matmul_params, rel=1e-3)
    assert many == pytest.approx(2 * (shape.total_params - 32000 * 4096), rel=1e-3)


def test_a_window_reads_the_weights_once_per_step(shape_named: Named) -> None:
    shape = shape_named(LLAMA)
    steps = estimated_steps(decoded_tokens=6400, mean_running=64)
    assert steps == 100
    assert window_bytes(shape, steps=steps, tokens=6400, kv_bytes=5.0) == 100 * shape.weights.dense_bytes + 5
    assert window_bytes(shape, steps=0, tokens=0, kv_bytes=0) == 0


# -- invariants -------------------------------------------------------------------------------------

_FAMILY = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
}
_MLA = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
_ROUTED = {"n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def _shape(**changes: object) -> ModelShape:
    result = shape_of_config(_FAMILY | changes)
    assert result.shape is not None, result.reason
    return result.shape


_SHAPES = {
    "dense": _shape(),
    "windowed": _shape(model_type="gemma2", sliding_window=64),
    "experts": _shape(model_type="gpt_oss", sliding_window=32, num_local_experts=16, num_experts_per_tok=2),
    "latent": _shape(model_type="deepseek_v3", first_k_dense_replace=1, **_MLA, **_ROUTED),
}
_shapes = st.sampled_from(sorted(_SHAPES)).map(_SHAPES.__getitem__)
_sequences = st.lists(st.builds(Sequence, st.integers(1, 300), st.integers(0, 3000)), min_size=1, max_size=20)
_peaks = st.builds(Peak, st.floats(1e9, 1e16), st.floats(1e9, 1e14))


@given(_shapes, _sequences)
def test_a_batch_moves_no_more_than_its_requests_alone(shape: ModelShape, batch: list[Sequence]) -> None:
    together = step_bytes(shape, batch).total
    alone = [step_bytes(shape, [sequence]).total for sequence in batch]
    assert max(alone) * (1 - 1e-9) <= together <= sum(alone) * (1 + 1e-9)


@given(_shapes, _sequences, _peaks, st.integers(1, 16), st.floats(1.0, 1e6))
def test_no_feasible_window_exceeds_the_peak(
    shape: ModelShape, batch: list[Sequence], peak: Peak, devices: int, slowdown: float
) -> None:
    flops = sum(prefill_flops(shape, *sequence) for sequence in batch)
    traffic = step_bytes(shape, batch).total
    seconds = minimum_seconds(flops, traffic, peak, devices)
    assert seconds is not None
    used = utilization(flops, traffic, seconds * slowdown, peak, devices)
    assert used.mfu_pct is not None
    assert used.mbu_pct is not None
    assert 0 <= used.mfu_pct <= 100 * (1 + 1e-9)
    assert 0 <= used.mbu_pct <= 100 * (1 + 1e-9)
    assert used.warnings == ()


@given(st.integers(1, 512), st.data())
def test_distinct_experts_never_exceed_what_there_are_or_what_was_chosen(
    experts: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(1, experts))
    tokens = data.draw(st.integers(1, 100_000))
    found = distinct_experts(experts, chosen, tokens)
    assert chosen * (1 - 1e-9) <= found <= min(experts, tokens * chosen) * (1 + 1e-9)
    assert found <= distinct_experts(experts, chosen, tokens + 1) * (1 + 1e-12)


@given(_shapes, st.integers(1, 4000), st.integers(0, 4000))
def test_more_tokens_cost_more(shape: ModelShape, new: int, cached: int) -> None:
    assert prefill_flops(shape, new + 1, cached) > prefill_flops(shape, new, cached)
    assert prefill_flops(shape, new, cached + 1) >= prefill_flops(shape, new, cached)
    assert decode_flops(shape, new + 1) >= decode_flops(shape, new)


# -- what cannot be ---------------------------------------------------------------------------------


def test_more_than_the_peak_is_said_and_not_clamped() -> None:
    used = utilization(3e12, 5e9, 1.0, Peak(1e12, 1e9, "bf16", PeakSource.TABLE, PeakSource.TABLE))
    assert (used.mfu_pct, used.mbu_pct) == (pytest.approx(300), pytest.approx(500))
    mfu, mbu = used.warnings
    assert "MFU of 300 %" in mfu
    assert "prefix cache" in mfu
    assert "MBU of 500 %" in mbu
    assert "steps" in mbu


@pytest.mark.parametrize(
    ("source", "mfu_cause", "mbu_cause"),
    [
        (PeakSource.SUITE, "gpu_peak_tflops", "gpu_peak_bandwidth_gb_s"),
        (PeakSource.ACHIEVABLE, "hardware probe --refresh", "processor's cache"),
    ],
)
def test_a_warning_names_the_cause_that_fits_the_peaks_source(
    source: PeakSource, mfu_cause: str, mbu_cause: str
) -> None:
    mfu, mbu = utilization(3e12, 5e9, 1.0, Peak(1e12, 1e9, "bf16", source, source)).warnings
    assert mfu_cause in mfu
    assert mbu_cause in mbu


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_no_time_gives_no_figure(seconds: float) -> None:
    used = utilization(1.0, 1.0, seconds, Peak(1.0, 1.0))
    assert (used.mfu_pct, used.mbu_pct, used.warnings) == (None, None, ())


def test_no_peak_gives_no_figure() -> None:
    used = utilization(1.0, 1.0, 1.0, resolve_peak("bf16"))
    assert (used.mfu_pct, used.mbu_pct) == (None, None)
    assert minimum_seconds(1.0, 1.0, used.peak) is None


def test_no_work_is_a_measured_zero(h100: Peak) -> None:
    used = utilization(0.0, 0.0, 1.0, h100)
    assert (used.mfu_pct, used.mbu_pct) == (0.0, 0.0)
