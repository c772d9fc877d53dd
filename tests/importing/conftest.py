"""OpenJarvis's rows, written as its runner writes them: every field, 0 for what was not measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]


@pytest.fixture(scope="session")
def make_row() -> Callable[..., Row]:
    def make(number: int = 0, **changes: Any) -> Row:
        row: Row = {
            "record_id": f"supergpqa-{number}",
            "benchmark": "supergpqa",
            "model": "org/model:7b",
            "backend": "jarvis-direct",
            "model_answer": "B",
            "is_correct": True,
            "score": 1.0,
            "latency_seconds": 1.5 + number / 10,
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "cost_usd": 0.0,
            "error": None,
            "scoring_metadata": {"reference_letter": "B", "candidate_letter": "B", "valid_letters": "ABCD"},
        }
        row |= dict.fromkeys(
            ("ttft", "energy_joules", "power_watts", "cpu_energy_joules", "gpu_energy_joules", "dram_energy_joules",
             "ane_energy_joules", "soc_energy_joules", "gpu_utilization_pct", "throughput_tok_per_sec", "mfu_pct",
             "mbu_pct", "ipw", "ipj", "energy_per_output_token_joules", "throughput_per_watt", "mean_itl_ms",
             "estimated_flops"),
            0.0,
        )  # fmt: skip
        return {**row, "energy_basis": "", "energy_method": "", **changes}

    return make


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    def write(
        *rows: Row | bytes, name: str = "supergpqa_org-model-7b.jsonl", summary: Row | None = None
    ) -> Path:
        path = tmp_path / "theirs" / name
        path.parent.mkdir(exist_ok=True)
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]
        path.write_bytes(b"".join(lines))
        if summary is not None:
            path.with_name(name.removesuffix(".jsonl") + ".summary.json").write_text(json.dumps(summary))
        return path

    return write
