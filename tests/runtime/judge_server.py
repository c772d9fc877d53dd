"""A judge over HTTP: right where the answer holds the reference, and whatever a test asks of it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PIECE = re.compile(r"<(\w+)-[0-9a-f]{16}>\n(.*?)\n</\1-", re.DOTALL)


class JudgeServer:
    """``failing`` and ``garbled`` are words of a question that the judge fails at, or answers unreadably."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.failing: set[str] = set()
        self.garbled: set[str] = set()
        self.refuses_schema = False
        self.seconds = 0.0
        self.refused_starts = 0
        self.questions: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.in_flight = self.peak = 0
        self.lock = threading.Lock()

    def reply(self, body: dict[str, Any]) -> tuple[int, str]:
        if self.refuses_schema and "response_format" in body:
            return 400, json.dumps({"error": {"message": "response_format is not supported"}})
        content = body["messages"][-1]["content"]
        pieces = dict(_PIECE.findall(content)) or {"question": content, "reference": "x", "answer": "x"}
        with self.lock:
            self.questions.append(pieces["question"])
            self.bodies.append(body)
        words = set(pieces["question"].split())
        if words & self.failing:
            return 500, json.dumps({"error": {"message": "out of order"}})
        right = pieces["reference"] in pieces["answer"]
        text = json.dumps({"reasoning": "compared", "correct": "yes" if right else "no"})
        if words & self.garbled:
            text = "I would rather not say."
        message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "cost": 0.001}
        return 200, json.dumps({"choices": [message], "usage": usage})


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if judge.refused_starts:
                judge.refused_starts -= 1
                self._send(401, "{}")
                return
            self._send(200, json.dumps({"data": [{"id": "judge"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with judge.lock:
                judge.keys.add(self.headers.get("Authorization", ""))
                judge.in_flight += 1
                judge.peak = max(judge.peak, judge.in_flight)
            time.sleep(judge.seconds)
            status, text = judge.reply(body)
            with judge.lock:
                judge.in_flight -= 1
            self._send(status, text)

        def _send(self, status: int, text: str) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    judge = JudgeServer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
