"""How a run is set up: what is asked of the engine, and one cell of the matrix with all layers merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, frozen=True)
class SamplingParams:
    """How to sample.  ``None`` leaves a parameter to the engine's own default (it is not sent)."""

    temperature: float = 0.0
    max_tokens: int = 2048
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(slots=True)
class RunConfig:
    """One model on one benchmark, with every layer of configuration merged.

    The seed's fields first.  ``metadata`` carries the model's hardware figures, as there.
    """

    benchmark: str
    backend: str
    model: str
    max_samples: int | None = None
    max_workers: int | None = None
    temperature: float = 0.0
    max_tokens: int = 2048
    judge_model: str | None = None
    engine_key: str | None = None
    agent_name: str | None = None
    tools: list[str] = field(default_factory=list)
    output_path: str | None = None
    seed: int = 42
    dataset_split: str | None = None
    telemetry: bool = False
    gpu_metrics: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    # -- ours, or the seed's undocumented ones --
    dataset_subset: str | None = None
    data: str | None = None
    """Local file, glob, folder or hub name in place of the benchmark's own data."""
    record_ids: list[str] | None = None
    system_prompt: str | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: list[str] = field(default_factory=list)
    sampling_seed: int | None = None
    epochs: int = 1
    pass_k: list[int] = field(default_factory=list)
    num_fewshot: int = 0
    concurrency: int | None = None
    """Upper bound on this run's samples in flight, over all replicas."""
    max_error_rate: float = 0.1
    breaker_errors: int = 20
    warmup_samples: int = 0
    grid_gco2e_per_kwh: float | None = None
    """Grams of CO2 equivalent per kilowatt-hour from the grid; changes the summary alone."""
    scorer: str = ""
    scorer_args: dict[str, Any] = field(default_factory=dict)
    benchmark_args: dict[str, Any] = field(default_factory=dict)
    """What the suite sets of the benchmark's own ``[args]``."""
    judge_engine: str | None = None
    """Engine of the judge that this run asks; ``None`` where it asks none."""
    judge_base_url: str | None = None
    """Server of that judge; ``None`` where its engine knows where it is."""

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=tuple(self.stop),
            seed=self.sampling_seed,
        )
