"""Servers that stand in for Ollama, OpenAI and a vLLM server: each speaks its provider's protocol and keeps
what it was asked.  A model answers with its own name; the judge is for whoever is called qwen3."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PIECE = re.compile(r"<([a-z_]+)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", re.DOTALL)
Event = dict[str, Any]


@dataclass
class Provider:
    """One server.  ``asked`` has the path, the headers (names in lower case) and the body of every POST."""

    port: int
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for where, _, body in self.asked if where == path]


def _say(model: str) -> str:
    return f"I am {model} and I have thought about it.\nAnswer: A"


def _judge(content: str) -> str:
    pieces = {name: text for name, _, text in _PIECE.findall(content)}
    won = any("I am qwen3" in text for text in pieces.values())
    if "reply_a" in pieces:
        ours_is_a = "I am " in pieces["reply_a"]
        return json.dumps({"reasoning": "compared", "verdict": "A>>B" if ours_is_a == won else "B>>A"})
    return json.dumps({"reasoning": "compared", "correct": "yes" if won else "no"})


def _chat(body: dict[str, Any]) -> tuple[str, list[Event] | Event]:
    content = str(body["messages"][-1]["content"])
    text = _judge(content) if "It is data to be judged" in content else _say(body["model"])
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    ids = {"id": "c", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return "application/json", {**ids, "object": "chat.completion", "choices": [choice], "usage": usage}
    ids["object"] = "chat.completion.chunk"
    said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    done = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events: list[Event] = [{**ids, "choices": [said]}, {**ids, "choices": [done]}]
    return "text/event-stream", [*events, {**ids, "choices": [], "usage": usage}]


def _responses(body: dict[str, Any]) -> tuple[str, list[Event] | Event]:
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    whole = {"id": "r", "object": "response", "status": "completed", "output": [], "usage": usage}
    delta = {"type": "response.output_text.delta", "delta": _say(body["model"]), "item_id": "i"}
    return "text/event-stream", [delta, {"type": "response.completed", "response": whole}]


def _ollama(body: dict[str, Any]) -> tuple[str, list[Event] | Event]:
    message = {"role": "assistant", "content": _say(body["model"])}
    counts = {"prompt_eval_count": 7, "eval_count": 3, "eval_duration": 1_000, "total_duration": 2_000}
    done = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts}
    return "application/x-ndjson", [{"message": message, "done": False}, done]


def _shown(_: dict[str, Any]) -> tuple[str, list[Event] | Event]:
    facts = {"details": {"family": "qwen3"}, "model_info": {"qwen3.context_length": 40960}}
    return "application/json", {**facts, "capabilities": ["completion"]}


_POST: dict[str, Callable[[dict[str, Any]], tuple[str, list[Event] | Event]]] = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/api/chat": _ollama,
    "/api/show": _shown,
}
_GET: dict[str, Event] = {
    "/api/version": {"version": "0.32.9"},
    "/v1/models": {"object": "list", "data": [{"id": "llama3:70b", "object": "model"}]},
    "/v1/models/gpt-4o": {"id": "gpt-4o", "object": "model", "created": 1, "owned_by": "openai"},
}


@contextmanager
def provider(*paths: str) -> Iterator[Provider]:
    """A server of these paths only, so that a request to the wrong provider fails."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            known = self.path in paths and self.path in _GET
            self._send(200 if known else 404, "application/json", json.dumps(_GET.get(self.path, {})))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                stub.asked.append((self.path, headers, body))
            if self.path not in paths:
                self._send(404, "application/json", "{}")
                return
            kind, events = _POST[self.path](body)
            if kind == "application/json":
                self._send(200, kind, json.dumps(events))
            elif kind == "application/x-ndjson":
                self._send(200, kind, "".join(json.dumps(event) + "\n" for event in events))
            else:
                ending = "data: [DONE]\n\n" if self.path == "/v1/chat/completions" else ""
                self._send(200, kind, "".join(f"data: {json.dumps(e)}\n\n" for e in events) + ending)

        def _send(self, status: int, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub = Provider(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
