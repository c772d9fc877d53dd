"""From an engine's configuration to vLLM's own arguments.

``engine_args`` are vLLM's ``AsyncEngineArgs``, by their names, and a few keys of ours.  What the
configuration decides elsewhere cannot be given twice, and a name that neither side knows is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from evalray.engines.base import EngineConfig
from evalray.errors import EngineStartError

_BYTES_PER_GIB = 2**30
_CPU_KV_CACHE_GIB = 1.0
#: Sequences at once on CPU cores, where neither the model nor the user says.
_CPU_SEQUENCES = 16

_OWN_ARGS: dict[str, tuple[type, ...]] = {
    "device": (str,),
    "cpu_kvcache_space_gb": (int, float),
    "chat_template": (str,),
    "chat_template_kwargs": (dict,),
    "extra_body": (dict,),
    "reasoning": (bool,),
}
#: What one usually passes on, by vLLM's names; which others there are only an installed vLLM tells.
USUAL_ARGS = frozenset(_OWN_ARGS) | {
    "cpu_offload_gb",
    "dtype",
    "enable_chunked_prefill",
    "enable_expert_parallel",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "hf_overrides",
    "kv_cache_dtype",
    "limit_mm_per_prompt",
    "load_format",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "pipeline_parallel_size",
    "quantization",
    "revision",
    "speculative_config",
    "tokenizer",
    "trust_remote_code",
}
_DECIDED_ELSEWHERE = {
    "model": "the model's name or path",
    "tensor_parallel_size": "the model's tensor_parallel_size",
    "disable_log_stats": "the timings of every request, which need it",
}
_EXECUTORS = ("mp", "uni")


def check_args(arguments: dict[str, Any], known: Collection[str]) -> None:
    """Raises :class:`EngineStartError` for what cannot be passed on; ``known`` are vLLM's names."""
    for key, value in arguments.items():
        if key in _DECIDED_ELSEWHERE:
            raise EngineStartError(f"engine_args.{key} cannot be given: it follows {_DECIDED_ELSEWHERE[key]}")
        if key in _OWN_ARGS:
            expected = _OWN_ARGS[key]
            if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
                raise EngineStartError(f"engine_args.{key} must be {expected[-1].__name__}, not {value!r}")
        elif key not in known:
            near = difflib.get_close_matches(key, [*known, *_OWN_ARGS], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "the names are those of vLLM's AsyncEngineArgs"
            raise EngineStartError(f"engine_args: unknown {key!r}: {hint}")
    if (device := arguments.get("device", "cpu")) != "cpu":
        raise EngineStartError(f"engine_args.device = {device!r}: only 'cpu' is known; leave it out for GPUs")
    if (space := arguments.get("cpu_kvcache_space_gb", 1)) <= 0:
        raise EngineStartError(f"engine_args.cpu_kvcache_space_gb must be positive, not {space!r}")
    if (executor := arguments.get("distributed_executor_backend", "mp")) not in _EXECUTORS:
        raise EngineStartError(
            f"engine_args.distributed_executor_backend = {executor!r}: leave it out: on one node 'mp' serves, and a "
            "replica that needs more GPUs than a node has is spread over nodes by itself"
        )


def engine_kwargs(config: EngineConfig, *, cpu: bool) -> dict[str, Any]:
    """Arguments for ``AsyncEngineArgs``, ``max_model_len`` aside; ``cpu`` where vLLM is a CPU build."""
    given = config.engine_args
    kwargs: dict[str, Any] = {
        "model": model_source(config),
        "tensor_parallel_size": config.tensor_parallel_size,
        # Left to itself vLLM would choose Ray inside a placement group, and wait for GPUs the actor holds.
        "distributed_executor_backend": "mp" if _workers(config) > 1 or cpu else "uni",
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
    }
    if config.max_concurrency is not None:
        kwargs["max_num_seqs"] = config.max_concurrency
    elif cpu:
        kwargs["max_num_seqs"] = _CPU_SEQUENCES
    if cpu:
        # Compiling for CPU needs a C++ compiler on every node and takes minutes.
        kwargs["enforce_eager"] = True
        space = float(given.get("cpu_kvcache_space_gb", _CPU_KV_CACHE_GIB))
        kwargs["kv_cache_memory_bytes"] = int(space * _BYTES_PER_GIB)
    kwargs.update({key: value for key, value in given.items() if key not in _OWN_ARGS})
    if config.spans_nodes:
        kwargs["distributed_executor_backend"] = _over_nodes(given)
    return kwargs


def _over_nodes(given: dict[str, Any]) -> str:
    """The executor whose workers are in the actor's placement group.  Raises :class:`EngineStartError`."""
    if (executor := given.get("distributed_executor_backend")) is not None:
        raise EngineStartError(
            f"engine_args.distributed_executor_backend = {executor!r} is for one node, and no node has the GPUs of "
            "this replica: leave it out, or lower tensor_parallel_size"
        )
    return "ray"


def _workers(config: EngineConfig) -> int:
    pipeline = config.engine_args.get("pipeline_parallel_size", 1)
    return config.tensor_parallel_size * (pipeline if isinstance(pipeline, int) else 1)


def model_source(config: EngineConfig) -> str:
    """A checkpoint's folder where ``path`` gives one, else the model's name on the hub.

    Raises :class:`EngineStartError` for a folder that is not there or holds no checkpoint.
    """
    if config.path is None:
        return config.model
    folder = Path(config.path).expanduser()
    if not folder.exists():
        raise EngineStartError(
            f"path = {config.path!r} does not exist on this node: check it, copy the checkpoint to every node, "
            "or leave it out to load the model by its hub name"
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise EngineStartError(f"path = {config.path!r} holds no checkpoint: config.json is missing")
    return str(folder)


def chat_template(config: EngineConfig) -> str | None:
    """The template ``engine_args`` gives, as text or as a file; ``None`` is the model's own."""
    template: str | None = config.engine_args.get("chat_template")
    if template is None or "{" in template or "\n" in template:
        return template
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise EngineStartError(f"engine_args.chat_template = {template!r} cannot be read: {error}") from None
