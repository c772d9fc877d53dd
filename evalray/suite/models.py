"""A suite file's sections as typed models.  What is valid on its own is decided here; names are
looked up in :mod:`evalray.suite.checks`, layers are merged in :mod:`evalray.suite.expand`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from evalray.settings import (
    STRICT,
    Arguments,
    Count,
    EnvironmentName,
    Few,
    Gpus,
    Host,
    HttpAddress,
    Name,
    NonNegative,
    Port,
    RunDefaults,
    SamplingSettings,
    Seconds,
    Seed,
    TrackingAddress,
)


class Meta(BaseModel):
    """``[meta]``: without a ``name`` the file's own name is taken."""

    model_config = STRICT
    name: Name | None = None
    description: str = ""


class EngineSettings(BaseModel):
    """How a model is run, whether it is tested or judges: its engine and the replicas of it."""

    model_config = STRICT
    engine: str | None = None
    provider: str | None = None
    path: str | None = None
    base_url: HttpAddress | None = None
    api_key_env: EnvironmentName | None = None
    replicas: Few = 1
    max_concurrency: Count | None = None
    adaptive_concurrency: bool = True
    tensor_parallel_size: Few | None = None
    engine_args: Arguments = Field(default_factory=dict)
    timeout_seconds: Seconds = 600.0
    start_timeout_seconds: Seconds = 600.0
    max_retries: Annotated[int, Field(ge=0, le=10_000)] = 5
    stream: bool | None = None
    num_gpus: Gpus | None = None

    @model_validator(mode="after")
    def _parts_are_of_one_gpu(self) -> Self:
        stages = self.engine_args.get("pipeline_parallel_size", 1)
        several = max(self.tensor_parallel_size or 1, stages if isinstance(stages, int) else 1)
        if self.num_gpus is not None and 0 < self.num_gpus < 1 and several > 1:
            raise PydanticCustomError(
                "gpus",
                "num_gpus = {gpus} is a part of one GPU, and the model is spread over {several}: give whole GPUs",
                {"gpus": self.num_gpus, "several": several},
            )
        return self


class Judge(EngineSettings):
    """``[judge]``: the model that grades what no rule can."""

    model: Name | None = None
    temperature: NonNegative = 0.0
    max_tokens: Count = 1024


class RunSection(BaseModel):
    """``[run]``: how the sweep as a whole is carried out.  ``seed`` shuffles the records."""

    model_config = STRICT
    max_workers: Count | None = None
    output_dir: str = "results/"
    seed: Seed = 42
    telemetry: bool = True
    gpu_metrics: bool = False
    warmup_samples: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    max_error_rate: Annotated[float, Field(ge=0, le=1)] = 0.1
    breaker_errors: Count = 20
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_tokens_total: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    cache: bool | Name = False


class Telemetry(BaseModel):
    """``[telemetry]``: how energy is measured and shown.  ``[run] telemetry`` says whether it is at all.

    ``grid_gco2e_per_kwh``: grams of CO2 equivalent that a kilowatt-hour from the grid stands for.
    """

    model_config = STRICT
    estimate: bool = False
    grid_gco2e_per_kwh: Annotated[float, Field(gt=0, le=10_000)] | None = None
    prometheus_port: Port | None = None
    prometheus_host: Host = "127.0.0.1"


class ModelEntry(EngineSettings, SamplingSettings):
    """One ``[[models]]``: a model, how to sample it, the engine that runs it, and how many replicas of it."""

    name: Name
    param_count_b: NonNegative | None = None
    active_params_b: NonNegative | None = None
    gpu_peak_tflops: NonNegative | None = None
    gpu_peak_bandwidth_gb_s: NonNegative | None = None


class BenchmarkEntry(RunDefaults):
    """One ``[[benchmarks]]``: a benchmark, and what this suite wants of it."""

    name: Name
    backend: str | None = None
    agent: str | None = None
    tools: list[str] | None = None
    judge_model: Name | None = None
    split: str | None = None
    subset: str | None = None
    data: Name | None = None
    record_ids: Annotated[list[str], Field(min_length=1)] | None = None
    scorer: str | None = None
    scorer_args: Arguments | None = None
    args: Arguments | None = None


class Cluster(BaseModel):
    """``[cluster]``: which Ray cluster to join; without an address a local one is started."""

    model_config = STRICT
    address: Name | None = None
    placement_timeout_seconds: Seconds = 120.0


class Tracking(BaseModel):
    """``[tracking]``: where MLflow keeps what is measured."""

    model_config = STRICT
    uri: TrackingAddress | None = None
    experiment: Name | None = None
    enabled: bool = True


class Suite(BaseModel):
    """A whole suite file.  ``models`` and ``benchmarks`` span the matrix of runs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    meta: Meta = Meta()
    defaults: RunDefaults = RunDefaults()
    judge: Judge = Judge()
    run: RunSection = RunSection()
    telemetry: Telemetry = Telemetry()
    models: Annotated[list[ModelEntry], Field(min_length=1)]
    benchmarks: Annotated[list[BenchmarkEntry], Field(min_length=1)]
    cluster: Cluster = Cluster()
    tracking: Tracking = Tracking()

    _source: Path | None = PrivateAttr(default=None)
    _warnings: list[str] = PrivateAttr(default_factory=list)

    @property
    def source(self) -> Path | None:
        """The file it came from; ``None`` for one made from flags."""
        return self._source

    @property
    def warnings(self) -> list[str]:
        """What a user should know though it stops nothing, such as keys that are not acted on."""
        return self._warnings

    @property
    def folder(self) -> Path:
        """What relative data paths are relative to."""
        return self._source.resolve().parent if self._source else Path.cwd()

    def fields_given(self) -> dict[str, Any]:
        """What the file says, without the values it leaves out."""
        return self.model_dump(exclude_unset=True, exclude_none=True)
