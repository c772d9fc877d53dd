"""Any server with an OpenAI-style ``/chat/completions``: vLLM, llama-server, SGLang, a gateway.

``base_url`` is used as given (``http://host:8000/v1``); ``/chat/completions`` and ``/models`` are
appended.  The key, if the server asks for one, is read from the environment variable that
``api_key_env`` names when the engine starts, and appears in no message.

``engine_args``: ``stream`` (default true), ``reasoning`` (the model writes reasoning),
``extra_body`` (merged last into every request body, e.g. ``{min_p = 0.05}``).
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo
from evalray.engines.chat_protocol import (
    chat_body,
    decode_json,
    encode_body,
    has_choice,
    parse_chunk,
    parse_completion,
    response_format,
)
from evalray.engines.failures import (
    connection_text,
    error_from_body,
    error_from_client,
    names_schema,
    one_line,
    parse_retry_after,
)
from evalray.engines.http_body import MAX_ERROR_BYTES, read_body, refuse_redirect
from evalray.engines.masking import shown_url, url_secrets
from evalray.engines.sse import EventParser
from evalray.errors import EngineStartError, RequestError
from evalray.types import GenerationRequest

if TYPE_CHECKING:
    import aiohttp

_CONNECT_SECONDS = 20.0
_PROBE_SECONDS = 5.0
_REFUSED_FOR_SECONDS = 10.0
"""How long a server may refuse connections before the start is given up."""
_LOADING_FOR_SECONDS = 60.0
"""How long a server may say 503, as one that loads its model does."""
_LINGER_SECONDS = 2.0
"""How long the end of a body may stay out after ``[DONE]`` before its connection is dropped."""
_HEAD_BYTES = 8192
"""How much of a body without events is kept, for a message that shows far less of it."""
_KNOWN_ARGS = ("extra_body", "reasoning", "stream")


class OpenAICompatibleEngine(Engine):
    """A server that speaks the OpenAI chat-completions protocol, at ``base_url``."""

    name: ClassVar[str] = "openai-compatible"
    argument_names: ClassVar[frozenset[str]] = frozenset(_KNOWN_ARGS)
    default_concurrency: ClassVar[int] = 32
    context_advice: ClassVar[str] = (
        "shorten the prompt, lower max_tokens or start the server with a larger context "
        "(llama-server --ctx-size, vllm serve --max-model-len)"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset({"stream"})

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._concurrency = config.max_concurrency or self.default_concurrency
        self._session: aiohttp.ClientSession | None = None
        self._url: Any = None
        self._headers: dict[str, str] = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, */*",
        }
        self._secrets = url_secrets(config.base_url)
        self._proxy: str | None = None
        self._stream = True
        self._extra_body: dict[str, Any] = {}
        # Learnt from a server that refuses them.
        self._sends_stream_options = True
        self._max_tokens_name = "max_tokens"
        self._sends_schema = True

    async def start(self) -> EngineInfo:
        base_url = self._read_config()
        import aiohttp
        import yarl

        self._url = yarl.URL(_endpoint(base_url, "chat/completions"))
        self._proxy = _proxy_for(base_url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._concurrency, keepalive_timeout=30.0, ttl_dns_cache=300
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        try:
            details = await self._probe(base_url)
        except BaseException:
            await self.close()
            raise
        context = details.pop("context_tokens", None)
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            max_concurrency=self._concurrency,
            context_tokens=context,
            details={"base_url": shown_url(base_url), "stream": self._stream, **details},
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    def _read_config(self) -> str:
        """Check the settings; the base URL without its trailing slash."""
        config, arguments = self.config, self.config.engine_args
        unknown = sorted(set(arguments) - set(_KNOWN_ARGS))
        if unknown:
            raise EngineStartError(
                f"engine_args: unknown {', '.join(unknown)}; known: {', '.join(_KNOWN_ARGS)}"
            )
        for key in ("stream", "reasoning"):
            if not isinstance(arguments.get(key, True), bool):
                raise EngineStartError(f"engine_args.{key} must be true or false")
        self._stream = arguments.get("stream", True)
        self._extra_body = arguments.get("extra_body", {})
        if not isinstance(self._extra_body, dict):
            raise EngineStartError("engine_args.extra_body must be a table of request fields")
        try:
            encode_body(self._extra_body)
        except (TypeError, ValueError) as error:
            raise EngineStartError(f"engine_args.extra_body cannot be sent as JSON: {error}") from None
        if not config.base_url:
            raise EngineStartError(
                f'model {config.model!r}: base_url is missing: set it, e.g. base_url = "http://localhost:8000/v1"'
            )
        if not config.base_url.lower().startswith(("http://", "https://")):
            raise EngineStartError(
                f"base_url {shown_url(config.base_url)!r} must start with http:// or https://"
            )
        if config.api_key_env:
            key = os.environ.get(config.api_key_env, "").strip()
            if not key:
                raise EngineStartError(
                    f"environment variable {config.api_key_env} (api_key_env) is not set here"
                )
            if not (key.isascii() and key.isprintable()):
                raise EngineStartError(
                    f"the key in {config.api_key_env} holds characters that no header takes"
                )
            self._headers["Authorization"] = f"Bearer {key}"
            self._secrets = (key, *self._secrets)
        return config.base_url.rstrip("/")

    async def _probe(self, base_url: str) -> dict[str, Any]:
        """Wait until the server answers ``GET /models``; what it lists is only taken note of."""
        import aiohttp

        assert self._session is not None
        shown = shown_url(base_url)
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            limit = _REFUSED_FOR_SECONDS
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    async with self._session.get(
                        _endpoint(base_url, "models"), proxy=self._proxy, allow_redirects=False
                    ) as response:
                        status, body = response.status, await read_body(response)
                if status in (401, 403):
                    raise EngineStartError(self._key_message(shown, status))
                if status != 503:
                    return self._listed(body if status == 200 else b"")
                if waited >= min(_LOADING_FOR_SECONDS, self.config.start_timeout_seconds):
                    return {}
                limit, problem = _LOADING_FOR_SECONDS, "is still loading"
            except RequestError:
                return {}  # a list beyond all bounds
            except TimeoutError:
                problem = "accepts connections but does not answer"
            except (aiohttp.ClientError, OSError, ValueError) as error:
                problem = f"cannot be reached ({connection_text(error, self._secrets)})"
            if waited >= min(limit, self.config.start_timeout_seconds):
                raise EngineStartError(f"server {shown} {problem}: start it, or correct base_url")
            await asyncio.sleep(0.25)

    def _listed(self, body: bytes) -> dict[str, Any]:
        """Whether the server lists the model, and its context if it says so (vLLM does)."""
        try:
            entries = decode_json(body)["data"]
            names = {entry["id"]: entry for entry in entries}
        except (RequestError, KeyError, TypeError):
            return {}
        entry = names.get(self.config.model)
        if entry is None:
            shown = [one_line(str(name), self._secrets) for name in list(names)[:10]]
            return {"listed": False, "models": shown}
        context = entry.get("max_model_len")
        return {"listed": True, **({"context_tokens": context} if isinstance(context, int) else {})}

    def _key_message(self, shown: str, status: int) -> str:
        variable = self.config.api_key_env
        if variable:
            return f"server {shown} refuses the key in {variable} (HTTP {status}): check api_key_env and its value"
        return (
            f"server {shown} asks for a key (HTTP {status}): name the variable that holds it in api_key_env"
        )

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        import aiohttp

        if self._session is None:
            raise RequestError("connection", "the engine is closed")
        try:
            while True:
                with_schema = self._sends_schema and request.response_schema is not None
                async with self._session.post(
                    self._url, data=self._body(request), proxy=self._proxy, allow_redirects=False
                ) as response:
                    if response.status == 200:
                        if _is_whole(response, self._stream):
                            yield self._completion(await read_body(response))
                        else:
                            async for chunk in self._read_stream(response):
                                yield chunk
                        return
                    error = await self._failure(response)
                    if with_schema and error.kind == "bad_request" and names_schema(str(error)):
                        self._sends_schema = False
                    elif not self._adapt(error):
                        raise error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise error_from_client(error, self._secrets) or error from error

    def _body(self, request: GenerationRequest) -> bytes:
        body = chat_body(self.config.model, request)
        if self._stream:
            body["stream"] = True
            if self._sends_stream_options:
                body["stream_options"] = {"include_usage": True}
        if request.response_schema is not None and self._sends_schema:
            body["response_format"] = response_format(request.response_schema)
        if self._max_tokens_name != "max_tokens":
            body[self._max_tokens_name] = body.pop("max_tokens")
        if self._extra_body:
            body.update(self._extra_body)
        return encode_body(body)

    def _completion(self, body: bytes) -> Chunk:
        return parse_completion(decode_json(body, self._secrets), self._secrets)

    async def _read_stream(self, response: aiohttp.ClientResponse) -> AsyncIterator[Chunk]:
        """The events of a stream, or the one object that some servers send in its place, under any type."""
        parser = EventParser()
        content = response.content
        complete, answered, events, head = False, False, 0, b""
        ended = False
        while not ended:
            piece = await content.readany()
            ended = not piece
            if not events:
                head = head if len(head) >= _HEAD_BYTES else head + piece
                if head.lstrip()[:1] == b"{":  # no line of a stream of events begins so
                    yield self._completion(piece + await read_body(response))
                    return
            for payload in parser.finish() if ended else parser.feed(piece):
                events += 1
                if payload == b"[DONE]":
                    complete = ended = True
                    continue
                event = decode_json(payload, self._secrets)
                answered = answered or has_choice(event)
                chunk = parse_chunk(event, self._secrets)
                if chunk is not None:
                    complete = complete or chunk.finish_reason is not None
                    yield chunk
        if answered and complete:
            await _drain(response)
            return
        if not events:
            shown = one_line(head.decode("utf-8", "replace"), self._secrets, limit=200)
            what = f"not a chat-completions reply: {shown!r}"
        elif not complete:
            what = "the stream ended before the reply did"
        else:
            what = "the stream ended without a reply: none of its events had a choice"
        raise RequestError("bad_response", what, retryable=True)

    async def _failure(self, response: aiohttp.ClientResponse) -> RequestError:
        status = response.status
        refuse_redirect(response, self._secrets)
        text = (await read_body(response, MAX_ERROR_BYTES)).decode("utf-8", "replace")
        try:
            body = decode_json(text)
        except RequestError:
            body = text
        retry_after = parse_retry_after(response.headers.get("Retry-After"))
        error = error_from_body(status, body, secrets=self._secrets, retry_after_seconds=retry_after)
        if error.kind == "auth" and status != 402:
            error.args = (f"{error}; {self._key_message(shown_url(str(self._url)), status)}",)
        elif error.kind == "not_found":
            error.args = (f"{error}; check base_url (does it lack /v1?) and the model's name",)
        return error

    def _adapt(self, error: RequestError) -> bool:
        """Drop a field that this server refuses; true where the request is worth another try."""
        if error.kind != "bad_request":
            return False
        text = str(error)
        if (
            self._sends_stream_options
            and self._stream
            and ("stream_options" in text or "include_usage" in text)
        ):
            self._sends_stream_options = False
            return True
        if self._max_tokens_name == "max_tokens" and "max_completion_tokens" in text:
            self._max_tokens_name = "max_completion_tokens"
            return True
        return False

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _is_whole(response: aiohttp.ClientResponse, asked_to_stream: bool) -> bool:
    """Whether the reply is one object: servers that cannot stream send one all the same."""
    kind = response.content_type
    return kind == "application/json" or (not asked_to_stream and kind != "text/event-stream")


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Take the end of the body, without which the connection cannot be used again."""
    if response.content.at_eof():
        return
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while await response.content.readany():
                pass
    except TimeoutError:
        response.close()


def _proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for this server, looked up once; none for this machine itself."""
    parts = urllib.parse.urlsplit(base_url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _endpoint(base_url: str, name: str) -> str:
    """``base_url`` with ``name`` added to its path; a query (an API version, say) stays behind it."""
    parts = urllib.parse.urlsplit(base_url)
    return urllib.parse.urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))
