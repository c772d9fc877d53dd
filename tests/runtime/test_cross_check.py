from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalray.runtime.cross_check import cross_check
from evalray.runtime.recording import EngineLife, Recorder, read_engines
from evalray.telemetry import EngineActivity
from evalray.telemetry.windows import Integral

LIFE = EngineLife("m/0", "node", "m", 100.0, (), 8, ("run",))
COUNTERS = {"flops": 4e12, "read_bytes": 2e9, "write_bytes": 1e9}


def _activity(flops: float, moved: float) -> EngineActivity:
    def spread(amount: float) -> Integral:
        return Integral.of(np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.array([amount / 4, amount * 3 / 4]))

    nothing = spread(0.0)
    return EngineActivity(LIFE.use(), 0.0, 2.0, spread(flops), spread(moved), nothing, nothing, 1.0)


@pytest.mark.parametrize(
    ("flops", "ratio", "doubted"),
    [
        (4e12, 1.0, False),
        (3e12, 4 / 3, False),
        (2.5e12, 1.6, True),
        (5.5e12, 4 / 5.5, False),
        (8e12, 0.5, True),
    ],
)
def test_both_counts_are_recorded_and_a_large_difference_is_said(
    flops: float, ratio: float, doubted: bool
) -> None:
    records, warnings = cross_check([(replace(LIFE, counters=COUNTERS), _activity(flops, 1e9))])
    (record,) = records
    assert (record["engine_id"], record["engine_flops"], record["engine_read_bytes"]) == ("m/0", 4e12, 2e9)
    assert (record["flops"], record["bytes"]) == (pytest.approx(flops), pytest.approx(1e9))
    assert record["flops_ratio"] == pytest.approx(ratio)
    assert record["bytes_ratio"] == pytest.approx(3.0)
    assert bool(warnings) is doubted
    assert all(f"{ratio:.2f}" in warning for warning in warnings)


@pytest.mark.parametrize("activity", [None, _activity(0.0, 0.0)], ids=["no shape", "no work"])
def test_without_ours_theirs_stands_alone_and_nothing_is_doubted(activity: EngineActivity | None) -> None:
    records, warnings = cross_check([(replace(LIFE, counters=COUNTERS), activity)])
    assert (records[0]["flops_ratio"], records[0]["bytes_ratio"], warnings) == (None, None, [])
    assert records[0]["engine_flops"] == 4e12


def test_an_engine_without_counters_is_in_no_record() -> None:
    assert cross_check([(LIFE, _activity(1e12, 1e9))]) == ([], [])


@pytest.mark.parametrize("counters", [None, COUNTERS])
def test_counters_are_kept_with_the_end_of_a_life(tmp_path: Path, counters: dict[str, Any] | None) -> None:
    recorder, life = Recorder(tmp_path), replace(LIFE)
    recorder.engine(life)
    assert [each.counters for each in read_engines(tmp_path)] == [None]
    life.counters = counters
    recorder.ended(life, 200.0)
    assert [(each.ended_at, each.counters) for each in read_engines(tmp_path)] == [(200.0, counters)]
