"""What telemetry writes down, as it is read back: also after a kill, and by another process of the same sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evalray.runtime.recording import EngineLife, Recorder, read_engines, read_judged, read_ticks
from evalray.telemetry import Batch, ClockPair, NodeInfo, Tick
from evalray.types import Generation, Timeline

_NODE = NodeInfo("node", (), 0.1, ClockPair(0.0, 1e9))


def _batch(start: float, end: float) -> Batch:
    ticks = [Tick(0, start + k / 10, float(k), *[None] * 8) for k in range(round((end - start) * 10))]
    return Batch(ticks, ClockPair(end, 1e9 + end))


def _ticks(directory: Path, stretch: str) -> list[int]:
    """How many readings each monitor left."""
    return [len(part.columns["device"]) for part in read_ticks(directory, "node", stretch)]


def test_a_driver_that_is_killed_loses_some_seconds_of_readings_at_most(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for second in range(9):
        recorder.keep(0, _NODE, _batch(second, second + 1))
    assert _ticks(tmp_path, recorder.stretch) == [60]
    recorder.flush()
    assert _ticks(tmp_path, recorder.stretch) == [90]


def test_the_node_is_on_disk_from_the_first_reading(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.keep(0, _NODE, Batch([], ClockPair(0.0, 1e9)))
    [part] = read_ticks(tmp_path, "node", recorder.stretch)
    assert (part.node, len(part.columns["device"])) == (_NODE, 0)


def test_no_reading_is_there_twice_and_parts_end_after_some_minutes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for start in range(0, 300, 3):
        recorder.keep(0, _NODE, _batch(start, start + 3))
        if start % 50 == 0:
            recorder.flush()
    recorder.flush()
    [part] = read_ticks(tmp_path, "node", recorder.stretch)
    assert part.columns["monotonic_seconds"].tolist() == pytest.approx([k / 10 for k in range(3000)])
    assert len(list((tmp_path / "telemetry").glob("ticks-*.parquet"))) == 3


def test_another_process_of_the_sweep_leaves_the_readings_of_the_first_on_the_same_node(
    tmp_path: Path,
) -> None:
    first = Recorder(tmp_path)
    for incarnation in (0, 1):
        first.keep(incarnation, _NODE, _batch(incarnation, incarnation + 1))
    first.flush()
    second = Recorder(tmp_path)
    second.stretch = "later"
    second.keep(0, _NODE, _batch(5, 7))
    second.flush()
    assert _ticks(tmp_path, first.stretch) == [10, 10]
    assert _ticks(tmp_path, "later") == [20]


def _rewritten(path: Path, **about: Any) -> None:
    table = pq.read_table(path)
    known = json.loads(table.schema.metadata[b"evalray"])
    pq.write_table(table.replace_schema_metadata({b"evalray": json.dumps(known | about)}), path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:500]),
        lambda path: path.write_bytes(b""),
        lambda path: pq.write_table(pq.read_table(path).drop(["error"]), path),
        lambda path: _rewritten(path, node=None),
        lambda path: _rewritten(path, clocks=[["a", "b"]]),
        lambda path: _rewritten(path, node={"devices": [{"kind": "abacus"}]}),
    ],
    ids=["torn", "empty", "column", "node", "clocks", "kind"],
)
def test_a_part_that_cannot_be_read_is_left_out_and_counted(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    recorder = Recorder(tmp_path)
    for start in range(0, 250, 5):
        recorder.keep(0, _NODE, _batch(start, start + 5))
    recorder.flush()
    [first, *_] = sorted((tmp_path / "telemetry").glob("ticks-*.parquet"))
    [whole] = read_ticks(tmp_path, "node", recorder.stretch)
    damage(first)
    [rest] = read_ticks(tmp_path, "node", recorder.stretch)
    assert (whole.damaged, rest.damaged) == (0, 1)
    assert 0 < len(rest.columns["device"]) < len(whole.columns["device"])


@pytest.mark.parametrize(
    "change",
    [{"ready_at": "soon"}, {"concurrency": "x"}, {"devices": 0}, {"runs": 5}, {"shape": {}}, {"stretch": 5}],
)
def test_a_life_with_values_of_the_wrong_kind_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    recorder = Recorder(tmp_path)
    for engine in ("m/0", "m/1"):
        recorder.engine(EngineLife(engine, "node", "m", 5.0, (), 1, ("b_m",)))
    file = tmp_path / "telemetry" / "engines.jsonl"
    first, second = file.read_text().splitlines()
    file.write_text(json.dumps(json.loads(first) | change) + "\n" + "[" * 100_000 + "\n" + second + "\n")
    assert [life.engine_id for life in read_engines(tmp_path)] == ["m/1"]


def test_a_judges_request_comes_back_with_its_times_and_tokens_and_without_its_words(tmp_path: Path) -> None:
    line = Timeline(sent_at=5.0, latency_seconds=2.0, ttft_seconds=0.5, server={"prompt_ms": 3.0})
    asked = Generation(
        raw_text="secret", model_answer="secret", prompt_tokens=7, completion_tokens=3, timeline=line,
        engine_id="judge:j/0", node_id="node",
    )  # fmt: skip
    Recorder(tmp_path).judged([asked, Generation()])
    file = tmp_path / "telemetry" / "judged.jsonl"
    assert "secret" not in file.read_text()
    with file.open("a") as torn:
        torn.write('{"engine_id": "judge:j/0", "no')
    first, second = read_judged(tmp_path)
    assert (first.timeline, first.prompt_tokens, first.completion_tokens) == (line, 7, 3)
    assert (first.engine_id, first.node_id, second.timeline) == ("judge:j/0", "node", Timeline())


def _life(engine: str = "m/0", *, ready: float = 0.0, node: str = "node", **more: object) -> EngineLife:
    values: dict[str, object] = {"device_ids": ("GPU-a",), "runs": ("b_m",), "stretch": "s", **more}
    return EngineLife.from_dict(
        {"engine_id": engine, "node_id": node, "model": "m", "ready_at": ready, "concurrency": 1,
         "shape": None, "peak": None, **values}
    )  # fmt: skip


def test_lives_are_read_back_with_their_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    ended, running = _life(ready=1.0, tensor_parallel=2, devices=4), _life(ready=9.0, judge=True, runs=())
    recorder.engine(ended)
    recorder.ended(ended, 8.0)
    recorder.engine(running)
    assert read_engines(tmp_path) == [ended, running]
    assert read_engines(tmp_path)[0].use().tensor_parallel == 2
    assert (
        json.loads((tmp_path / "telemetry" / "engines.jsonl").read_text().splitlines()[-1])["judge"] is True
    )


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (_life("x/0", ready=5.0), True),
        (_life("x/0", ready=5.0, device_ids=("GPU-b", "GPU-a")), True),
        (_life("x/0", ready=5.0, device_ids=("GPU-b",)), False),
        (_life("x/0", ready=10.0), False),
        (_life("x/0", ready=5.0, node="other"), False),
        (_life("x/0", ready=5.0, stretch="later"), False),
    ],
    ids=["same device", "one of two", "another device", "after its end", "another node", "another stretch"],
)
def test_engines_share_a_device_where_they_hold_it_at_once(other: EngineLife, shares: bool) -> None:
    mine = _life(ready=0.0)
    mine.ended_at = 10.0
    assert mine.shares_device(other) is other.shares_device(mine) is shares
