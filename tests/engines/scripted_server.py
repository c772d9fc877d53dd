"""A server that answers what a test scripted, whatever the API: vendors', Ollama's, Lemonade's."""

from __future__ import annotations

import json
import ssl
from typing import Any

from aiohttp import web
from stub_server import Handler, reply


def events(*payloads: dict[str, Any]) -> bytes:
    """Server-sent events whose name is each payload's ``type``, as Anthropic and the responses API send."""
    return b"".join(
        f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode() for payload in payloads
    )


def lines(*payloads: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(payload).encode() + b"\n" for payload in payloads)


class ScriptedServer:
    """``script`` answers POSTs in order, its last entry for ever; ``routes`` answers by path, first.

    ``posts`` has the path, headers and body of each POST that ``script`` answered.
    """

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.routes: dict[str, Handler] = {}
        self.posts: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.asked: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.posts]

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path in self.routes:
            return await self.routes[request.path](request)
        if request.method != "POST" or not self.script:
            return await reply(404, {"error": {"message": "no such route"}})(request)
        self.posts.append((request.path, dict(request.headers), json.loads(await request.read())))
        return await self.script[min(len(self.posts), len(self.script)) - 1](request)
