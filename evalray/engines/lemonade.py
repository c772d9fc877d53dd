"""Lemonade Server: the OpenAI protocol under ``/api/v1``, with its health and statistics endpoints.

Without ``base_url`` the server is looked for on its port, 13305, and on that of older versions, 8000.
Its statistics are those of the last request whoever made it, so they are taken only where this engine
has one request in flight at a time (``max_concurrency = 1``).

``engine_args``: ``launch`` (start ``lemonade-server serve`` here), and those of ``openai-compatible``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from evalray.engines.arguments import check_args
from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo
from evalray.engines.chat_protocol import decode_json
from evalray.engines.figures import measure_of
from evalray.engines.http_body import read_body
from evalray.engines.launch import LaunchedServer, free_port
from evalray.engines.masking import url_secrets
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.errors import EngineDied, EngineStartError, RequestError
from evalray.types import GenerationRequest

if TYPE_CHECKING:
    import aiohttp

DEFAULT_URLS = ("http://localhost:13305/api/v1", "http://localhost:8000/api/v1")
_ASK_SECONDS = 5.0
_KNOWN_ARGS = ("extra_body", "launch", "reasoning", "stream")
#: What the statistics say of the last request -> the name it is kept under.
_STATISTICS = {
    "time_to_first_token": "time_to_first_token_seconds",
    "tokens_per_second": "tokens_per_second",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
}


class LemonadeEngine(Engine):
    """One model of a Lemonade server: one that runs already, or one that this engine starts."""

    name: ClassVar[str] = "lemonade"
    argument_names: ClassVar[frozenset[str]] = frozenset(_KNOWN_ARGS)
    default_concurrency: ClassVar[int] = 1
    context_advice: ClassVar[str] = (
        "shorten the prompt or start Lemonade with a larger context (--ctx-size, or LEMONADE_CTX_SIZE where it is launched)"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset({"launch", "stream"})

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._concurrency = config.max_concurrency or self.default_concurrency
        self._server: LaunchedServer | None = None
        self._session: aiohttp.ClientSession | None = None
        self._chat: OpenAICompatibleEngine | None = None
        self._base = ""
        self._secrets = url_secrets(config.base_url)

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def start(self) -> EngineInfo:
        import aiohttp

        check_args(self.config, _KNOWN_ARGS)
        launch = self.config.engine_args.get("launch", False)
        if launch and self.config.base_url:
            raise EngineStartError("launch = true starts a server of its own: drop base_url")
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_SECONDS))
        try:
            if launch:
                port = free_port()
                self._server = LaunchedServer.start(["lemonade-server", "serve", "--port", str(port)], {})
                self._base = f"http://127.0.0.1:{port}/api/v1"
                await self._server.wait_healthy(f"{self._base}/health", self.config.start_timeout_seconds)
            elif self.config.base_url:
                self._base = self.config.base_url.rstrip("/")
            else:
                self._base = await self._find()
            arguments = {key: value for key, value in self.config.engine_args.items() if key != "launch"}
            self._chat = OpenAICompatibleEngine(
                replace(
                    self.config,
                    base_url=self._base,
                    engine_args=arguments,
                    max_concurrency=self._concurrency,
                )
            )
            info = await self._chat.start()
            self._secrets = self._chat.secrets
            health = await self._get("/health") or {}
        except BaseException:
            await self.close()
            raise
        loaded = health.get("model_loaded")
        return replace(
            info,
            engine=self.name,
            version=str(health.get("version", "")),
            details={
                **info.details,
                "launched": launch,
                **({"model_loaded": loaded} if isinstance(loaded, str) else {}),
            },
        )

    async def _find(self) -> str:
        for url in DEFAULT_URLS:
            if await self._get("/health", url) is not None:
                return url
        raise EngineStartError(
            f"no Lemonade server at {' or '.join(DEFAULT_URLS)}: start it, give base_url, "
            "or set engine_args.launch = true"
        )

    async def _get(self, path: str, base: str | None = None) -> dict[str, Any] | None:
        """What an endpoint of the server's own says; ``None`` where it is not there or not readable."""
        import aiohttp

        assert self._session is not None
        with suppress(aiohttp.ClientError, OSError, TimeoutError, RequestError):
            async with self._session.get(f"{base or self._base}{path}", allow_redirects=False) as response:
                if response.status == 200:
                    value = decode_json(await read_body(response))
                    return value if isinstance(value, dict) else None
        return None

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        chat = self._chat
        if chat is None:
            raise RequestError("connection", "the engine is closed")
        try:
            async with aclosing(chat.generate(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except RequestError as error:
            if self._server is not None and await self._server.died(error):
                said = self._server.log_tail(self._secrets)
                raise EngineDied(f"lemonade-server ended; it printed: {said}") from None
            raise
        if self._concurrency == 1 and (statistics := await self._get("/stats")):
            timings = {
                name: value
                for key, name in _STATISTICS.items()
                if (value := measure_of(statistics.get(key))) is not None
            }
            if timings:
                yield Chunk(timings=timings)

    async def close(self) -> None:
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        server, self._server = self._server, None
        if server is not None:
            await server.close()
