#!/usr/bin/env python3
"""Tiny OpenAI-compatible mock server used as the peer baseline.

    python mock_server.py --port 8100 --latency-ms 50 [--workers 1]

Routes: /v1/models, /v1/chat/completions (stream or not), /v1/completions, /stats, /reset.
Every answer is deterministic: the prompt of gen_qa.py asks "What is A plus B?" and the
server answers "ANSWER: <A+B>"; a judge's prompt, which asks for JSON, gets a verdict;
anything else gets "ANSWER: 42".
/stats reports requests served, the peak number in flight and the first/last arrival
times, so that a harness's own rate can be told apart from its start-up and tear-down.
"""

import argparse
import asyncio
import json
import re
import time

from aiohttp import web

try:
    import orjson

    loads, dumps = orjson.loads, lambda o: orjson.dumps(o)
except ImportError:  # plain json works too, only slower
    loads, dumps = json.loads, lambda o: json.dumps(o).encode()

QUESTION = re.compile(r"What is (\d+) plus (\d+)\?")
STATS: dict = {}


def reset() -> None:
    STATS.update(n=0, in_flight=0, peak=0, first=None, last=None)


VERDICT = '{"extracted_answer": "a number", "reasoning": "The two agree.", "correct": "yes"}'


def answer(text: str) -> str:
    if "Reply with one JSON object" in text:
        return VERDICT
    hits = QUESTION.findall(text)
    if not hits:
        return "ANSWER: 42"
    a, b = hits[-1]
    return f"Adding the two numbers gives the result.\n\nANSWER: {int(a) + int(b)}"


def prompt_text(body: dict) -> str:
    if "messages" in body:
        parts = []
        for m in body["messages"]:
            c = m.get("content") or ""
            parts.append(c if isinstance(c, str) else " ".join(p.get("text", "") for p in c))
        return "\n".join(parts)
    p = body.get("prompt", "")
    return p if isinstance(p, str) else str(p[0])


async def arrive(latency: float) -> None:
    now = time.time()
    STATS["first"] = STATS["first"] or now
    STATS["in_flight"] += 1
    STATS["peak"] = max(STATS["peak"], STATS["in_flight"])
    if latency:
        await asyncio.sleep(latency)
    STATS["in_flight"] -= 1
    STATS["n"] += 1
    STATS["last"] = time.time()


def usage(text: str, out: str) -> dict:
    p, c = max(1, len(text) // 4), max(1, len(out) // 4)
    return {"prompt_tokens": p, "completion_tokens": c, "total_tokens": p + c}


def make_app(latency: float) -> web.Application:
    async def chat(request: web.Request) -> web.StreamResponse:
        body = loads(await request.read())
        await arrive(latency)
        text = prompt_text(body)
        out = answer(text)
        base = {
            "id": f"chatcmpl-{STATS['n']}",
            "created": int(time.time()),
            "model": body.get("model", "mock"),
        }
        if body.get("stream"):
            resp = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await resp.prepare(request)
            for delta, fin in (({"role": "assistant", "content": out}, None), ({}, "stop")):
                chunk = {
                    **base,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": fin}],
                }
                if fin:
                    chunk["usage"] = usage(text, out)
                await resp.write(b"data: " + dumps(chunk) + b"\n\n")
            await resp.write(b"data: [DONE]\n\n")
            return resp
        n = body.get("n") or 1
        return web.Response(
            body=dumps(
                {
                    **base,
                    "object": "chat.completion",
                    "choices": [
                        {
                            "index": i,
                            "finish_reason": "stop",
                            "logprobs": None,
                            "message": {"role": "assistant", "content": out},
                        }
                        for i in range(n)
                    ],
                    "usage": usage(text, out),
                }
            ),
            content_type="application/json",
        )

    async def completions(request: web.Request) -> web.Response:
        body = loads(await request.read())
        await arrive(latency)
        text = prompt_text(body)
        out = answer(text)
        return web.Response(
            body=dumps(
                {
                    "id": "cmpl-1",
                    "object": "text_completion",
                    "created": int(time.time()),
                    "model": body.get("model", "mock"),
                    "choices": [{"index": 0, "text": out, "finish_reason": "stop", "logprobs": None}],
                    "usage": usage(text, out),
                }
            ),
            content_type="application/json",
        )

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "mock", "object": "model"}]})

    async def stats(_: web.Request) -> web.Response:
        s = dict(STATS)
        span = (s["last"] - s["first"]) if s["n"] > 1 else None
        return web.json_response({**s, "span_s": span, "rps": s["n"] / span if span else None})

    async def do_reset(_: web.Request) -> web.Response:
        reset()
        return web.json_response({"ok": True})

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/stats", stats)
    app.router.add_post("/reset", do_reset)
    return app


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--host", default="127.0.0.1")
    ap.add_argument("--port", type=int, default=8100)
    ap.add_argument("--latency-ms", type=float, default=0.0)
    a = ap.parse_args()
    reset()
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    web.run_app(
        make_app(a.latency_ms / 1000), host=a.host, port=a.port, access_log=None, print=None, backlog=4096
    )


if __name__ == "__main__":
    main()
