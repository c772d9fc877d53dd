"""What becomes of a model's settings on the way to vLLM; vLLM itself is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.engines.vllm_args import chat_template, check_args, engine_kwargs
from evalray.errors import EngineStartError

KNOWN = ("dtype", "gpu_memory_utilization", "max_model_len", "max_num_seqs", "pipeline_parallel_size")


def config(**settings: Any) -> EngineConfig:
    return EngineConfig(model="org/model", engine="vllm", **settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpu_memory_utilisation": 0.5}, "did you mean 'gpu_memory_utilization'?"),
        ({"chat_templates": "x"}, "did you mean 'chat_template'?"),
        ({"zzz": 1}, "AsyncEngineArgs"),
        ({"model": "x"}, "cannot be given"),
        ({"tensor_parallel_size": 2}, "the model's tensor_parallel_size"),
        ({"disable_log_stats": True}, "cannot be given"),
        ({"device": "cuda"}, "only 'cpu' is known"),
        ({"device": 1}, "must be str"),
        ({"reasoning": "yes"}, "must be bool"),
        ({"cpu_kvcache_space_gb": True}, "must be float"),
        ({"cpu_kvcache_space_gb": 0}, "must be positive"),
        ({"distributed_executor_backend": "ray"}, "is spread over nodes by itself"),
    ],
)
def test_what_cannot_be_passed_on_is_refused_with_a_way_out(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineStartError) as raised:
        check_args(arguments, [*KNOWN, "distributed_executor_backend"])
    assert message in str(raised.value)


def test_vllms_own_names_and_ours_are_taken() -> None:
    check_args(
        {"dtype": "float16", "device": "cpu", "cpu_kvcache_space_gb": 2, "extra_body": {"min_p": 0.1}}, KNOWN
    )


def test_vllms_arguments_are_passed_through_and_ours_are_not() -> None:
    kwargs = engine_kwargs(
        config(engine_args={"dtype": "float16", "extra_body": {}, "reasoning": True}), cpu=False
    )
    assert kwargs["dtype"] == "float16"
    assert kwargs["model"] == "org/model"
    assert not {"extra_body", "reasoning"} & set(kwargs)


@pytest.mark.parametrize(
    ("settings", "cpu", "executor"),
    [
        ({}, False, "uni"),
        ({}, True, "mp"),
        ({"tensor_parallel_size": 4}, False, "mp"),
        ({"engine_args": {"pipeline_parallel_size": 2}}, False, "mp"),
        ({"engine_args": {"distributed_executor_backend": "mp"}}, False, "mp"),
    ],
)
def test_workers_are_this_nodes_processes(settings: dict[str, Any], cpu: bool, executor: str) -> None:
    assert engine_kwargs(config(**settings), cpu=cpu)["distributed_executor_backend"] == executor


def test_workers_of_a_replica_that_spans_nodes_are_rays() -> None:
    spanning = {"tensor_parallel_size": 8, "spans_nodes": True}
    assert engine_kwargs(config(**spanning), cpu=False)["distributed_executor_backend"] == "ray"
    with pytest.raises(EngineStartError, match="no node has the GPUs"):
        engine_kwargs(config(**spanning, engine_args={"distributed_executor_backend": "mp"}), cpu=False)


@pytest.mark.parametrize(
    ("settings", "cpu", "expected"),
    [
        ({}, False, None),
        ({}, True, 16),
        ({"max_concurrency": 40}, False, 40),
        ({"max_concurrency": 40, "engine_args": {"max_num_seqs": 8}}, True, 8),
    ],
)
def test_the_batch_is_as_large_as_what_is_in_flight(
    settings: dict[str, Any], cpu: bool, expected: int | None
) -> None:
    assert engine_kwargs(config(**settings), cpu=cpu).get("max_num_seqs") == expected


@pytest.mark.parametrize(("given", "size"), [({}, 2**30), ({"cpu_kvcache_space_gb": 0.5}, 2**29)])
def test_the_cpu_build_has_a_bounded_kv_cache(given: dict[str, Any], size: int) -> None:
    assert engine_kwargs(config(engine_args=given), cpu=True)["kv_cache_memory_bytes"] == size
    assert "kv_cache_memory_bytes" not in engine_kwargs(config(engine_args=given), cpu=False)


def test_a_checkpoints_folder_is_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert engine_kwargs(config(path=str(tmp_path)), cpu=True)["model"] == str(tmp_path)


def test_a_folder_that_is_not_there_or_holds_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="does not exist on this node"):
        engine_kwargs(config(path=str(tmp_path / "missing")), cpu=True)
    with pytest.raises(EngineStartError, match=r"config\.json is missing"):
        engine_kwargs(config(path=str(tmp_path)), cpu=True)


def test_a_chat_template_is_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages }}")
    assert chat_template(config()) is None
    assert chat_template(config(engine_args={"chat_template": "{{ messages }}"})) == "{{ messages }}"
    assert chat_template(config(engine_args={"chat_template": str(file)})) == "{{ messages }}"
    with pytest.raises(EngineStartError, match="cannot be read"):
        chat_template(config(engine_args={"chat_template": str(tmp_path / "none")}))
