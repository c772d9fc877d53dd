"""What OpenJarvis's suites may name that EvalRay does not have (yet).

Such a name is no mistake: the key is reported and left out, the cell is planned as ``unsupported``.
Whether a benchmark or an engine is there is asked of the benchmark folders and the engine registry,
never of these lists, so that adding one turns its cells ready.
"""

from __future__ import annotations

BENCHMARKS = frozenset(
    [
        "supergpqa",
        "gpqa",
        "mmlu-pro",
        "math500",
        "natural-reasoning",
        "hle",
        "simpleqa",
        "wildchat",
        "ipw",
        "gaia",
        "frames",
        "swebench",
        "swefficiency",
        "terminalbench",
        "terminalbench-native",
        "terminalbench-v2.1",
        "livecodebench",
        "liveresearch",
        "deepresearch",
        "liveresearchbench",
        "toolcall15",
        "taubench",
        "pinchbench",
        "loghub",
        "ama-bench",
        "lifelong-agent",
        "deepplanning",
        "paperarena",
        "webchorearena",
        "workarena",
        "email_triage",
        "morning_brief",
        "research_mining",
        "knowledge_base",
        "coding_task",
        "coding_assistant",
        "security_scanner",
        "daily_digest",
        "doc_qa",
        "browser_assistant",
        "adp",
        "generalthoughts",
        "toolorchestra",
    ]
)

#: OpenJarvis's engines and, at the end, the two vendors its ``cloud`` stands for.
ENGINES = frozenset(
    [
        "ollama",
        "vllm",
        "cloud",
        "sglang",
        "llamacpp",
        "mlx",
        "lmstudio",
        "lemonade",
        "exo",
        "nexa",
        "uzu",
        "litellm",
        "apple_fm",
        "afm",
        "gemma_cpp",
        "nim",
        "vllm-pearl-mining",
        "multi",
        "openai",
        "anthropic",
    ]
)

#: Engines that are servers of the OpenAI protocol: with a ``base_url`` they are reached as such.
OPENAI_SERVERS = frozenset(
    [
        "sglang",
        "lmstudio",
        "llama-server",
        "mlx",
        "exo",
        "nexa",
        "uzu",
        "apple_fm",
        "litellm",
        "nim",
        "vllm",
        "llamacpp",
    ]
)

DIRECT_BACKEND = "jarvis-direct"
BACKENDS = frozenset({DIRECT_BACKEND, "jarvis-agent", "terminalbench-native", "hermes", "openclaw"})

#: Its default engine: what a model without ``engine`` runs on.
DEFAULT_ENGINE = "ollama"

_NO_EFFECT = "OpenJarvis's, without effect here"
_AGENT_LIMIT = "limits agent backends, which are not there yet"

#: Per section, keys that are known and not acted on, each with what a warning says of it.
IGNORED_KEYS: dict[str, dict[str, str]] = {
    "meta": {"framework": _NO_EFFECT, "framework_id": _NO_EFFECT},
    "run": {
        "wandb_project": "use [tracking] (MLflow)",
        "wandb_entity": "use [tracking] (MLflow)",
        "wandb_tags": "use [tracking] (MLflow)",
        "wandb_group": "use [tracking] (MLflow)",
        "sheets_spreadsheet_id": "open the Parquet or JSONL results instead",
        "sheets_worksheet": "open the Parquet or JSONL results instead",
        "sheets_credentials_path": "open the Parquet or JSONL results instead",
        "energy_vendor": "meters are found on their own",
        "max_turns": _AGENT_LIMIT,
        "global_agent_timeout_sec": _AGENT_LIMIT,
        "global_timeout_multiplier": _AGENT_LIMIT,
        "episode_mode": _NO_EFFECT,
    },
    "benchmarks": {
        "global_agent_timeout_sec": _AGENT_LIMIT,
        "global_timeout_multiplier": _AGENT_LIMIT,
    },
    "backend.external": {
        "base_url": "its backends (hermes, openclaw) are not there",
        "api_key": "dropped: a key belongs in an environment variable",
    },
}
