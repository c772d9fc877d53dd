"""Anthropic's Messages API through its SDK.

Sampling parameters left the API with version 2026-10-21.  A model that still takes them is asked under
the version its row in ``data/capabilities.toml`` names, so that ``temperature = 0`` means what it says;
for all others they are left out, and what was sent is recorded with each reply.  A refusal is the
model's answer, with ``finish_reason = "content_filter"``.

``engine_args``: ``reasoning_effort``, ``thinking`` (``adaptive`` or ``disabled``) or
``thinking_budget`` (tokens, at least 1024, below ``max_tokens``), ``stream`` (default true),
``reasoning``, ``extra_body``, ``price_input_per_mtok``, ``price_output_per_mtok``,
``price_cached_input_per_mtok``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.vendor_client import (
    NEUTRAL_ARGS,
    SHARED_ARGS,
    Vendor,
    VendorClient,
    count,
    cut_short,
    given,
    sendable_messages,
)
from evalray.errors import EngineStartError, RequestError
from evalray.types import GenerationRequest

if TYPE_CHECKING:
    import anthropic

_ANTHROPIC = Vendor(
    "anthropic",
    "AsyncAnthropic",
    "api.anthropic.com",
    "ANTHROPIC_API_KEY",
    unpriced=frozenset({"speed", "inference_geo"}),
)
_OWN_ARGS = ("thinking", "thinking_budget")
_MIN_THINKING_BUDGET = 1024
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
#: The SDK's method no longer names the sampling parameters, and never had a seed.
_UNNAMED = _SAMPLING | {"seed"}
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class AnthropicEngine(Engine):
    """One Claude, or a model of a server that speaks the Messages API at ``base_url``."""

    name: ClassVar[str] = "anthropic"
    argument_names: ClassVar[frozenset[str]] = frozenset({*SHARED_ARGS, *_OWN_ARGS})
    default_concurrency: ClassVar[int] = 16
    context_advice: ClassVar[str] = (
        "shorten the prompt, lower max_tokens or take a model with a larger context"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = NEUTRAL_ARGS

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._api = VendorClient(_ANTHROPIC, config)
        self._dialect = _Messages(self._api, None)

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._api.secrets

    async def start(self) -> EngineInfo:
        arguments = self._api.read_settings(_OWN_ARGS)
        thinking = self._thinking_asked_for(arguments)
        self._dialect = _Messages(self._api, thinking)
        if thinking is not None and thinking["type"] != "disabled":
            self._api.filter.refuse(_SAMPLING)
        base_url = self.config.base_url
        if base_url is not None:  # the SDK appends /v1/messages
            base_url = base_url.rstrip("/").removesuffix("/v1")
        info, known = await self._api.connect(self, base_url)
        if _takes_no_schema(known):
            self._api.filter.refuse({"output_config.format"})
        return replace(info, context_tokens=count(known, "max_input_tokens"))

    def _thinking_asked_for(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        kinds = self._api.capabilities.thinking
        kind, budget = arguments.get("thinking"), arguments.get("thinking_budget")
        if budget is not None:
            if kind is not None:
                raise EngineStartError("engine_args: give thinking or thinking_budget, not both")
            if not isinstance(budget, int) or isinstance(budget, bool) or budget < _MIN_THINKING_BUDGET:
                raise EngineStartError(
                    f"engine_args.thinking_budget must be at least {_MIN_THINKING_BUDGET} tokens"
                )
            if kinds is not None and "enabled" not in kinds:
                raise EngineStartError(
                    f"model {self.config.model} takes no thinking_budget: use reasoning_effort"
                )
            return {"type": "enabled", "budget_tokens": budget}
        if kind is None:
            return None
        if kind not in ("adaptive", "disabled") or (kinds is not None and kind not in kinds):
            raise EngineStartError(
                f"model {self.config.model} does not take thinking = {kind!r}: "
                "it may be 'adaptive' or 'disabled' where the model has them, or give thinking_budget"
            )
        return {"type": kind}

    def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        return self._api.answer(request, self._dialect)

    async def close(self) -> None:
        await self._api.close()


class _Messages:
    """The Messages API."""

    def __init__(self, api: VendorClient, thinking: dict[str, Any] | None) -> None:
        self._api = api
        self._thinking = thinking

    def wanted(self, request: GenerationRequest) -> dict[str, Any]:
        sampling, schema = request.sampling, request.response_schema
        budget = (self._thinking or {}).get("budget_tokens")
        if budget is not None and budget >= sampling.max_tokens:
            raise RequestError(
                "bad_request",
                f"thinking_budget {budget} leaves nothing of max_tokens {sampling.max_tokens}: raise max_tokens",
            )
        return given(
            {
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "seed": sampling.seed,
                # The API refuses stop sequences of white space alone.
                "stop_sequences": [stop for stop in sampling.stop if stop.strip()] or None,
                "thinking": self._thinking,
                "output_config.effort": self._api.effort,
                "output_config.format": None if schema is None else {"type": "json_schema", "schema": schema},
            }
        )

    async def ask(
        self, client: anthropic.AsyncAnthropic, request: GenerationRequest, sent: dict[str, Any]
    ) -> Any:
        fields = self._api.fields(sent, _UNNAMED)
        version = self._api.capabilities.sampling_api_version
        if version and _UNNAMED & sent.keys():
            fields["extra_headers"] = {"anthropic-version": version}
        messages = sendable_messages(request)
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        if system:
            fields["system"] = system
        turns: list[Any] = [message for message in messages if message["role"] != "system"]
        return await client.messages.create(messages=turns, **fields)

    async def read(self, stream: Any) -> AsyncIterator[Chunk]:
        counts: dict[str, int] = {}
        complete = False
        async for event in stream:
            kind = getattr(event, "type", None)
            if kind == "content_block_delta":
                delta = event.delta
                if delta.type == "text_delta":
                    yield Chunk(text=delta.text)
                elif delta.type == "thinking_delta":
                    yield Chunk(reasoning=delta.thinking)
            elif kind == "content_block_start":
                block = event.content_block
                text, thinking = getattr(block, "text", None), getattr(block, "thinking", None)
                if text or thinking:
                    yield Chunk(text=text or "", reasoning=thinking or "")
            elif kind == "message_start":
                _collect(counts, getattr(event.message, "usage", None))
            elif kind == "message_delta":
                _collect(counts, getattr(event, "usage", None))
                reason = getattr(event.delta, "stop_reason", None)
                if reason is not None:
                    complete = True
                    yield self._ending(reason, counts)
            elif kind == "message_stop":
                complete = True
        if not complete:
            raise cut_short()

    def whole(self, reply: Any) -> Chunk:
        if not isinstance(getattr(reply, "content", None), list):
            raise self._api.not_the_protocol(reply)
        counts: dict[str, int] = {}
        _collect(counts, getattr(reply, "usage", None))
        chunk = self._ending(reply.stop_reason, counts)
        chunk.text = "".join(block.text for block in reply.content if block.type == "text")
        chunk.reasoning = "".join(block.thinking for block in reply.content if block.type == "thinking")
        chunk.whole = True
        return chunk

    def _ending(self, reason: Any, counts: dict[str, int]) -> Chunk:
        chunk = Chunk(finish_reason=_FINISH_REASONS.get(str(reason), str(reason)))
        if "input_tokens" not in counts and "output_tokens" not in counts:
            return chunk
        cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        prompt = counts.get("input_tokens")
        if prompt is not None:
            prompt += (cached or 0) + (written or 0)
        completion = counts.get("output_tokens")
        chunk.usage = Usage(prompt, completion, cached, counts.get("thinking_tokens"))
        if self._api.price is not None:
            chunk.cost_usd = self._api.price.cost_usd(prompt, completion, cached, written)
        return chunk


def _takes_no_schema(known: Any) -> bool:
    """Whether the vendor says of the model that it cannot be held to a JSON schema."""
    capability = getattr(getattr(known, "capabilities", None), "structured_outputs", None)
    return getattr(capability, "supported", None) is False


def _collect(counts: dict[str, int], usage: Any) -> None:
    """The counts of an event; later events of a stream carry the cumulative ones."""
    found = {
        name: count(usage, name)
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
    }
    found["thinking_tokens"] = count(getattr(usage, "output_tokens_details", None), "thinking_tokens")
    counts.update(given(found))
