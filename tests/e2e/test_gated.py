"""A sweep with data that needs terms to be accepted: that cell is skipped, the others run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SUITE = """
[meta]
name = "some-gated"
[[models]]
name = "org/adder:1"
engine = "openai-compatible"
base_url = "{base_url}"
[[benchmarks]]
name = "gpqa"
[[benchmarks]]
name = "gsm8k"
data = "{data}"
max_samples = 6
"""


def test_a_gated_benchmark_is_skipped_and_the_sweep_goes_on(
    cli: Any, adder: Any, sums: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(cli.folder / "hf"))
    suite = cli.folder / "suite.toml"
    suite.write_text(SUITE.format(base_url=adder.base_url, data=sums(10)))
    ended = cli("run", "-c", str(suite), "--json")
    assert ended.code == 4, ended.stderr
    runs = {run["benchmark"]: run for run in ended.json["runs"]}
    assert runs["gsm8k"]["status"] == "complete"
    assert sum(runs["gsm8k"]["outcomes"].values()) == 6
    assert runs["gpqa"]["status"] == "skipped"
    told = ended.stdout + ended.stderr
    assert "accept its terms at https://huggingface.co/datasets/Idavidrein/gpqa" in told
    assert "HF_TOKEN is not set" in told
    assert len(adder.seen()) == 6
