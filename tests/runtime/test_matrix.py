"""A matrix of models and benchmarks on mock servers: what it costs in engine starts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalray.api import plan_suite
from evalray.runtime import run_sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_BENCHMARKS, _ROWS = ("addition", "colours", "rivers", "words"), 6


class EchoServer:
    """A model server that repeats the last word.  An engine asks for its list of models as it starts."""

    def __init__(self) -> None:
        self.starts = 0
        self.asked: Counter[str] = Counter()
        echo, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with lock:
                    echo.starts += 1
                self._send({"data": []})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    echo.asked[body["model"]] += 1
                message = {"role": "assistant", "content": body["messages"][-1]["content"].split()[-1]}
                self._send({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

            def _send(self, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    echo = EchoServer()
    threading.Thread(target=echo.server.serve_forever, daemon=True).start()
    yield echo
    echo.server.shutdown()
    echo.server.server_close()


def _suite(folder: Path, models: list[str], replicas: int, base_url: str) -> Path:
    lines = ["[tracking]", "enabled = false"]
    for model in models:
        lines += ["[[models]]", f'name = "{model}"', f'base_url = "{base_url}"', f"replicas = {replicas}"]
        lines += ["stream = false"]
    for name in _BENCHMARKS:
        lines += ["[[benchmarks]]", f'name = "{name}"']
        home = folder / "benchmarks" / name
        home.mkdir(parents=True)
        rows = [{"id": f"{name}{i}", "question": f"Say {i}", "answer": str(i)} for i in range(_ROWS)]
        (home / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (home / "prompt.jinja").write_text("{{ question }}")
        (home / "benchmark.toml").write_text(
            '[fields]\nid = "id"\nreference = "answer"\n[scorer]\nname = "number"\n'
        )
    suite = folder / "matrix.toml"
    suite.write_text("\n".join(lines) + "\n")
    return suite


@pytest.mark.parametrize(("number", "replicas"), [(8, 1), (2, 2)])
def test_an_engine_starts_once_per_replica_of_a_model_and_serves_all_its_benchmarks(
    echo: EchoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, replicas: int
) -> None:
    monkeypatch.chdir(tmp_path)
    models = [f"model-{i}" for i in range(number)]
    plan = plan_suite(_suite(tmp_path, models, replicas, echo.base_url))
    result = run_sweep(plan)
    assert [run.status for run in result.runs] == ["complete"] * (number * len(_BENCHMARKS)), result.errors
    assert {run.summary.accuracy for run in result.runs if run.summary is not None} == {1.0}
    assert echo.asked == dict.fromkeys(models, len(_BENCHMARKS) * _ROWS)
    assert number <= echo.starts <= number * replicas
