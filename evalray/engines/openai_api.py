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
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.arguments import check_args
from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.capabilities import ParameterFilter, find_capabilities
from evalray.engines.failures import one_line
from evalray.engines.pricing import PRICE_ARGS, Price, price_for
from evalray.engines.vendor_sdk import (
    CONNECT_SECONDS,
    check_effort,
    import_sdk,
    probe,
    read_key,
    request_error,
)
from evalray.errors import EngineStartError, RequestError
from evalray.types import GenerationRequest

if TYPE_CHECKING:
    import openai

VENDOR = "openai"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
_VENDOR_HOST = "api.openai.com"
_KNOWN_ARGS = (
    "api",
    "extra_body",
    "reasoning",
    "reasoning_effort",
    "reasoning_summary",
    "stream",
    *PRICE_ARGS,
)
#: Parameters that the SDK's methods do not name, and that therefore travel in ``extra_body``.
_UNNAMED = ("top_k",)
#: What the responses API has no field for, whatever the model.
_NOT_IN_RESPONSES = frozenset({"seed", "stop"})
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class OpenAIEngine(Engine):
    """One model of OpenAI's API, or of a server that imitates it at ``base_url``."""

    name: ClassVar[str] = "openai"
    default_concurrency: ClassVar[int] = 32
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset({"stream", *PRICE_ARGS})

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._client: openai.AsyncOpenAI | None = None
        self._key = self._variable = ""
        self._stream = True
        self._responses = False
        self._effort: str | None = None
        self._price: Price | None = None
        self._capabilities = find_capabilities(VENDOR, config.model)
        self._filter = ParameterFilter(self._capabilities)

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key,) if self._key else ()

    async def start(self) -> EngineInfo:
        self._read_config()
        self._key, self._variable = read_key(self.config, DEFAULT_KEY_VARIABLE)
        sdk = import_sdk("openai")
        client: openai.AsyncOpenAI = sdk.AsyncOpenAI(
            api_key=self._key,
            base_url=self.config.base_url,
            max_retries=0,
            timeout=sdk.Timeout(None, connect=CONNECT_SECONDS),
        )
        self._client = client
        try:
            known = await probe(
                lambda: client.models.retrieve(self.config.model),
                key=self._key,
                variable=self._variable,
                model=self.config.model,
                own_server=client.base_url.host != _VENDOR_HOST,
            )
        except BaseException:
            await self.close()
            raise
        price = self._price
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            version=f"openai {sdk.__version__}",
            max_concurrency=self.config.max_concurrency or self.default_concurrency,
            details={
                "base_url": f"{client.base_url.copy_with(userinfo=b'')}",
                "api": "responses" if self._responses else "chat",
                "stream": self._stream,
                "listed": known is not None,
                "price": None if price is None else {"as_of": price.as_of, "source": price.source},
            },
        )

    def _read_config(self) -> None:
        config, arguments = self.config, self.config.engine_args
        check_args(config, _KNOWN_ARGS)
        self._stream = arguments.get("stream", True)
        self._effort = check_effort(
            config.model, arguments.get("reasoning_effort"), self._capabilities.efforts
        )
        self._price = price_for(VENDOR, config.model, arguments)
        if "service_tier" in arguments.get("extra_body", {}) and "price_input_per_mtok" not in arguments:
            self._price = None  # Prices are those of the standard tier.
        api = arguments.get("api", self._capabilities.api)
        if api not in ("responses", "chat"):
            raise EngineStartError(f'engine_args.api = {api!r}: write "responses" or "chat"')
        if api == "chat" and self._capabilities.responses_only:
            raise EngineStartError(
                f'model {config.model} is served by the responses API only: drop engine_args.api = "chat"'
            )
        self._responses = api == "responses"
        capabilities = self._capabilities
        if self._responses:
            capabilities = replace(capabilities, refuses=capabilities.refuses | _NOT_IN_RESPONSES)
        self._filter = ParameterFilter(capabilities, effort=self._effort)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        client = self._client
        if client is None:
            raise RequestError("connection", "the engine is closed")
        reply = None
        while reply is None:
            sent, left_out = self._filter.select(self._wanted(request))
            try:
                reply = await self._ask(client, request, sent)
            except Exception as error:
                failure = request_error(error, self._key, self._variable)
                learnt = self._filter.learn(
                    getattr(error, "status_code", None), str(failure), getattr(error, "param", None), sent
                )
                if not learnt:
                    raise failure from error
        yield Chunk(request_params=sent | ({"not_sent": left_out} if left_out else {}))
        read = self._read_responses if self._responses else self._read_chat
        if not self._stream:
            yield (self._whole_response if self._responses else self._whole_chat)(reply)
            return
        try:
            async for chunk in read(reply):
                yield chunk
        except RequestError:
            raise
        except Exception as error:
            raise request_error(error, self._key, self._variable, streaming=True) from error
        finally:
            await reply.close()

    def _wanted(self, request: GenerationRequest) -> dict[str, Any]:
        """The parameters of a request by the API's names; messages and model apart."""
        sampling = request.sampling
        name = "max_output_tokens" if self._responses else self._capabilities.max_tokens_name
        wanted: dict[str, Any] = {name: sampling.max_tokens, "temperature": sampling.temperature}
        optional = {
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
        }
        wanted |= {key: value for key, value in optional.items() if value is not None}
        summary = self.config.engine_args.get("reasoning_summary")
        if self._responses:
            reasoning = {"effort": self._effort, "summary": summary}
            if any(reasoning.values()):
                wanted["reasoning"] = {key: value for key, value in reasoning.items() if value}
            wanted["store"] = False
        else:
            if self._effort is not None:
                wanted["reasoning_effort"] = self._effort
            if self._stream:
                wanted["stream_options"] = {"include_usage": True}
        return wanted

    async def _ask(self, client: openai.AsyncOpenAI, request: GenerationRequest, sent: dict[str, Any]) -> Any:
        extra = {name: sent[name] for name in _UNNAMED if name in sent}
        extra |= self.config.engine_args.get("extra_body", {})
        named: dict[str, Any] = {name: value for name, value in sent.items() if name not in extra}
        messages: list[Any] = [_without_lone_surrogates(message) for message in request.messages]
        if not self._responses:
            return await client.chat.completions.create(
                model=self.config.model, messages=messages, stream=self._stream, extra_body=extra, **named
            )
        if messages and messages[0]["role"] == "system":
            named["instructions"] = messages.pop(0)["content"]
        return await client.responses.create(
            model=self.config.model, input=messages, stream=self._stream, extra_body=extra, **named
        )

    # -- chat completions --

    async def _read_chat(self, stream: Any) -> AsyncIterator[Chunk]:
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
            self._count(chunk, getattr(event, "usage", None))
            yield chunk
        if not complete:
            raise RequestError("bad_response", "the stream ended before the reply did", retryable=True)

    def _whole_chat(self, reply: Any) -> Chunk:
        choices = getattr(reply, "choices", None)
        if not choices:
            raise _not_the_protocol(reply)
        message = choices[0].message
        refusal = _text(message, "refusal")
        chunk = Chunk(
            text=_text(message, "content") or refusal,
            reasoning=_text(message, "reasoning_content") or _text(message, "reasoning"),
            finish_reason="content_filter" if refusal else choices[0].finish_reason,
            whole=True,
        )
        self._count(chunk, getattr(reply, "usage", None))
        return chunk

    # -- responses --

    async def _read_responses(self, stream: Any) -> AsyncIterator[Chunk]:
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
            raise RequestError("bad_response", "the stream ended before the reply did", retryable=True)

    def _whole_response(self, reply: Any) -> Chunk:
        if not isinstance(getattr(reply, "output", None), list):
            raise _not_the_protocol(reply)
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
        self._count(chunk, getattr(response, "usage", None))
        return chunk

    def _failure(self, error: Any) -> RequestError:
        body = {name: getattr(error, name, None) for name in ("code", "message", "type")}
        if body["type"] == "error":  # the event's own name, not the kind of error
            body["type"] = None
        return request_error(_StreamedError(body), self._key, self._variable)

    # -- both --

    def _count(self, chunk: Chunk, usage: Any) -> None:
        if usage is None:
            return
        prompt = _number(usage, "prompt_tokens", "input_tokens")
        completion = _number(usage, "completion_tokens", "output_tokens")
        read = _details(usage, "prompt_tokens_details", "input_tokens_details")
        written = _details(usage, "completion_tokens_details", "output_tokens_details")
        cached = _number(read, "cached_tokens")
        chunk.usage = Usage(prompt, completion, cached, _number(written, "reasoning_tokens"))
        if self._price is not None:
            chunk.cost_usd = self._price.cost_usd(
                prompt, completion, cached, _number(read, "cache_write_tokens")
            )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _StreamedError(Exception):
    """An error object that came within a stream of the responses API."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("message")))
        self.body = body


def _text(value: Any, name: str) -> str:
    text = getattr(value, name, None)
    return text if isinstance(text, str) else ""


def _number(value: Any, *names: str) -> int | None:
    for name in names:
        number = getattr(value, name, None)
        if type(number) is int and number >= 0:
            return number
    return None


def _details(usage: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(usage, name, None)) is not None), None)


def _without_lone_surrogates(message: dict[str, str]) -> dict[str, str]:
    return {key: value.encode("utf-8", "replace").decode() for key, value in message.items()}


def _not_the_protocol(reply: Any) -> RequestError:
    return RequestError(
        "bad_response", f"not a reply of the API: {one_line(str(reply)[:300])}", retryable=True
    )
