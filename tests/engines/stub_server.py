"""A chat-completions server that misbehaves on demand: a script of replies, one per request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def delta(content: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {key: value for key, value in {"content": content, **fields}.items() if value is not None}
    return {"choices": [{"index": 0, "delta": body, "finish_reason": finish}]}


def usage(prompt: int = 7, completion: int = 3, **details: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}}


def sse(*events: dict[str, Any] | str) -> bytes:
    return b"".join(
        b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
        for event in events
    )


def stream(
    *pieces: bytes, content_type: str = "text/event-stream", pause: float = 0.0, abort: bool = False
) -> Handler:
    """Write ``pieces`` one by one; ``abort`` drops the connection after the last."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        if abort:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handle


def answer(text: str = "ANSWER: 4", finish: str = "stop") -> Handler:
    return stream(sse(delta(text), delta(finish=finish), usage(), "[DONE]"))


def reply(status: int, body: Any = None, **headers: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=names)
        return web.json_response(body, status=status, headers=names)

    return handle


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    raise AssertionError("unreachable")


class StubServer:
    """Serves ``script`` in order, its last entry for ever; remembers what it was sent."""

    def __init__(self) -> None:
        self.script: list[Handler] = [answer()]
        self.models: Handler = reply(200, {"data": [{"id": "stub", "max_model_len": 2048}]})
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()
        self.queries: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append(dict(request.headers))
        self.connections.add(request.transport)
        self.queries.append(request.query_string)
        return await self.script[min(len(self.bodies), len(self.script)) - 1](request)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        return await self.models(request)
