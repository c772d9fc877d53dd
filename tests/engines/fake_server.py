"""A model server for launching: speaks just enough of Ollama's and Lemonade's protocols to be used.

``FAKE_MODE``: ``healthy``; ``sick`` (never answers 200); ``dies`` (at once, with a last word);
``stubborn`` (healthy, ignores TERM); ``runner`` (healthy,
its child ignores TERM); ``detached`` (healthy, its child leaves the session); ``crash`` (healthy, ends in the middle of its first answer).
Writes its process id, and its child's, into the file ``FAKE_PIDS``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODE = os.environ.get("FAKE_MODE", "healthy")


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if MODE == "sick":
            return self._send(503, b"{}")
        facts = {
            "version": "9.9",
            "status": "ok",
            "environment": {
                key: value
                for key, value in os.environ.items()
                if "GPU" in key or "CUDA" in key or "KEY" in key
            },
            "data": [],
        }
        return self._send(200, json.dumps(facts).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if MODE == "crash" and "chat" in self.path:
            print("out of memory", flush=True)
            os._exit(9)
        if self.path == "/api/chat":
            message = {"role": "assistant", "content": "launched"}
            return self._send(200, json.dumps({"message": message, "done": True, "eval_count": 1}).encode())
        if self.path.endswith("/chat/completions"):
            delta = {"choices": [{"delta": {"content": "launched"}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n".encode()
            return self._send(200, body, "text/event-stream")
        return self._send(200, b"{}")


def main() -> None:
    print("starting", *sys.argv[1:], flush=True)
    if MODE == "dies":
        print("no GPU found", flush=True)
        sys.exit(3)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if MODE == "runner" else ""
    code = f"import signal, time; {ignoring}print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=MODE == "detached"
    )
    assert child.stdout is not None
    child.stdout.readline()
    if pids := os.environ.get("FAKE_PIDS"):
        Path(pids).write_text(f"{os.getpid()} {child.pid}")
    if "--port" in sys.argv:
        port = int(sys.argv[sys.argv.index("--port") + 1])
    else:
        port = int(os.environ["OLLAMA_HOST"].rpartition(":")[2])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


main()
