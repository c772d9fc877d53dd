"""Ollama through its own API, ``/api/chat``: the context is set, and a shortened prompt is an error.

Ollama by itself cuts a prompt that is too long and answers all the same.  Here ``num_ctx`` is always
sent, with ``truncate`` and ``shift`` off, which makes a server that knows them refuse such a prompt.
Older servers do not, so ``prompt_eval_count`` is checked too: see :func:`~evalray.engines.prompt_length.is_shortened`.

``engine_args``: ``launch`` (start ``ollama serve`` here, on the GPUs assigned to this actor), ``pull``
(fetch a missing model first) with ``pull_timeout_seconds``, ``num_ctx`` (default: the deployment's
context), ``keep_alive``, ``think`` (true, false, or a level), ``options`` (any further ones), ``stream``,
``reasoning``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.arguments import check_args
from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage
from evalray.engines.chat_protocol import decode_json, encode_body
from evalray.engines.failures import error_from_body, error_from_client, one_line
from evalray.engines.figures import count_of
from evalray.engines.http_body import MAX_ERROR_BYTES, read_body, refuse_redirect
from evalray.engines.launch import LaunchedServer, free_port
from evalray.engines.masking import shown_url, url_secrets
from evalray.engines.prompt_length import expected_tokens, is_shortened
from evalray.engines.sse import MAX_EVENT_BYTES
from evalray.errors import EngineDied, EngineStartError, RequestError
from evalray.types import GenerationRequest

if TYPE_CHECKING:
    import aiohttp

DEFAULT_URL = "http://localhost:11434"
_DEFAULT_NUM_CTX = 4096
_CONNECT_SECONDS = 20.0
_REACH_SECONDS = 10.0
_ASK_SECONDS = 30.0
_PULL_SECONDS = 3600.0
_KNOWN_ARGS = (
    "keep_alive",
    "launch",
    "num_ctx",
    "options",
    "pull",
    "pull_timeout_seconds",
    "reasoning",
    "stream",
    "think",
)
_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


class OllamaEngine(Engine):
    """One model of an Ollama server: one that runs already, or one that this engine starts."""

    name: ClassVar[str] = "ollama"
    argument_names: ClassVar[frozenset[str]] = frozenset(_KNOWN_ARGS)
    default_concurrency: ClassVar[int] = 4
    context_advice: ClassVar[str] = (
        "raise engine_args.context_tokens, up to the model's own context, or shorten the prompt"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset(
        {"keep_alive", "launch", "pull", "pull_timeout_seconds", "stream"}
    )

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._concurrency = config.max_concurrency or self.default_concurrency
        self._session: aiohttp.ClientSession | None = None
        self._server: LaunchedServer | None = None
        self._base = self._shown = DEFAULT_URL
        self._secrets = url_secrets(config.base_url)
        self._num_ctx = _DEFAULT_NUM_CTX
        self._stream = True

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def start(self) -> EngineInfo:
        import aiohttp

        self._read_config()
        try:
            if self.config.engine_args.get("launch"):
                await self._launch()
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency + 1, keepalive_timeout=30.0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                headers={"Content-Type": "application/json"},
                trust_env=False,
            )
            version = await self._reach()
            details = await self._model()
        except BaseException:
            await self.close()
            raise
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            version=version,
            max_concurrency=self._concurrency,
            context_tokens=self._num_ctx,
            details={"base_url": self._shown, "launched": self._server is not None, **details},
        )

    def _read_config(self) -> None:
        config, arguments = self.config, self.config.engine_args
        check_args(config, _KNOWN_ARGS)
        if arguments.get("launch") and config.base_url:
            raise EngineStartError("launch = true starts a server of its own: drop base_url")
        num_ctx = arguments.get("num_ctx", config.context_tokens or _DEFAULT_NUM_CTX)
        if not isinstance(num_ctx, int) or isinstance(num_ctx, bool) or num_ctx < 1:
            raise EngineStartError("engine_args.num_ctx must be a number of tokens")
        think = arguments.get("think")
        if think is not None and not isinstance(think, bool | str):
            raise EngineStartError('engine_args.think must be true, false or a level such as "low"')
        self._num_ctx = num_ctx
        self._stream = arguments.get("stream", True)
        self._base = (config.base_url or DEFAULT_URL).rstrip("/").removesuffix("/v1").removesuffix("/api")
        self._shown = shown_url(self._base)

    async def _launch(self) -> None:
        address = f"127.0.0.1:{free_port()}"
        environment = {"OLLAMA_HOST": address, "OLLAMA_NUM_PARALLEL": str(self._concurrency)}
        self._server = LaunchedServer.start(["ollama", "serve"], environment)
        self._base = self._shown = f"http://{address}"
        await self._server.wait_healthy(f"{self._base}/api/version", self.config.start_timeout_seconds)

    async def _reach(self) -> str:
        """The server's version; raises :class:`EngineStartError` where nothing answers."""
        began = time.monotonic()
        while True:
            try:
                status, body = await self._call("GET", "/api/version")
                if status == 200 and isinstance(body, dict):
                    return str(body.get("version", ""))
                raise EngineStartError(
                    f"{self._shown} answers, but not as Ollama does (HTTP {status}): correct base_url"
                )
            except RequestError as error:
                if not error.retryable or time.monotonic() - began >= min(
                    _REACH_SECONDS, self.config.start_timeout_seconds
                ):
                    raise EngineStartError(
                        f"no Ollama at {self._shown}: {error}: start it with 'ollama serve', correct base_url, "
                        "or set engine_args.launch = true"
                    ) from None
            await asyncio.sleep(0.25)

    async def _model(self) -> dict[str, Any]:
        """What the server knows of the model; fetches it first where that is asked for."""
        model = self.config.model
        status, shown = await self._ask_about(model)
        if status == 404 and self.config.engine_args.get("pull"):
            await self._pull()
            status, shown = await self._ask_about(model)
        if status == 404:
            raise EngineStartError(
                f"Ollama at {self._shown} has no model {model!r}: run 'ollama pull {model}', "
                "or set engine_args.pull = true"
            )
        if status != 200 or not isinstance(shown, dict):
            raise EngineStartError(
                f"Ollama says of {model!r}: {error_from_body(status, shown, secrets=self._secrets)}"
            )
        facts = shown.get("model_info") or {}
        longest = next(
            (
                value
                for key, value in facts.items()
                if key.endswith(".context_length") and isinstance(value, int)
            ),
            None,
        )
        if longest is not None and longest < self._num_ctx:
            self._num_ctx = longest
        if (
            "thinking" in (shown.get("capabilities") or ())
            and self.config.engine_args.get("think") is not False
        ):
            self.reasons = True
        details = shown.get("details") or {}
        known = ("family", "parameter_size", "quantization_level", "format")
        return {
            "num_ctx": self._num_ctx,
            "model_context": longest,
            **{key: one_line(str(details[key]), self._secrets) for key in known if details.get(key)},
        }

    async def _ask_about(self, model: str) -> tuple[int, Any]:
        try:
            return await self._call("POST", "/api/show", {"model": model})
        except RequestError as error:
            raise EngineStartError(f"Ollama at {self._shown} does not answer: {error}") from None

    async def _pull(self) -> None:
        """Fetch the model.  Raises :class:`EngineStartError` past its deadline, or with what went wrong."""
        model, progress = self.config.model, "nothing yet"
        seconds = float(self.config.engine_args.get("pull_timeout_seconds", _PULL_SECONDS))
        try:
            async with asyncio.timeout(seconds):
                async for line in self._lines("/api/pull", {"model": model, "stream": True}):
                    if line.get("error"):
                        raise EngineStartError(
                            f"ollama pull {model}: {one_line(str(line['error']), self._secrets)}"
                        )
                    done, total = line.get("completed"), line.get("total")
                    progress = one_line(str(line.get("status", "")), self._secrets)
                    if isinstance(done, int) and isinstance(total, int) and total:
                        progress += f" {100 * done // total} %"
                    if line.get("status") == "success":
                        return
        except TimeoutError:
            raise EngineStartError(
                f"ollama pull {model} was not done within {seconds:g} s ({progress}): "
                "raise engine_args.pull_timeout_seconds"
            ) from None
        except RequestError as error:
            raise EngineStartError(f"ollama pull {model}: {error} ({progress})") from None
        raise EngineStartError(f"ollama pull {model} ended early ({progress})")

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        body = self._body(request)
        yield Chunk(request_params=body["options"] | ({"think": body["think"]} if "think" in body else {}))
        complete = False
        try:
            async with aclosing(self._lines("/api/chat", body)) as lines:
                async for line in lines:
                    if "error" in line:
                        raise error_from_body(_status(line), line, secrets=self._secrets)
                    complete = complete or line.get("done") is True
                    yield self._chunk(line, request)
        except RequestError as error:
            raise await self._explained(error, request) from None
        if not complete:
            raise await self._explained(
                RequestError("bad_response", "the stream ended before the reply did", retryable=True), request
            )

    def _body(self, request: GenerationRequest) -> dict[str, Any]:
        sampling, arguments = request.sampling, self.config.engine_args
        options: dict[str, Any] = {
            "num_ctx": self._num_ctx,
            "num_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
        }
        optional = {
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
        }
        options |= {key: value for key, value in optional.items() if value is not None}
        body = {
            "model": self.config.model,
            "messages": request.messages,
            "stream": self._stream,
            "truncate": False,
            "shift": False,
            "options": options | arguments.get("options", {}),
        }
        for name in ("keep_alive", "think"):
            if name in arguments:
                body[name] = arguments[name]
        if request.response_schema is not None:
            body["format"] = request.response_schema
        return body

    def _chunk(self, line: dict[str, Any], request: GenerationRequest) -> Chunk:
        message = line.get("message") or {}
        if not isinstance(message, dict):
            raise _not_the_protocol(line, self._secrets)
        chunk = Chunk(
            text=_text(message.get("content")),
            reasoning=_text(message.get("thinking")),
            whole=not self._stream,
        )
        if line.get("done") is not True:
            return chunk
        chunk.finish_reason = "length" if line.get("done_reason") == "length" else "stop"
        prompt, completion = count_of(line.get("prompt_eval_count")), count_of(line.get("eval_count"))
        expected = expected_tokens(request)
        if prompt is not None and is_shortened(prompt, expected, self._num_ctx):
            raise RequestError(
                "context_length",
                f"the server kept {prompt} tokens of a prompt of about {expected}; num_ctx is {self._num_ctx}",
            )
        if prompt is not None and prompt < expected / 4:
            prompt = None  # An older server counts only what its prompt cache did not hold.
        chunk.usage = Usage(prompt_tokens=prompt, completion_tokens=completion)
        chunk.timings = {
            f"{name}_seconds": line[name] / 1e9 for name in _DURATIONS if count_of(line.get(name)) is not None
        }
        return chunk

    async def _explained(self, error: RequestError, request: GenerationRequest) -> Exception:
        """The error with what the user can do; the engine's death where the launched server is gone."""
        if self._server is not None and await self._server.died(error):
            return EngineDied(f"ollama serve ended; it printed: {self._server.log_tail()}")
        if error.kind == "context_length" and "num_ctx" not in str(error):
            counts = f"prompt of about {expected_tokens(request)} tokens, num_ctx {self._num_ctx}"
            error.args = (f"{error} ({counts})",)
        if error.kind == "not_found":
            error.args = (f"{error}: run 'ollama pull {self.config.model}', or set engine_args.pull = true",)
        return error

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """One short question.  Raises :class:`RequestError` where no answer comes."""
        import aiohttp

        assert self._session is not None
        try:
            async with (
                asyncio.timeout(_ASK_SECONDS),
                self._session.request(
                    method,
                    f"{self._base}{path}",
                    data=None if body is None else encode_body(body),
                    allow_redirects=False,
                ) as response,
            ):
                refuse_redirect(response, self._secrets)
                text = (await read_body(response)).decode("utf-8", "replace")
                try:
                    return response.status, decode_json(text, self._secrets)
                except RequestError:
                    return response.status, text
        except TimeoutError:
            raise RequestError("timeout", f"no answer within {_ASK_SECONDS:g} s", retryable=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise error_from_client(error, self._secrets) or error from error

    async def _lines(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The objects of a reply, one a line.  Raises :class:`RequestError`."""
        import aiohttp

        if self._session is None:
            raise RequestError("connection", "the engine is closed")
        try:
            async with self._session.post(
                f"{self._base}{path}", data=encode_body(body), allow_redirects=False
            ) as response:
                if response.status != 200:
                    refuse_redirect(response, self._secrets)
                    text = (await read_body(response, MAX_ERROR_BYTES)).decode("utf-8", "replace")
                    raise error_from_body(response.status, _parsed(text), secrets=self._secrets)
                rest = bytearray()
                async for piece in response.content.iter_any():
                    rest += piece
                    if b"\n" in piece:
                        *lines, rest = rest.split(b"\n")
                        for line in lines:
                            if line.strip():
                                yield _object(line, self._secrets)
                    if len(rest) > MAX_EVENT_BYTES:
                        raise RequestError("bad_response", f"a line of over {MAX_EVENT_BYTES >> 20} MiB")
                if rest.strip():
                    yield _object(rest, self._secrets)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise error_from_client(error, self._secrets) or error from error

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        server, self._server = self._server, None
        if server is not None:
            await server.close()


def _object(line: bytes | bytearray, secrets: tuple[str, ...]) -> dict[str, Any]:
    value = decode_json(bytes(line), secrets)
    if not isinstance(value, dict):
        raise _not_the_protocol(value, secrets)
    return value


def _not_the_protocol(value: Any, secrets: tuple[str, ...]) -> RequestError:
    shown = one_line(str(value), secrets, limit=300)
    return RequestError("bad_response", f"not Ollama's chat: {shown}", retryable=True)


def _parsed(text: str) -> Any:
    try:
        return decode_json(text)
    except RequestError:
        return text


def _status(line: dict[str, Any]) -> int | None:
    status = line.get("status")
    return status if isinstance(status, int) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
