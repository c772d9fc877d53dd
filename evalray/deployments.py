"""What runs where: a model with its engine's settings and replicas, for the runs it answers or judges."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from evalray.definition import Benchmark
from evalray.engines.base import EngineConfig
from evalray.engines.registry import ENGINES, engine_class, planned_concurrency
from evalray.plan_notes import deployment_notes
from evalray.suite.engine_choice import (
    KEY_VARIABLES,
    OPENAI_COMPATIBLE,
    VLLM,
    EngineChoice,
    computes_on_cpu,
    gpus_per_replica,
    is_launched,
    is_over_network,
    takes_stream,
)
from evalray.suite.models import ModelEntry
from evalray.types import RunConfig

if TYPE_CHECKING:
    from evalray.datasets import DatasetProvider
    from evalray.scorers import Scorer
    from evalray.store import StoredRun

#: Tokens allowed for a prompt where neither the suite nor its examples say more.
PROMPT_ALLOWANCE_TOKENS = 2048
#: Text takes at least about one token for so many characters, in the languages we meet.
_CHARACTERS_PER_TOKEN = 3
#: CPUs a replica books that only passes requests on.
_NETWORK_CPUS = 0.25
#: Keys of ``engine_args`` that give the context of one request; the first is ours, for any engine.
_CONTEXT_KEY = "context_tokens"
_CONTEXT_KEYS = (_CONTEXT_KEY, "max_model_len")

#: Part of a GPU's memory that vLLM takes by default, of the part that a replica books.
_VLLM_MEMORY = 0.9

CellStatus = Literal["ready", "unsupported"]


@dataclass(slots=True)
class JudgeDeployment:
    """A model that judges, on actors of its own, and how it is asked.

    ``problem`` says why it cannot be asked at all; its samples then stay unjudged.
    """

    deployment: Deployment
    temperature: float = 0.0
    max_tokens: int = 1024
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def model(self) -> str:
        return self.deployment.model


@dataclass(slots=True)
class PlannedRun:
    """One cell of the matrix.  ``unsupported`` cells are skipped and reported; ``reason`` says why.

    ``notes`` are gaps that are shown by ``plan`` and may stop the cell at run time: a missing
    file, key, token or GPU.
    """

    config: RunConfig
    benchmark: Benchmark | None
    status: CellStatus = "ready"
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    judge: JudgeDeployment | None = None
    """Whom its scorer asks; ``None`` for a scorer that asks nobody, or where no judge is configured."""
    stored: StoredRun | None = None
    """Generations that are there already: nothing is generated, and they are scored again."""
    provider: DatasetProvider | None = None
    """Records from Python, in place of the benchmark's."""
    scorer: Scorer | None = None
    """A scorer from Python, in place of the one that ``config`` names."""


@dataclass(slots=True)
class Deployment:
    """One model with its engine settings, on ``replicas`` engine actors; serves all its runs."""

    model: str
    engine_config: EngineConfig
    replicas: int = 1
    gpus_per_replica: float = 0
    """Whole GPUs, or a part of one that several replicas share."""
    cpus_per_replica: float = 1.0
    in_flight: int | None = None
    """Requests per replica; ``None`` takes what the started engine reports."""
    exclusive: bool = False
    """Computes on this machine's CPU cores: not run beside another such deployment."""
    runs: list[PlannedRun] = field(default_factory=list)

    @property
    def computes_here(self) -> bool:
        """On devices of the cluster: the GPUs it books, or its node's cores."""
        config = self.engine_config
        on_cpu = computes_on_cpu(config.engine, config.engine_args, self.gpus_per_replica)
        return bool(self.gpus_per_replica) or self.exclusive or on_cpu

    @property
    def tensor_parallel(self) -> int:
        """GPUs that split each layer between them; a server that is launched may split by layers instead."""
        if is_launched(self.engine_config.engine, self.engine_config.engine_args):
            return 1
        return max(1, min(self.engine_config.tensor_parallel_size, math.ceil(self.gpus_per_replica)))

    @property
    def gpus(self) -> int:
        """GPUs that all replicas take together: as many share one as fit on it."""
        if 0 < self.gpus_per_replica < 1:
            return -(-self.replicas // replicas_per_gpu(self.gpus_per_replica))
        return int(self.gpus_per_replica) * self.replicas

    @property
    def expected_in_flight(self) -> int | None:
        """Requests per replica, the engine's default included; ``None`` where only the started engine knows."""
        return self.in_flight or planned_concurrency(self.engine_config)

    @property
    def may_span_nodes(self) -> bool:
        """Whether a replica is spread where no node has its GPUs; not known of a class of the user's own."""
        name = self.engine_config.engine
        return self.gpus_per_replica > 1 and name in ENGINES and engine_class(name).can_span_nodes


def replicas_per_gpu(part: float) -> int:
    """How many replicas fit on one GPU of which each books ``part``, between 0 and 1."""
    return int((1 + 1e-9) / part)


def deploy_runs(
    model: ModelEntry, engine: EngineChoice, runs: list[PlannedRun], *, joins_cluster: bool
) -> Deployment:
    """The deployment that answers ``runs``; what it lacks on this machine is added to their notes."""
    context = _given_context(model) or max(run.config.max_tokens + _prompt_allowance(run) for run in runs)
    in_flight = model.max_concurrency or runs[0].config.max_workers
    deployment, notes = deploy(model, engine, context, in_flight, joins_cluster=joins_cluster)
    for run in runs:
        run.notes += notes
    deployment.runs = runs
    return deployment


def deploy_judge(
    model: ModelEntry, engine: EngineChoice, *, max_tokens: int, prompt_tokens: int, joins_cluster: bool
) -> tuple[Deployment, list[str]]:
    """The deployment of a judge, and what it lacks on this machine.

    It computes beside the models it judges, and so is never exclusive; over the network it books nothing.
    Its replies come in one piece: nobody asks how fast a judge's first token was.
    """
    if model.stream is None and engine.name == OPENAI_COMPATIBLE:
        model = model.model_copy(update={"stream": False})
    context = _given_context(model) or prompt_tokens + max_tokens
    deployment, notes = deploy(model, engine, context, model.max_concurrency, joins_cluster=joins_cluster)
    over_network = is_over_network(engine.name, model.engine_args)
    cpus = 0.0 if over_network else deployment.cpus_per_replica
    return replace(deployment, exclusive=False, cpus_per_replica=cpus), notes


def deploy(
    model: ModelEntry,
    engine: EngineChoice,
    context_tokens: int,
    in_flight: int | None,
    *,
    joins_cluster: bool,
) -> tuple[Deployment, list[str]]:
    """A model on an engine, without its runs, and what it lacks on this machine."""
    tensor_parallel_size = model.tensor_parallel_size or math.ceil(model.num_gpus or 1)
    engine_args = {key: value for key, value in model.engine_args.items() if key != _CONTEXT_KEY}
    if model.stream is not None and takes_stream(engine.name):
        engine_args["stream"] = model.stream
    gpus = gpus_per_replica(
        engine.name, tensor_parallel_size, engine_args=engine_args, num_gpus=model.num_gpus
    )
    if engine.name == VLLM and 0 < gpus < 1:
        engine_args.setdefault("gpu_memory_utilization", round(_VLLM_MEMORY * gpus, 4))
    config = EngineConfig(
        model=model.name,
        engine=engine.name,
        path=engine.path,
        base_url=model.base_url,
        api_key_env=model.api_key_env or KEY_VARIABLES.get(engine.name),
        max_concurrency=in_flight,
        tensor_parallel_size=tensor_parallel_size,
        timeout_seconds=float(model.timeout_seconds),
        start_timeout_seconds=float(model.start_timeout_seconds),
        context_tokens=context_tokens,
        max_retries=model.max_retries,
        adaptive_concurrency=model.adaptive_concurrency and is_over_network(engine.name, engine_args),
        engine_args=engine_args,
    )
    deployment = Deployment(
        model=model.name,
        engine_config=config,
        replicas=model.replicas,
        gpus_per_replica=gpus,
        cpus_per_replica=_NETWORK_CPUS if is_over_network(engine.name, engine_args) else 1.0,
        in_flight=in_flight,
        exclusive=computes_on_cpu(engine.name, engine_args, model.num_gpus),
    )
    return deployment, deployment_notes(config, deployment.gpus, joins_cluster=joins_cluster)


def _given_context(model: ModelEntry) -> int | None:
    """What ``engine_args`` gives as the context of one request."""
    for key in _CONTEXT_KEYS:
        given = model.engine_args.get(key)
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
    return None


def _prompt_allowance(run: PlannedRun) -> int:
    """Tokens for a prompt: a fixed share, and what the system prompt and the worked examples take."""
    examples: Sequence[dict[str, Any]] = (
        run.benchmark.fewshot[: run.config.num_fewshot] if run.benchmark else ()
    )
    characters = len(run.config.system_prompt or "") + sum(len(json.dumps(row)) for row in examples)
    return PROMPT_ALLOWANCE_TOKENS + -(-characters // _CHARACTERS_PER_TOKEN)


def engine_to_dict(config: EngineConfig) -> dict[str, Any]:
    """The engine's settings as plain data, without an object of the user's and what is not decided yet."""
    left_out = ("payload", "spans_nodes")
    return {key: value for key, value in asdict(config).items() if key not in left_out}


def withhold_keys(deployments: Sequence[Deployment]) -> None:
    """No engine's process keeps the key of another deployment, a judge's least of all."""
    names = {config.api_key_env for d in deployments if (config := d.engine_config).api_key_env}
    for deployment in deployments:
        config = deployment.engine_config
        withheld = tuple(sorted(names - {config.api_key_env}))
        deployment.engine_config = replace(config, withheld_env=withheld)
