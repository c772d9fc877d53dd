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
    import anthropic

VENDOR = "anthropic"
DEFAULT_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_VENDOR_HOST = "api.anthropic.com"
_MIN_THINKING_BUDGET = 1024
_KNOWN_ARGS = (
    "extra_body",
    "reasoning",
    "reasoning_effort",
    "stream",
    "thinking",
    "thinking_budget",
    *PRICE_ARGS,
)
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
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
    default_concurrency: ClassVar[int] = 16
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset({"stream", *PRICE_ARGS})

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._client: anthropic.AsyncAnthropic | None = None
        self._key = self._variable = ""
        self._stream = True
        self._thinking: dict[str, Any] | None = None
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
        sdk = import_sdk("anthropic")
        base_url = self.config.base_url
        if base_url is not None:  # the SDK appends /v1/messages
            base_url = base_url.rstrip("/").removesuffix("/v1")
        client: anthropic.AsyncAnthropic = sdk.AsyncAnthropic(
            api_key=self._key,
            base_url=base_url,
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
        price, context = self._price, getattr(known, "max_input_tokens", None)
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            version=f"anthropic {sdk.__version__}",
            max_concurrency=self.config.max_concurrency or self.default_concurrency,
            context_tokens=context if isinstance(context, int) else None,
            details={
                "base_url": f"{client.base_url.copy_with(userinfo=b'')}",
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
        self._thinking = self._thinking_asked_for()
        self._price = price_for(VENDOR, config.model, arguments)
        if {"speed", "inference_geo"} & arguments.get("extra_body", {}).keys():
            self._price = self._price if "price_input_per_mtok" in arguments else None

    def _thinking_asked_for(self) -> dict[str, Any] | None:
        arguments, kinds = self.config.engine_args, self._capabilities.thinking
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

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        client = self._client
        if client is None:
            raise RequestError("connection", "the engine is closed")
        budget = (self._thinking or {}).get("budget_tokens")
        if budget is not None and budget >= request.sampling.max_tokens:
            raise RequestError(
                "bad_request",
                f"thinking_budget {budget} leaves nothing of max_tokens {request.sampling.max_tokens}: raise max_tokens",
            )
        reply = None
        while reply is None:
            sent, left_out = self._filter.select(self._wanted(request))
            if self._thinks:
                left_out = sorted({*left_out, *(_SAMPLING & sent.keys())})
                sent = {name: value for name, value in sent.items() if name not in _SAMPLING}
            try:
                reply = await self._ask(client, request, sent)
            except Exception as error:
                failure = request_error(error, self._key, self._variable)
                if not self._filter.learn(getattr(error, "status_code", None), str(failure), None, sent):
                    raise failure from error
        yield Chunk(request_params=sent | ({"not_sent": left_out} if left_out else {}))
        if not self._stream:
            yield self._whole(reply)
            return
        try:
            async for chunk in self._read(reply):
                yield chunk
        except RequestError:
            raise
        except Exception as error:
            raise request_error(error, self._key, self._variable, streaming=True) from error
        finally:
            await reply.close()

    @property
    def _thinks(self) -> bool:
        """Whether thinking was asked for, with which no sampling parameter goes."""
        return self._thinking is not None and self._thinking["type"] != "disabled"

    def _wanted(self, request: GenerationRequest) -> dict[str, Any]:
        sampling = request.sampling
        wanted: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        optional = {
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
            # The API refuses stop sequences of white space alone.
            "stop_sequences": [stop for stop in sampling.stop if stop.strip()] or None,
            "thinking": self._thinking,
            "output_config": None if self._effort is None else {"effort": self._effort},
        }
        return wanted | {key: value for key, value in optional.items() if value is not None}

    async def _ask(
        self, client: anthropic.AsyncAnthropic, request: GenerationRequest, sent: dict[str, Any]
    ) -> Any:
        # The SDK's method no longer names the sampling parameters, and never had a seed.
        sampling = {name: sent[name] for name in sent if name in _SAMPLING or name == "seed"}
        named: dict[str, Any] = {name: value for name, value in sent.items() if name not in sampling}
        version = self._capabilities.sampling_api_version
        headers = {"anthropic-version": version} if sampling and version else None
        messages = [
            {key: value.encode("utf-8", "replace").decode() for key, value in message.items()}
            for message in request.messages
        ]
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        if system:
            named["system"] = system
        turns: list[Any] = [message for message in messages if message["role"] != "system"]
        return await client.messages.create(
            model=self.config.model,
            messages=turns,
            stream=self._stream,
            extra_headers=headers,
            extra_body=sampling | self.config.engine_args.get("extra_body", {}),
            **named,
        )

    async def _read(self, stream: Any) -> AsyncIterator[Chunk]:
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
            raise RequestError("bad_response", "the stream ended before the reply did", retryable=True)

    def _whole(self, reply: Any) -> Chunk:
        if not isinstance(getattr(reply, "content", None), list):
            shown = one_line(str(reply)[:300], self._key)
            raise RequestError("bad_response", f"not a reply of the API: {shown}", retryable=True)
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
        if self._price is not None:
            chunk.cost_usd = self._price.cost_usd(prompt, completion, cached, written)
        return chunk

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _collect(counts: dict[str, int], usage: Any) -> None:
    """The counts of an event; later events of a stream carry the cumulative ones."""
    for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        value = getattr(usage, name, None)
        if type(value) is int and value >= 0:
            counts[name] = value
    thinking = getattr(getattr(usage, "output_tokens_details", None), "thinking_tokens", None)
    if type(thinking) is int and thinking >= 0:
        counts["thinking_tokens"] = thinking
