from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from evalray.store.activity import Activity, ActivityLog


def activity_of(folder: Path, *stretches: tuple[float, float]) -> Activity:
    log = ActivityLog(folder / "activity.jsonl")
    for start, end in stretches:
        log.record(start, end)
    log.close()
    activity = Activity.read(folder / "activity.jsonl")
    for start, _ in stretches:
        activity.saw(start + 1, planned=True)
    return activity


@pytest.mark.parametrize(
    ("stretches", "sent", "completed", "seconds"),
    [
        ([(0, 100)], [10, 12], [15, 20], 10),  # eighty seconds of judging are no generation
        ([(0, 100), (500, 600)], [10, 510], [15, 512], 7),  # nor is the pause between two processes
        ([(0, 278), (300, 378)], [310, 320], [320, 330], 20),  # nor a stretch without a reply
        ([(0, 100)], [10, math.nan], [15, math.nan], 5),
        ([(0, 100)], [math.nan], [math.nan], None),
        ([(0, 100)], [], [], None),
    ],
)
def test_generation_lasts_from_the_first_request_to_the_last_reply_of_each_stretch(
    tmp_path: Path,
    stretches: list[tuple[float, float]],
    sent: list[float],
    completed: list[float],
    seconds: float | None,
) -> None:
    activity = activity_of(tmp_path, *stretches)
    assert activity.generation_seconds(np.array(sent, float), np.array(completed, float)) == seconds


@pytest.mark.parametrize(
    ("stretches", "seen", "sent", "seconds"),
    [
        ([(0, 289)], [280], [278], 11),  # behind another run for 278 s
        ([(0, 100), (500, 600)], [20, 590], [10, 580], 110),
        ([(0, 100), (500, 600)], [20], [10], 190),  # nothing is known of the second
        ([(0, 100)], [50], [math.nan], 100),
        ([(0, 100)], [5], [40], 95),  # an earlier answer was judged first
        ([(10, 100)], [50], [2], 90),  # another node's clock
        ([(0, 100)], [99], [400], 1),
    ],
)
def test_a_run_takes_no_time_before_its_first_request_is_sent(
    tmp_path: Path,
    stretches: list[tuple[float, float]],
    seen: list[float],
    sent: list[float],
    seconds: float,
) -> None:
    log = ActivityLog(tmp_path / "activity.jsonl")
    for start, end in stretches:
        log.record(start, end)
    log.close()
    activity = Activity.read(tmp_path / "activity.jsonl")
    for at in seen:
        activity.saw(at, planned=True)
    assert activity.wall_seconds(np.array(sent, float)) == pytest.approx(seconds)
