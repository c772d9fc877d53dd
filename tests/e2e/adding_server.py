"""An OpenAI-style server whose every answer is known beforehand: it adds, and is wrong where the sum is odd.

Run as a process of its own, so that what befalls the driver does not befall it.  Prints its port.
``GET /seen`` tells how often each question was asked.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from typing import Any

from aiohttp import web

_QUESTION = re.compile(r"What is (\d+) plus (\d+)\?")


def answer_to(question: str) -> str:
    """Right where the sum is even, one too much where it is odd."""
    found = _QUESTION.search(question)
    assert found is not None, question
    total = int(found[1]) + int(found[2])
    return f"Adding them gives\nthe answer is {total + total % 2}."


class AddingServer:
    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        self._seen: Counter[str] = Counter()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        question = body["messages"][-1]["content"]
        found = _QUESTION.search(question)
        self._seen[found[0] if found else question] += 1
        await asyncio.sleep(self._delay)
        words = re.findall(r"\S+\s*", answer_to(question))
        counts = {"prompt_tokens": len(question.split()), "completion_tokens": len(words)}
        if not body.get("stream"):
            message = {"role": "assistant", "content": "".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"choices": [choice], "usage": counts})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in words:
            await response.write(_event({"choices": [{"index": 0, "delta": {"content": word}}]}))
        await response.write(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        await response.write(_event({"choices": [], "usage": counts}) + b"data: [DONE]\n\n")
        return response

    async def seen(self, request: web.Request) -> web.Response:
        return web.json_response(self._seen)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "adder"}]})


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def _serve(delay_seconds: float) -> None:
    server = AddingServer(delay_seconds)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/seen", server.seen)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # the test holds the other end: it ends, so does this
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
