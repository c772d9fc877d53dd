from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evalray.store import run_fingerprint
from evalray.types import RunConfig

BASE = RunConfig("b", "jarvis-direct", "m")


def _fingerprint(config: RunConfig = BASE, **changes: Any) -> str:
    options = {
        "engine": "llamacpp",
        "engine_args": {"kv": "f16", "x": 1},
        "prompt_hash": "p",
        "data_digest": "d",
    }
    return run_fingerprint(config, **{**options, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"max_samples": 5},
        {"epochs": 4},
        {"pass_k": [1]},
        {"concurrency": 3},
        {"max_workers": 9},
        {"judge_model": "j"},
        {"output_path": "/elsewhere"},
        {"data": "/elsewhere/data.jsonl"},
        {"max_error_rate": 0.5},
        {"breaker_errors": 2},
        {"scorer": "exact"},
        {"scorer_args": {"strict": True}},
        {"metadata": {"param_count_b": 8}},
        {"telemetry": True},
        {"grid_gco2e_per_kwh": 400.0},
        {"temperature": 0},
    ],
)
def test_what_changes_no_answer_keeps_the_run(changes):
    assert _fingerprint(replace(BASE, **changes)) == _fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "m2"},
        {"benchmark": "b2"},
        {"temperature": 0.1},
        {"max_tokens": 5},
        {"top_p": 0.9},
        {"top_k": 4},
        {"stop": ["\n"]},
        {"sampling_seed": 0},
        {"system_prompt": ""},
        {"seed": 43},
        {"dataset_split": "train"},
        {"dataset_subset": "main"},
        {"num_fewshot": 5},
        {"record_ids": ["r1"]},
    ],
)
def test_what_may_change_an_answer_makes_another_run(changes):
    assert _fingerprint(replace(BASE, **changes)) != _fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "vllm"},
        {"engine_args": {"kv": "q8", "x": 1}},
        {"prompt_hash": "p2"},
        {"data_digest": "d2"},
    ],
)
def test_engine_prompt_and_data_are_part_of_the_run(changes):
    assert _fingerprint(**changes) != _fingerprint()


def test_the_order_of_engine_args_does_not_matter():
    assert _fingerprint(engine_args={"x": 1, "kv": "f16"}) == _fingerprint()


def test_a_new_key_continues_the_run():
    one, two = ({"headers": {"Authorization": key}} for key in ("one", "two"))
    assert _fingerprint(engine_args=one) == _fingerprint(engine_args=two)
