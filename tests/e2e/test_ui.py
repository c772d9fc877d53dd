"""``evalray ui`` serves the store of a results folder and leaves nothing behind."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def test_the_page_is_there_until_it_is_interrupted(cli: Any) -> None:
    (cli.folder / "results").mkdir()
    (cli.folder / "results" / "mlflow.db").touch()
    port = _free_port()
    process = cli.start("ui", "--port", str(port))
    deadline = time.monotonic() + 120.0
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
                assert reply.status == 200
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    ended = cli.end(process, 30.0)
    assert ended.code == 0
    assert f"http://127.0.0.1:{port}" in ended.stderr
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
