"""Runs that really ran, compared: what ``run`` writes down is what ``compare`` checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_rerun_compares_clean_and_other_data_is_refused(
    cli: Any, adder: Any, sums: Callable[[int], Path]
) -> None:
    model = (
        "-b",
        "gsm8k",
        "-m",
        "adder",
        "-e",
        "openai-compatible",
        "--base-url",
        adder.base_url,
        "--no-tracking",
    )
    for sweep, records in (("first", 12), ("second", 12), ("fewer", 8)):
        ended = cli("run", *model, "--data", str(sums(records)), "--sweep-id", sweep, "--json")
        assert ended.code == 0, ended.stderr
    same = cli("compare", "results/first", "results/second", "--fail-on-regression", "--json")
    assert same.code == 0, same.stderr
    [comparison] = same.json["comparisons"]
    assert comparison["accuracy"]["n"] == 12
    assert comparison["accuracy"]["a"] == 0.5
    assert (comparison["accuracy"]["difference"], comparison["conflicts"]) == (0.0, [])
    assert not any("not known" in warning for warning in comparison["warnings"])
    assert comparison["measures"]["latency_seconds"]["n"] == 12

    other = cli("compare", "results/first", "results/fewer")
    assert other.code == 2
    assert "different data" in other.stderr
    wanted = cli("compare", "results/first", "results/fewer", "--allow-different", "--json")
    assert wanted.code == 0, wanted.stderr
    assert wanted.json["comparisons"][0]["overlap"]["only_a"] == 4
