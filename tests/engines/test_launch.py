"""Engines that start their server themselves, against a program that stands in for it on the PATH."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.engines import launch
from evalray.engines.base import Engine, EngineConfig
from evalray.engines.launch import LaunchedServer, free_port
from evalray.engines.lemonade import LemonadeEngine
from evalray.engines.ollama import OllamaEngine
from evalray.engines.session import RetryPolicy, run_request
from evalray.errors import EngineDied, EngineStartError
from evalray.types import GenerationRequest, SamplingParams

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="process groups of Linux")
ENGINES = pytest.mark.parametrize("kind", [OllamaEngine, LemonadeEngine])
REQUEST = GenerationRequest("r", ({"role": "user", "content": "hi"},), SamplingParams(max_tokens=4), 20.0)


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Puts the stand-in on the PATH under the servers' names; tells which processes it is."""
    fake = Path(__file__).with_name("fake_server.py")
    for name in ("ollama", "lemonade-server"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {fake} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    file = tmp_path / "pids"
    monkeypatch.setenv("FAKE_PIDS", str(file))
    return lambda: [int(pid) for pid in file.read_text().split()]


def engine(kind: type[Engine], start_timeout_seconds: float = 30.0, **arguments: Any) -> Engine:
    return kind(
        EngineConfig(
            model="m",
            engine=kind.name,
            start_timeout_seconds=start_timeout_seconds,
            engine_args={"launch": True, **arguments},
        )
    )


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pids: list[int], seconds: float = 20.0) -> list[int]:
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@ENGINES
async def test_a_launched_server_answers_and_leaves_nothing_behind(
    kind: type[Engine], pids: Callable[[], list[int]]
) -> None:
    launched = engine(kind)
    info = await launched.start()
    try:
        generation = await run_request(launched, REQUEST)
        assert (generation.model_answer, generation.error) == ("launched", None)
        assert info.details["launched"] is True
        assert info.version == "9.9"
        assert all(map(alive, pids()))
    finally:
        await launched.close()
        await launched.close()
    assert wait_until_gone(pids()) == []


async def test_a_server_gets_its_gpu_and_no_key(
    pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import aiohttp

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    port = free_port()
    server = LaunchedServer.start(["ollama", "serve"], {"OLLAMA_HOST": f"127.0.0.1:{port}"})
    try:
        await server.wait_healthy(f"http://127.0.0.1:{port}/", 30.0)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            environment = (await response.json())["environment"]
    finally:
        await server.close()
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert "OPENAI_API_KEY" not in environment


@ENGINES
async def test_a_server_that_never_gets_healthy_is_ended_and_quoted(
    kind: type[Engine], pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "sick")
    with pytest.raises(EngineStartError, match=r"not healthy within 1\.5 s.*starting serve"):
        await engine(kind, start_timeout_seconds=1.5).start()
    assert wait_until_gone(pids()) == []


@ENGINES
async def test_a_server_that_dies_while_starting_is_quoted(
    kind: type[Engine], pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "dies")
    with pytest.raises(EngineStartError, match=r"code 3.*no GPU found"):
        await engine(kind).start()


@ENGINES
async def test_a_server_that_dies_at_work_is_a_dead_engine(
    kind: type[Engine], pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "crash")
    launched = engine(kind)
    await launched.start()
    try:
        with pytest.raises(EngineDied, match="out of memory"):
            await run_request(launched, REQUEST, policy=RetryPolicy(max_retries=0))
    finally:
        await launched.close()
    assert wait_until_gone(pids()) == []


async def test_a_server_that_ignores_requests_to_end_is_killed(
    pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "stubborn")
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.5)
    launched = engine(OllamaEngine)
    await launched.start()
    await launched.close()
    assert wait_until_gone(pids()) == []


@ENGINES
async def test_a_program_that_is_not_installed_is_named(
    kind: type[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(EngineStartError, match=r"not on the PATH.*install it"):
        await engine(kind).start()


@pytest.mark.parametrize("mode", ["runner", "detached"])
async def test_what_a_server_started_ends_with_it(
    pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.2)
    launched = engine(OllamaEngine)
    await launched.start()
    running = pids()
    assert all(map(alive, running))
    await launched.close()
    assert [pid for pid in running if alive(pid)] == []


@pytest.mark.parametrize("mode", ["runner", "detached"])
async def test_what_a_crashed_server_started_ends_too(
    pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    launched = engine(OllamaEngine)
    await launched.start()
    running = pids()
    os.kill(running[0], signal.SIGKILL)
    try:
        assert await asyncio.to_thread(wait_until_gone, running) == []
    finally:
        await launched.close()


@pytest.mark.parametrize(
    ("victim", "mode"),
    [("owner", "healthy"), ("owner", "runner"), ("owner", "detached"), ("supervisor", "healthy")],
)
async def test_a_killed_owner_leaves_no_orphan(
    pids: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch, victim: str, mode: str
) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    code = (
        "import asyncio, sys\n"
        "from evalray.engines.base import EngineConfig\n"
        "from evalray.engines.ollama import OllamaEngine\n"
        "async def main():\n"
        "    engine = OllamaEngine(EngineConfig(model='m', engine='ollama', engine_args={'launch': True}))\n"
        "    await engine.start()\n"
        "    print(engine._server._process.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        supervisor = int(await asyncio.to_thread(owner.stdout.readline))
        running = pids()
        assert all(map(alive, running))
        os.kill(owner.pid if victim == "owner" else supervisor, signal.SIGKILL)
        # What the server itself started is its own to end where nobody is left to do it.
        expected = [*running, supervisor] if victim == "owner" else [running[0], supervisor]
        assert await asyncio.to_thread(wait_until_gone, expected) == []
    finally:
        owner.kill()
        await asyncio.to_thread(owner.wait)
        for pid in pids():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


async def test_a_key_in_a_long_line_of_the_log_is_blanked_as_a_whole() -> None:
    key = "zq7Y-kD4x.Pw_31t"
    server = LaunchedServer.start(["printf", "%s", " " * (4096 - len(key) // 2) + key], {})
    async with asyncio.timeout(30.0):
        while not server.exited:
            await asyncio.sleep(0.01)
    await server.close()
    assert server.log_tail((key,)) == "[redacted]"
