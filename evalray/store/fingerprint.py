"""What makes two runs the same run: a hash of everything that can change an answer, and of nothing else.

How many samples, how often, how many at once, on how many replicas, from which path or address, and
who judges, change no answer: a run continues across changes of those.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from evalray.store.jsonlines import encode, redact
from evalray.types import RunConfig

_UNSAFE = re.compile(r"[/:\\\x00-\x20\x7f*?\"<>|]")
_MAX_NAME_BYTES = 150


def run_fingerprint(
    config: RunConfig,
    *,
    engine: str,
    engine_args: dict[str, Any],
    prompt_hash: str,
    data_digest: str,
) -> str:
    """32 hex digits over model, engine, prompt, sampling, data and order of the data.

    ``engine_args`` comes without its answer-neutral keys; secrets in it do not count.
    """
    identity = {
        **answer_settings(config),
        "engine": engine,
        "engine_args": redact(engine_args),
        "prompt": prompt_hash,
        "data": data_digest,
    }
    return hashlib.sha256(_canonical(identity).encode()).hexdigest()[:32]


def answer_settings(config: RunConfig) -> dict[str, Any]:
    """What of a run's configuration is in its fingerprint: whatever can change an answer."""
    return {
        "benchmark": config.benchmark,
        "model": config.model,
        "backend": config.backend,
        "agent": config.agent_name,
        "tools": sorted(config.tools),
        "system_prompt": config.system_prompt,
        "num_fewshot": config.num_fewshot,
        "temperature": float(config.temperature),
        "max_tokens": config.max_tokens,
        "top_p": None if config.top_p is None else float(config.top_p),
        "top_k": config.top_k,
        "stop": list(config.stop),
        "sampling_seed": None if config.sampling_seed is None else int(config.sampling_seed),
        "split": config.dataset_split,
        "subset": config.dataset_subset,
        "shuffle_seed": config.seed,
        "record_ids": config.record_ids,
    }


def _canonical(value: Any) -> str:
    """Text that does not depend on the order of a dictionary's keys."""
    if isinstance(value, dict):
        items = sorted((encode(str(key)), _canonical(item)) for key, item in value.items())
        return "{" + ",".join(f"{key}:{item}" for key, item in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return encode(value)


def run_name(benchmark: str, model: str) -> str:
    """``<benchmark>_<model-slug>``: a file name, for any model name."""
    name = _UNSAFE.sub("-", f"{benchmark}_{model}")
    return name.encode("utf-8", "replace")[:_MAX_NAME_BYTES].decode("utf-8", "ignore").rstrip(".")
