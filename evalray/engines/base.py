"""What an engine is: it starts, streams replies, and closes.

An engine hosts one model, or speaks to a server that does.  It yields :class:`Chunk` as they come
and raises :class:`~evalray.errors.RequestError` for a request that failed or
:class:`~evalray.errors.EngineDied` when nothing more can come.  Timing, retries, deadlines and
splitting off the reasoning are done once for all engines, around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from evalray.types import GenerationRequest


@dataclass(slots=True, frozen=True)
class Usage:
    """Token counts as the engine reports them; ``None`` where it does not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(slots=True)
class Chunk:
    """A piece of a streamed reply.  The last one carries ``finish_reason`` and ``usage``."""

    text: str = ""
    reasoning: str = ""
    """Reasoning that the server already split off (``reasoning_content`` and the like)."""
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: dict[str, float] | None = None
    """What the server says of its own timing, by its own names."""
    cost_usd: float | None = None
    at: float | None = None
    """``time.monotonic()`` of its arrival, where the engine noted it before handing it on."""
    whole: bool = False
    """The reply came in one piece: it says nothing of the time to the first token."""
    refused: bool = False
    """The text is the model's refusal: the reply ends as ``content_filter``, whatever the server calls it."""
    request_params: dict[str, Any] | None = None
    """Parameters as they were sent, by the server's names; ``not_sent`` lists what the model does not take."""


@dataclass(slots=True, frozen=True)
class EngineConfig:
    """Everything one engine replica needs to start.  Small and picklable; holds no secret.

    ``context_tokens`` is the longest prompt plus answer a request of the deployment may need.
    ``max_concurrency`` is the number of requests the replica is given at once.
    """

    model: str
    engine: str
    path: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    max_concurrency: int | None = None
    tensor_parallel_size: int = 1
    timeout_seconds: float = 600.0
    """Deadline of one attempt at one request."""
    start_timeout_seconds: float = 600.0
    context_tokens: int | None = None
    num_threads: int | None = None
    """CPU threads the replica may use; ``None`` leaves it to the engine."""
    max_retries: int = 5
    adaptive_concurrency: bool = False
    """Whether ``max_concurrency`` is a ceiling below which the replica finds its own limit."""
    engine_args: dict[str, Any] = field(default_factory=dict)
    withheld_env: tuple[str, ...] = ()
    """Variables that hold other models' keys: this engine's process forgets them before it starts."""
    payload: bytes | None = field(default=None, repr=False)
    """A pickled object of the user's own that its engine is made of; written into no file."""
    spans_nodes: bool = False
    """The replica's GPUs are in the Ray placement group that its actor is in, over several nodes; decided
    as it is placed."""


@dataclass(slots=True)
class EngineInfo:
    """What a started engine says of itself; goes into ``run.json``, never into a fingerprint."""

    engine: str
    model: str
    version: str = ""
    max_concurrency: int = 1
    """Requests the engine works on at once: its slots, its ``max_num_seqs``, its connection pool."""
    context_tokens: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class WorkCounters:
    """What an engine itself says it did since it started, over all its devices."""

    flops: float
    read_bytes: float
    write_bytes: float


class Engine(ABC):
    """One model, ready to answer.  Used from a single event loop.

    Class attributes describe the family, readable before anything starts.
    """

    #: The name used in suites.
    name: ClassVar[str]
    #: Requests in flight per replica where neither the model nor the user says.
    default_concurrency: ClassVar[int] = 32
    #: Keys of ``engine_args`` that one is likely to mean; other names may be known too.
    argument_names: ClassVar[frozenset[str]] = frozenset()
    #: Keys of ``engine_args`` that cannot change an answer, and so are not in a run's fingerprint.
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset()
    #: Stop strings the engine takes per request; the rest are applied to the answer afterwards.
    max_stop_sequences: ClassVar[int] = 4
    #: What to do about a request over the context, said with every such error.
    context_advice: ClassVar[str] = "shorten the prompt or lower max_tokens"
    #: Whether one replica can use GPUs of several nodes, as workers in the placement group of its actor.
    can_span_nodes: ClassVar[bool] = False

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.reasons: bool = config.engine_args.get("reasoning") is True
        """Whether the model writes reasoning: told by ``engine_args.reasoning``, or learnt from a reply."""

    @classmethod
    def answer_args(cls, engine_args: Mapping[str, Any]) -> dict[str, Any]:
        """Those of ``engine_args`` that can change an answer."""
        return {key: value for key, value in engine_args.items() if key not in cls.answer_neutral_args}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys that the engine sends: blanked in every text of a reply, should the server echo them."""
        return ()

    @abstractmethod
    async def start(self) -> EngineInfo:
        """Load or connect.  Raises :class:`EngineStartError` with what to do about it."""

    @abstractmethod
    def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        """Stream the reply to one request; many run at once.

        Raises :class:`RequestError` (this request) or :class:`EngineDied` (all of them).
        Closing the iterator early cancels the request in the engine.
        """

    def counters(self) -> WorkCounters | None:
        """Its own estimate of its work, where it has one: a cross-check of ours, and not used for anything else."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Free everything: sockets, threads, child processes, GPU memory.  Safe to call twice."""
