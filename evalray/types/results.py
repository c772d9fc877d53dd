"""What is left of a run: one row per sample, and their summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Version of the exported sample row.  Raised whenever a field changes its meaning.
SCHEMA_VERSION = 1


@dataclass(slots=True)
class EvalResult:
    """One row per (run, record, epoch): the joined, final truth.

    The first block is the seed's row, names kept; the second is what EvalRay adds.
    """

    record_id: str
    benchmark: str = ""
    model: str = ""
    backend: str = ""
    model_answer: str = ""
    is_correct: bool | None = None
    score: float | None = None
    latency_seconds: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    error: str | None = None
    scoring_metadata: dict[str, Any] = field(default_factory=dict)
    ttft: float | None = None
    energy_joules: float | None = None
    power_watts: float | None = None
    gpu_utilization_pct: float | None = None
    throughput_tok_per_sec: float | None = None
    mfu_pct: float | None = None
    mbu_pct: float | None = None
    ipw: float | None = None
    ipj: float | None = None
    energy_method: str | None = None
    energy_per_output_token_joules: float | None = None
    throughput_per_watt: float | None = None
    mean_itl_ms: float | None = None
    estimated_flops: float | None = None
    # -- ours --
    outcome: str = ""
    epoch: int = 0
    position: int = 0
    """Index in the run's seeded order."""
    prompt: str | None = None
    reference: str | None = None
    category: str | None = None
    subject: str | None = None
    record_metadata: dict[str, Any] = field(default_factory=dict)
    raw_text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    error_kind: str | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    queue_seconds: float | None = None
    decode_seconds: float | None = None
    itl_p50_ms: float | None = None
    itl_p90_ms: float | None = None
    itl_p99_ms: float | None = None
    sent_at: float | None = None
    completed_at: float | None = None
    engine: str = ""
    engine_id: str | None = None
    node_id: str | None = None
    attempts: int | None = None
    request_params: dict[str, Any] | None = None
    scorer: str = ""
    cached: bool | None = None
    """True where the reply came from the response cache."""
    prefill_energy_joules: float | None = None
    decode_energy_joules: float | None = None
    gpu_energy_joules: float | None = None
    cpu_energy_joules: float | None = None
    dram_energy_joules: float | None = None
    energy_window_joules: float | None = None
    """All that its engine's devices used while it was in flight, others' share included, as OpenJarvis counts."""
    energy_scope: str | None = None
    """What the joules are of: ``gpu``, ``module`` or ``package``."""
    energy_coverage: float | None = None
    """Share of its time in flight in which energy was measured; its energy is of that share alone."""
    energy_low_resolution: bool | None = None
    """True where it saw fewer than 10 counter updates or lasted under 2 s."""
    counter_updates: float | None = None
    gpu_seconds: float | None = None
    flops: float | None = None
    prefill_flops: float | None = None
    decode_flops: float | None = None
    mfu_request_pct: float | None = None
    """OpenJarvis's formula over this request alone; ``mfu_pct`` is what the devices reached meanwhile."""
    mbu_request_pct: float | None = None
    warmup: bool | None = None
    """True for a warm-up sample: scored, and in no figure of energy or utilisation of the run."""
    telemetry_version: int | None = None
    schema_version: int = SCHEMA_VERSION


@dataclass(slots=True)
class MetricStats:
    """Descriptive statistics of one metric over the samples in which it was measured.

    Percentiles interpolate linearly at ``(n - 1) * p``; ``std`` is the sample standard deviation,
    0 for one value.
    """

    mean: float
    median: float
    min: float
    max: float
    std: float
    p90: float
    p95: float
    p99: float
    n: int


@dataclass(slots=True)
class RunSummary:
    """Aggregate of one run, computed from its rows and from nothing else.

    ``accuracy = correct / scored_samples``, ``None`` when nothing was scored.  ``planned_samples``
    counts every (record, epoch) the run was to do; it is always shown beside ``scored_samples``.
    """

    benchmark: str
    category: str
    backend: str
    model: str
    total_samples: int
    scored_samples: int
    correct: int
    accuracy: float | None
    errors: int
    mean_latency_seconds: float | None
    total_cost_usd: float | None
    per_subject: dict[str, dict[str, float | int | None]] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    accuracy_stats: MetricStats | None = None
    latency_stats: MetricStats | None = None
    ttft_stats: MetricStats | None = None
    energy_stats: MetricStats | None = None
    power_stats: MetricStats | None = None
    gpu_utilization_stats: MetricStats | None = None
    throughput_stats: MetricStats | None = None
    mfu_stats: MetricStats | None = None
    mbu_stats: MetricStats | None = None
    ipw_stats: MetricStats | None = None
    ipj_stats: MetricStats | None = None
    itl_stats: MetricStats | None = None
    input_token_stats: MetricStats | None = None
    output_token_stats: MetricStats | None = None
    total_energy_joules: float | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    # -- ours --
    planned_samples: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    accuracy_stderr: float | None = None
    """Standard error of the accuracy; clustered by record when ``epochs > 1``."""
    accuracy_ci95: tuple[float, float] | None = None
    """95 % interval: Wilson for one epoch, normal on the clustered error otherwise."""
    accuracy_parsed: float | None = None
    """Accuracy without the unparsed samples."""
    accuracy_completed: float | None = None
    """Accuracy without the truncated samples."""
    truncated_rate: float | None = None
    pass_at_k: dict[str, float | None] = field(default_factory=dict)
    scorer_rates: dict[str, float | None] = field(default_factory=dict)
    """The scorer's own rates (``position_bias_rate``, ``gaia_human``, ...), each over the samples it concerns."""
    judge_calls: int | None = None
    """Questions put to the judge for the verdicts that stand.  Its figures are in none of the others."""
    judge_input_tokens: int | None = None
    judge_output_tokens: int | None = None
    judge_cost_usd: float | None = None
    judge_latency_stats: MetricStats | None = None
    """Per judged sample: the longest of its calls."""
    cached_samples: int = 0
    """Answered by the response cache: in no figure of time, throughput, energy or cost."""
    epochs: int = 1
    num_records: int = 0
    bad_rows: int = 0
    queue_stats: MetricStats | None = None
    wall_seconds: float | None = None
    """Sum of the run's active stretches, each from its first request sent to an engine: neither the time between
    an interruption and its resume is in it, nor that in which other runs had the replicas."""
    generation_seconds: float | None = None
    """From the first request to the last reply, summed over the stretches: what rates are over.  Judging is not in it."""
    samples_per_second: float | None = None
    output_tokens_per_second: float | None = None
    engine: str = ""
    scorer: str = ""
    status: str = ""
    """``complete``, ``partial`` (resumable) or ``failed`` (over its error threshold, or nothing succeeded)."""
    reason: str = ""
    """Why it failed before its samples did, such as an engine that did not start; why it is partial."""
    judge_problem: str = ""
    """Why its judge could not be asked, or was asked no more; names the judge."""
    energy_method: str | None = None
    """How the joules came about; ``none`` where nothing was measured, and ``energy_reason`` says why."""
    energy_scope: str | None = None
    energy_reason: str | None = None
    idle_joules: float | None = None
    """Used by its engines' devices while nobody worked, between its first request and its last."""
    device_joules: float | None = None
    """All that those devices used in that time, by whomever."""
    energy_invalid_seconds: float | None = None
    """Device seconds of that time without a valid reading: nothing of them is in any figure."""
    joules_per_correct: float | None = None
    tokens_per_joule: float | None = None
    accuracy_per_watt: float | None = None
    avg_power_watts: float | None = None
    """Of all its devices together, over the time in which they were measured."""
    peak_power_watts: float | None = None
    """Highest sum of a moment over one node's devices."""
    mfu_pct: float | None = None
    """Of the run as a whole, over its time from the first request to the last."""
    mbu_pct: float | None = None
    utilization_peak: str | None = None
    """The peaks that MFU and MBU are of, and where they come from."""
    utilization_reason: str | None = None
    """Why there is no MFU or MBU."""
    total_flops: float | None = None
    energy_per_output_token_stats: MetricStats | None = None
    steady_state_reached: bool | None = None
    steady_state_joules_per_token: float | None = None
    warmup_samples_excluded: int = 0
    gco2e: float | None = None
    """Grams of CO2 equivalent of its own and idle joules, at ``grid_gco2e_per_kwh``."""
    grid_gco2e_per_kwh: float | None = None
    telemetry_version: int | None = None
    fingerprint: str = ""
    scorer_fingerprint: str = ""
    warnings: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
