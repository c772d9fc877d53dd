"""The shared vocabulary: what a record, a generation, a result, a run and a summary are.

Plain slotted dataclasses, because they are made once per sample in the hot path.
Field names follow OpenJarvis's evaluation types, so that its users' rows and scripts keep working;
EvalRay adds fields and never renames one.  Throughout, ``None`` means "not measured" and ``0`` is
a measurement.  Units stand in the names: ``*_seconds``, ``*_joules``, ``*_pct``.

This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

#: Version of the exported sample row.  Raised whenever a field changes its meaning.
SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """How one sample ended.  Exactly one per sample; each is counted beside the score."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNPARSED = "unparsed"
    """The model answered, and no answer could be read from it.  Counts as wrong."""
    TRUNCATED = "truncated"
    """Stopped by the token limit before an explicit answer.  Counts as wrong."""
    JUDGE_ERROR = "judge_error"
    """The judge failed, or its verdict could not be read.  Not graded; re-judged on resume."""
    SCORER_ERROR = "scorer_error"
    """Our scorer raised or ran out of time.  Not graded."""
    ENGINE_ERROR = "engine_error"
    """The request failed after its retries.  Not graded; retried on resume."""
    SKIPPED = "skipped"
    """Not attempted: interrupted, circuit breaker, missing file, budget."""

    @property
    def is_correct(self) -> bool | None:
        """The seed's ``is_correct``: true, false, or ``None`` where nothing was graded."""
        return _IS_CORRECT[self]

    @property
    def is_scored(self) -> bool:
        """Whether the sample is in the denominator of the accuracy."""
        return _IS_CORRECT[self] is not None


_IS_CORRECT: dict[Outcome, bool | None] = {
    Outcome.CORRECT: True,
    Outcome.INCORRECT: False,
    Outcome.UNPARSED: False,
    Outcome.TRUNCATED: False,
    Outcome.JUDGE_ERROR: None,
    Outcome.SCORER_ERROR: None,
    Outcome.ENGINE_ERROR: None,
    Outcome.SKIPPED: None,
}


@dataclass(slots=True)
class EvalRecord:
    """One benchmark sample.

    ``record_id`` is stable: the dataset's own id or a hash of the content, never a position.
    ``problem`` is the rendered user prompt; ``reference`` the gold answer the scorer compares with.
    """

    record_id: str
    problem: str
    reference: str
    category: str
    subject: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class SamplingParams:
    """How to sample.  ``None`` leaves a parameter to the engine's own default (it is not sent)."""

    temperature: float = 0.0
    max_tokens: int = 2048
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(slots=True, frozen=True)
class GenerationRequest:
    """One request to an engine: chat messages (``{"role", "content"}``) and how to sample.

    ``request_id`` is unique within a deployment.  ``timeout_seconds`` bounds one attempt, from
    the moment it is sent to its last token.
    """

    request_id: str
    messages: tuple[dict[str, str], ...]
    sampling: SamplingParams
    timeout_seconds: float = 600.0
    response_schema: dict[str, Any] | None = None
    """JSON schema of the reply, for engines whose server can enforce one; the others leave it out."""


@dataclass(slots=True)
class Timeline:
    """When things happened to one request, of the attempt that counted.

    ``*_at`` are Unix seconds on the engine's node; ``*_seconds`` are differences of that node's
    monotonic clock.  Inter-token figures are over the gaps between streamed chunks that carried
    text; they and ``ttft_seconds`` are ``None`` where the reply was not streamed.
    """

    queued_at: float | None = None
    """When the engine actor took the request in."""
    sent_at: float | None = None
    """When this attempt was handed to the engine."""
    completed_at: float | None = None
    queue_seconds: float | None = None
    """queued to sent, retries and back-off included."""
    latency_seconds: float | None = None
    """sent to last token."""
    ttft_seconds: float | None = None
    """sent to first token, of reasoning or of answer."""
    decode_seconds: float | None = None
    """first token to last token."""
    itl_mean_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p90_seconds: float | None = None
    itl_p99_seconds: float | None = None
    itl_max_seconds: float | None = None
    server: dict[str, float] | None = None
    """Timings the engine reports of itself, by its own names, where it does."""


@dataclass(slots=True)
class Generation:
    """What an engine returned for one (record, epoch, attempt).

    Either ``error`` is ``None`` and the text fields hold the reply, or ``error`` says what went
    wrong and ``error_kind`` classifies it (one of :data:`evalray.errors.ErrorKind`); the text
    fields are then whatever had arrived and are never scored.
    """

    raw_text: str = ""
    """Everything the model wrote, reasoning included, as it came."""
    model_answer: str = ""
    """``raw_text`` without its reasoning: what scorers see."""
    reasoning: str | None = None
    finish_reason: str | None = None
    """``stop``, ``length``, ``content_filter``, ``tool_calls``; ``None`` if the engine gave none."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    timeline: Timeline = field(default_factory=Timeline)
    engine_id: str = ""
    """Which replica answered, e.g. ``SmolLM2/0``."""
    node_id: str = ""
    cost_usd: float | None = None
    attempts: int = 1
    """Requests sent for this result, retries included."""
    error: str | None = None
    error_kind: str | None = None
    request_params: dict[str, Any] | None = None
    """Parameters as they were sent, where an engine leaves out what the model refuses (``not_sent``)."""
    telemetry: dict[str, Any] | None = None
    """Device figures of this request by the row's names (``energy_joules``, ``power_watts``, ...), where
    the journal has to carry them: imported rows, whose devices nobody can ask again."""
    cached: bool | None = None
    """True for a reply from the response cache: nothing was sent, and nothing measured."""


@dataclass(slots=True)
class Score:
    """A scorer's verdict on one generation.

    ``score`` is the graded value in [0, 1]; left ``None`` it is 1 or 0 by the outcome, and stays
    ``None`` where nothing was graded.  ``metadata`` says how the verdict came about (which rule
    fired, what was extracted).
    """

    outcome: Outcome
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        correct = self.outcome.is_correct
        if correct is None:
            self.score = None
        elif self.score is None:
            self.score = float(correct)


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
    scorer: str = ""
    scorer_args: dict[str, Any] = field(default_factory=dict)
    benchmark_args: dict[str, Any] = field(default_factory=dict)
    """What the suite sets of the benchmark's own ``[args]``."""
    judge_engine: str | None = None
    """Engine of the judge that this run asks; ``None`` where it asks none."""

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
    """Sum of the run's active stretches: time between an interruption and its resume is not in it."""
    samples_per_second: float | None = None
    output_tokens_per_second: float | None = None
    engine: str = ""
    scorer: str = ""
    status: str = ""
    """``complete``, ``partial`` (resumable) or ``failed`` (over its error threshold, or nothing succeeded)."""
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
    telemetry_version: int | None = None
    fingerprint: str = ""
    scorer_fingerprint: str = ""
    warnings: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
