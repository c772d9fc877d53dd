"""Start a model server beside an engine, wait until it is healthy, and end it without a trace.

The server runs under ``supervise.py``: if this process goes, by whatever signal, so does the server and
all that it started.  It inherits the environment -- the GPUs Ray assigned with it -- save API keys.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from evalray.engines.failures import one_line
from evalray.errors import EngineStartError, RequestError

_SUPERVISOR = Path(__file__).with_name("supervise.py")
_LOG_LINES = 50
_LOG_LINE_BYTES = 4096
_POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""How long a server may take to end by itself."""
_KILL_SECONDS = 5.0
_NOTICE_SECONDS = 1.0
"""How long after a request failed a server may still turn out to have died."""


def free_port() -> int:
    """A TCP port of this host that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class LaunchedServer:
    """A running server process.  Made by :meth:`start`; :meth:`close` is safe to call twice."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self._name = name
        self._process = process
        self._closed = False
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        # A thread and polling rather than asyncio's subprocesses, whose child watchers depend on the
        # kind of event loop and on the thread it runs in.
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, command: Sequence[str], environment: dict[str, str]) -> LaunchedServer:
        """Start ``command`` with ``environment`` on top of this process's own.

        Raises :class:`EngineStartError` where the program is not on this node.
        """
        program = shutil.which(command[0])
        if program is None:
            raise EngineStartError(
                f"launch = true, but {command[0]!r} is not on the PATH of this node: install it, "
                "or start the server yourself and give base_url"
            )
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        process = subprocess.Popen(
            [sys.executable, "-S", str(_SUPERVISOR), str(GRACE_SECONDS), program, *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=inherited | environment,
            start_new_session=True,
        )
        return cls(command[0], process)

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while line := output.readline(_LOG_LINE_BYTES):
                self._log.append(line.decode("utf-8", "replace"))

    @property
    def exited(self) -> bool:
        return self._process.poll() is not None

    async def died(self, error: RequestError) -> bool:
        """Whether ``error`` is a sign of the server's end, and not of one request's."""
        if error.kind not in ("connection", "bad_response"):
            return self.exited
        until = time.monotonic() + _NOTICE_SECONDS
        while not self.exited and time.monotonic() < until:  # noqa: ASYNC110 -- a process has no event
            await asyncio.sleep(_POLL_SECONDS)
        return self.exited

    def log_tail(self, secrets: tuple[str, ...] = ()) -> str:
        """The end of what the server printed, on one line, without ``secrets``."""
        lines = [line.strip() for line in "".join(self._log).splitlines() if line.strip()]
        return one_line(" | ".join(lines[-5:]), secrets) or "nothing"

    async def wait_healthy(self, url: str, deadline_seconds: float) -> None:
        """Until ``GET url`` answers 200.  Raises :class:`EngineStartError` where it does not, having
        ended the server, with the end of what it printed."""
        import aiohttp

        until = time.monotonic() + deadline_seconds
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
            while True:
                if self.exited:
                    code = self._process.returncode
                    await self.close()
                    raise EngineStartError(
                        f"{self._name} ended with code {code} while starting; it printed: {self.log_tail()}"
                    )
                with suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with session.get(url) as response:
                        if response.status == 200:
                            return
                if time.monotonic() >= until:
                    await self.close()
                    raise EngineStartError(
                        f"{self._name} was not healthy within {deadline_seconds:g} s; it printed: "
                        f"{self.log_tail()}: raise start_timeout_seconds if it only needs longer"
                    )
                await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """End the server: TERM to its process group, KILL to what remains."""
        if self._closed:
            return
        self._closed = True
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS + _KILL_SECONDS)
        # The group outlives its leader while something of it runs.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        self._reader.join(1.0)
