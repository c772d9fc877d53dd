"""MFU and MBU over time against the roofline's own sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from evalray.telemetry import ModelShape, Peak, decode_kv_bytes, request_flops, weight_bytes
from evalray.telemetry.activity import engine_activity
from evalray.telemetry.requests import EngineUse, RequestLog

Named = Callable[[str], ModelShape]


def _log(count: int, *, prompt: int = 64, output: int = 101, seconds: float = 10.0) -> RequestLog:
    log = RequestLog()
    for _ in range(count):
        log.add(0, sent=0.0, first_token=0.5, end=0.5 + seconds, prompt_tokens=prompt, output_tokens=output)
    return log


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Qwen3-30B-A3B"])
@pytest.mark.parametrize("batch", [1, 64])
def test_flops_and_bytes_of_a_batch_are_the_rooflines(
    shape_named: Named, h100: Peak, model: str, batch: int
) -> None:
    shape = shape_named(model)
    activity = engine_activity(_log(batch).columns(), 0, EngineUse("e", (), shape, h100))
    assert activity is not None
    decode = (2.0, 10.0)
    share = (decode[1] - decode[0]) / 10.0
    flops = float(activity.flops.between(0.0, 11.0))
    assert flops == pytest.approx(batch * request_flops(shape, 64, 101).total, rel=1e-9)
    moved = float(activity.bytes_moved.between(*decode))
    expected = 100 * share * weight_bytes(shape, batch) + share * batch * decode_kv_bytes(shape, 65, 100)
    assert moved == pytest.approx(expected, rel=0.005)


def test_a_batch_of_64_reads_the_weights_once_a_step_and_not_64_times(shape_named: Named, h100: Peak) -> None:
    shape = shape_named("Llama-3.1-8B")
    one, many = (
        engine_activity(_log(count).columns(), 0, EngineUse("e", (), shape, h100)) for count in (1, 64)
    )
    assert one is not None
    assert many is not None
    alone, together = one.percent(*_span()), many.percent(*_span())
    assert together[0] == pytest.approx(64 * alone[0], rel=1e-6)
    assert together[1] / alone[1] < 1.1


def _span() -> tuple[np.ndarray, np.ndarray]:
    return np.array([2.0]), np.array([9.0])


def test_two_devices_halve_what_each_reached(shape_named: Named, h100: Peak) -> None:
    shape, columns = shape_named("Llama-3.1-8B"), _log(8).columns()
    one = engine_activity(columns, 0, EngineUse("e", (), shape, h100, devices=1))
    two = engine_activity(columns, 0, EngineUse("e", (), shape, h100, devices=2))
    assert one is not None
    assert two is not None
    assert two.percent(*_span())[0] == pytest.approx(one.percent(*_span())[0] / 2)


def test_a_prompt_in_chunks_reads_the_weights_once_a_chunk(shape_named: Named, h100: Peak) -> None:
    shape = shape_named("Llama-3.1-8B")
    log = RequestLog()
    log.add(0, sent=0.0, first_token=1.0, end=1.0, prompt_tokens=4096, output_tokens=1)
    moved = []
    for limit in (None, 1024):
        activity = engine_activity(
            log.columns(), 0, EngineUse("e", (), shape, h100, max_batched_tokens=limit)
        )
        assert activity is not None
        moved.append(float(activity.bytes_moved.between(0.0, 1.0)))
    assert moved[1] - moved[0] == pytest.approx(3 * weight_bytes(shape, 1024), rel=1e-6)


def test_a_request_shorter_than_a_bin_gets_the_bins_mean(shape_named: Named, h100: Peak) -> None:
    shape = shape_named("Llama-3.1-8B")
    activity = engine_activity(_log(4).columns(), 0, EngineUse("e", (), shape, h100))
    assert activity is not None
    mfu, mbu = activity.percent(np.array([5.0]), np.array([5.0]))
    longer = activity.percent(np.array([4.5]), np.array([5.5]))
    assert mfu == pytest.approx(longer[0], rel=0.01)
    assert mbu == pytest.approx(longer[1], rel=0.01)


def test_without_a_peak_there_is_no_utilisation(shape_named: Named) -> None:
    activity = engine_activity(_log(1).columns(), 0, EngineUse("e", (), shape_named("Llama-3.1-8B")))
    assert activity is not None
    assert np.isnan(activity.percent(*_span())).all()
    assert activity.utilization(0.0, 5.0) is None


def test_without_a_shape_or_a_request_there_is_no_activity(shape_named: Named, h100: Peak) -> None:
    assert engine_activity(_log(1).columns(), 0, EngineUse("e", (), None, h100)) is None
    engine = EngineUse("e", (), shape_named("Llama-3.1-8B"), h100)
    assert engine_activity(RequestLog().columns(), 0, engine) is None


def test_more_than_the_peak_is_told_and_not_clamped(shape_named: Named) -> None:
    slow = Peak(1e9, 1e9, "bf16")
    engine = EngineUse("e", (), shape_named("Llama-3.1-8B"), slow)
    activity = engine_activity(_log(8).columns(), 0, engine)
    assert activity is not None
    reached = activity.utilization(1.0, 9.0)
    assert reached is not None
    assert reached.mfu_pct is not None
    assert reached.mfu_pct > 100
    assert reached.warnings


@pytest.mark.parametrize(("tensor_parallel", "stages"), [(1, 4), (2, 2), (4, 1)])
def test_what_every_rank_keeps_is_read_by_the_ranks_of_a_stage_and_not_by_all_stages(
    shape_named: Named, h100: Peak, tensor_parallel: int, stages: int
) -> None:
    """Tensor-parallel ranks have copies of the norms, and of KV heads that are fewer than they are."""
    shape = shape_named("DeepSeek-V2-Lite")
    engine = EngineUse(
        "e", (), shape, h100, devices=tensor_parallel * stages, tensor_parallel=tensor_parallel
    )
    activity = engine_activity(_log(1).columns(), 0, engine)
    assert activity is not None
    moved = float(activity.bytes_moved.between(2.0, 10.0))
    expected = 80 * weight_bytes(shape, 1, tensor_parallel=tensor_parallel)
    expected += 0.8 * decode_kv_bytes(shape, 65, 100, tensor_parallel=tensor_parallel)
    assert moved == pytest.approx(expected, rel=0.005)
