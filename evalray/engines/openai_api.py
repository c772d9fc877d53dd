"""OpenAI's own API through its SDK: the responses API for reasoning models, chat completions for others.

What a model refuses is not sent (``data/capabilities.toml``, and what this replica learnt from a
refusal), and what was sent is recorded with each reply.  A refusal by the model is its answer, with
``finish_reason = "content_filter"``.

``engine_args``: ``api`` (``responses`` or ``chat``), ``reasoning_effort``, ``reasoning_summary``,
``stream`` (default true), ``reasoning``, ``extra_body``, ``price_input_per_mtok``,
``price_output_per_mtok``, ``price_cached_input_per_mtok``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.chat_protocol import response_format
from evalray.engines.pricing import Price
from evalray.engines.vendor_client import (
    NEUTRAL_ARGS,
    SHARED_ARGS,
    Dialect,
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
    import openai

_OPENAI = Vendor(
    "openai", "AsyncOpenAI", "api.openai.com", "OPENAI_API_KEY", unpriced=frozenset({"service_tier"})
)
_OWN_ARGS = ("api", "reasoning_summary")
#: Parameters that the SDK's methods do not name, and that therefore travel in ``extra_body``.
_UNNAMED = frozenset({"top_k"})
#: What the responses API has no field for, whatever the model.
_NOT_IN_RESPONSES = frozenset({"seed", "stop"})
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class OpenAIEngine(Engine):
    """One model of OpenAI's API, or of a server that imitates it at ``base_url``."""

    name: ClassVar[str] = "openai"
    argument_names: ClassVar[frozenset[str]] = frozenset({*SHARED_ARGS, *_OWN_ARGS})
    default_concurrency: ClassVar[int] = 32
    context_advice: ClassVar[str] = (
        "shorten the prompt, lower max_tokens or take a model with a larger context"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = NEUTRAL_ARGS

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._api = VendorClient(_OPENAI, config)
        self._dialect: Dialect = _Chat(self._api)

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._api.secrets

    async def start(self) -> EngineInfo:
        arguments, capabilities = self._api.read_settings(_OWN_ARGS), self._api.capabilities
        api = arguments.get("api", capabilities.api)
        if api not in ("responses", "chat"):
            raise EngineStartError(f'engine_args.api = {api!r}: write "responses" or "chat"')
        if api == "responses":
            self._api.filter.refuse(_NOT_IN_RESPONSES)
            self._dialect = _Responses(self._api, arguments.get("reasoning_summary"))
        elif capabilities.responses_only:
            raise EngineStartError(
                f"model {self.config.model} is served by the responses API only: "
                'drop engine_args.api = "chat"'
            )
        info, _ = await self._api.connect(self, self.config.base_url, api=api)
        return info

    def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        return self._api.answer(request, self._dialect)

    async def close(self) -> None:
        await self._api.close()


class _Chat:
    """Chat completions."""

    def __init__(self, api: VendorClient) -> None:
        self._api = api

    def wanted(self, request: GenerationRequest) -> dict[str, Any]:
        sampling, schema = request.sampling, request.response_schema
        return given(
            {
                self._api.capabilities.max_tokens_name: sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "seed": sampling.seed,
                "stop": list(sampling.stop) or None,
                "reasoning_effort": self._api.effort,
                "response_format": None if schema is None else response_format(schema),
                "stream_options": {"include_usage": True} if self._api.stream else None,
            }
        )

    async def ask(self, client: openai.AsyncOpenAI, request: GenerationRequest, sent: dict[str, Any]) -> Any:
        fields = self._api.fields(sent, _UNNAMED)
        messages: list[Any] = sendable_messages(request)
        return await client.chat.completions.create(messages=messages, **fields)

    async def read(self, stream: Any) -> AsyncIterator[Chunk]:
        refused = complete = False
        async for event in stream:
            chunk = Chunk()
            for choice in (getattr(event, "choices", None) or [])[:1]:
                delta = choice.delta
                if delta is not None:
                    chunk.text = _text(delta, "content") or _text(delta, "refusal")
                    chunk.reasoning = _text(delta, "reasoning_content") or _text(delta, "reasoning")
                    refused = refused or bool(_text(delta, "refusal"))
                if choice.finish_reason is not None:
                    complete = True
                    chunk.finish_reason = "content_filter" if refused else str(choice.finish_reason)
            _add_counts(chunk, event, self._api.price)
            yield chunk
        if not complete:
            raise cut_short()

    def whole(self, reply: Any) -> Chunk:
        choices = getattr(reply, "choices", None)
        if not choices:
            raise self._api.not_the_protocol(reply)
        message = choices[0].message
        refusal = _text(message, "refusal")
        chunk = Chunk(
            text=_text(message, "content") or refusal,
            reasoning=_text(message, "reasoning_content") or _text(message, "reasoning"),
            finish_reason="content_filter" if refusal else choices[0].finish_reason,
            whole=True,
        )
        _add_counts(chunk, reply, self._api.price)
        return chunk


class _Responses:
    """The responses API; it keeps nothing of ours (``store = false``)."""

    def __init__(self, api: VendorClient, summary: str | None) -> None:
        self._api = api
        self._reasoning = given({"effort": api.effort, "summary": summary or None})

    def wanted(self, request: GenerationRequest) -> dict[str, Any]:
        sampling, schema = request.sampling, request.response_schema
        return given(
            {
                "max_output_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "seed": sampling.seed,
                "stop": list(sampling.stop) or None,
                "reasoning": self._reasoning or None,
                "text.format": None if schema is None else _text_format(schema),
                "store": False,
            }
        )

    async def ask(self, client: openai.AsyncOpenAI, request: GenerationRequest, sent: dict[str, Any]) -> Any:
        fields = self._api.fields(sent, _UNNAMED)
        messages: list[Any] = sendable_messages(request)
        if messages and messages[0]["role"] == "system":
            fields["instructions"] = messages.pop(0)["content"]
        return await client.responses.create(input=messages, **fields)

    async def read(self, stream: Any) -> AsyncIterator[Chunk]:
        refused = complete = False
        async for event in stream:
            kind = getattr(event, "type", None)
            if kind == "response.output_text.delta":
                yield Chunk(text=event.delta)
            elif kind == "response.refusal.delta":
                refused = True
                yield Chunk(text=event.delta)
            elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
                yield Chunk(reasoning=event.delta)
            elif kind in ("response.completed", "response.incomplete"):
                complete = True
                yield self._ending(event.response, refused)
            elif kind in ("response.failed", "error"):
                failed = getattr(event, "response", event)
                raise self._failure(getattr(failed, "error", None) or failed)
        if not complete:
            raise cut_short()

    def whole(self, reply: Any) -> Chunk:
        if not isinstance(getattr(reply, "output", None), list):
            raise self._api.not_the_protocol(reply)
        if getattr(reply, "status", None) == "failed":
            raise self._failure(reply.error)
        text: list[str] = []
        reasoning: list[str] = []
        refused = False
        for item in reply.output:
            for part in getattr(item, "content", None) or []:
                refused = refused or part.type == "refusal"
                target = reasoning if item.type == "reasoning" else text
                target.append(_text(part, "refusal") if part.type == "refusal" else _text(part, "text"))
            reasoning += [_text(part, "text") for part in getattr(item, "summary", None) or []]
        chunk = self._ending(reply, refused)
        chunk.text, chunk.reasoning, chunk.whole = "".join(text), "\n".join(reasoning), True
        return chunk

    def _ending(self, response: Any, refused: bool) -> Chunk:
        details = getattr(response, "incomplete_details", None)
        reason = getattr(details, "reason", None)
        chunk = Chunk(finish_reason=_INCOMPLETE.get(str(reason), "stop"))
        if refused:
            chunk.finish_reason = "content_filter"
        _add_counts(chunk, response, self._api.price)
        return chunk

    def _failure(self, error: Any) -> RequestError:
        body = {name: getattr(error, name, None) for name in ("code", "message", "type")}
        if body["type"] == "error":  # the event's own name, not the kind of error
            body["type"] = None
        return self._api.failure(_StreamedError(body))


class _StreamedError(Exception):
    """An error object that came within a stream of the responses API."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("message")))
        self.body = body


def _text_format(schema: dict[str, Any]) -> dict[str, Any]:
    """``text.format``: what chat calls ``response_format``, without its inner table."""
    return {"type": "json_schema", **response_format(schema)["json_schema"]}


def _add_counts(chunk: Chunk, reply: Any, price: Price | None) -> None:
    """The counts and the cost, where ``reply`` has them; the two APIs differ in the names."""
    usage = getattr(reply, "usage", None)
    if usage is None:
        return
    prompt = count(usage, "prompt_tokens", "input_tokens")
    completion = count(usage, "completion_tokens", "output_tokens")
    read = _details(usage, "prompt_tokens_details", "input_tokens_details")
    written = _details(usage, "completion_tokens_details", "output_tokens_details")
    cached = count(read, "cached_tokens")
    chunk.usage = Usage(prompt, completion, cached, count(written, "reasoning_tokens"))
    if price is not None:
        chunk.cost_usd = price.cost_usd(prompt, completion, cached, count(read, "cache_write_tokens"))


def _details(usage: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(usage, name, None)) is not None), None)


def _text(value: Any, name: str) -> str:
    text = getattr(value, name, None)
    return text if isinstance(text, str) else ""
