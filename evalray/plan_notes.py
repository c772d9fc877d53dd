"""Gaps that a plan shows and that may stop a cell when it runs: a file, key, token, data set or GPU
that is not here.  Looks at this machine's disk and environment only, and imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from evalray.benchmarks import SAMPLE
from evalray.definition import Benchmark
from evalray.engines.base import EngineConfig
from evalray.engines.model_path import resolve_model_path
from evalray.engines.vllm_args import model_source
from evalray.errors import EngineStartError
from evalray.suite.engine_choice import LLAMACPP, VLLM, takes_key
from evalray.suite.expand import looks_local, path_or_glob_exists
from evalray.types import RunConfig
from evalray.wording import counted

#: What an engine imports where it runs.
_PACKAGES = {LLAMACPP: "xllamacpp", VLLM: "vllm", "openai": "openai", "anthropic": "anthropic"}


def deployment_notes(config: EngineConfig, gpus: int, *, joins_cluster: bool) -> list[str]:
    """What a deployment lacks on this machine.  A cluster that is joined may have it all."""
    missing = [_missing_file(config), _missing_key(config)]
    if not joins_cluster:
        missing.append(_missing_package(config))
    notes = [problem for problem in missing if problem]
    if gpus and not joins_cluster and (here := gpus_here()) < gpus:
        notes.append(f"needs {counted(gpus, 'GPU')}, {here or 'none'} known on this machine")
    return notes


def start_problem(config: EngineConfig) -> str:
    """Why the engine cannot start on this machine, whatever else is there; empty where nothing is known against it."""
    return _missing_file(config) or _missing_package(config) or _missing_key(config)


def _missing_file(config: EngineConfig) -> str:
    if config.path is None or config.engine not in (LLAMACPP, VLLM):
        return ""
    try:
        if config.engine == VLLM:
            model_source(config)
        else:
            resolve_model_path(config.path)
    except EngineStartError as error:
        return str(error)
    return ""


def _missing_key(config: EngineConfig) -> str:
    variable = config.api_key_env
    if not variable or not takes_key(config.engine) or os.environ.get(variable, "").strip():
        return ""
    return f"environment variable {variable} (api_key_env) is not set"


def _missing_package(config: EngineConfig) -> str:
    package = _PACKAGES.get(config.engine)
    if package is None or _is_installed(package):
        return ""
    return f"engine {config.engine} needs the package {package}: pip install {package}"


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def gpus_here() -> int:
    """GPUs this process may use, by the driver's device files and ``CUDA_VISIBLE_DEVICES``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def cell_notes(config: RunConfig, benchmark: Benchmark | None) -> list[str]:
    """What a run's data lacks on this machine."""
    if benchmark is None or (benchmark.provider is not None and config.data is None):
        return []
    data, gated = (config.data, False) if config.data else (benchmark.data_path, benchmark.gated)
    if data is None or data == SAMPLE:
        sample = benchmark.folder / "sample.jsonl"
        return [] if sample.is_file() else [f"{benchmark.name} carries no sample: {sample} is not there"]
    if path_or_glob_exists(benchmark.folder / data):
        return []
    if looks_local(data):
        return [f"data {data} is not there"]
    if benchmark.streaming and not benchmark.files:
        notes = [f"data set {data} is streamed from the hub: records are read as they are needed"]
    elif _in_hub_cache(data):
        return []
    else:
        notes = [f"data set {data} comes from the hub: the first run downloads it"]
    if gated and not _has_hub_token():
        notes.append(f"{data} is gated: accept its terms on the hub and set HF_TOKEN")
    return notes


def _hub_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or f"{cache}/huggingface").expanduser()


def _in_hub_cache(name: str) -> bool:
    """Prepared by ``datasets``, or downloaded as a repository."""
    prepared = Path(os.environ.get("HF_DATASETS_CACHE") or _hub_home() / "datasets").expanduser()
    downloaded = Path(os.environ.get("HF_HUB_CACHE") or _hub_home() / "hub").expanduser()
    snapshots = downloaded / f"datasets--{name.replace('/', '--')}" / "snapshots"
    try:
        return (prepared / name.replace("/", "___")).is_dir() or snapshots.is_dir()
    except (OSError, ValueError):
        return False


def _has_hub_token() -> bool:
    file = Path(os.environ.get("HF_TOKEN_PATH") or _hub_home() / "token").expanduser()
    return bool(os.environ.get("HF_TOKEN")) or file.is_file()
