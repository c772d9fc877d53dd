"""The processes an engine's SDK starts: found again, waited for, and never left behind.

Such a process may have children of its own, change its name, and outlive a parent that was killed,
with gigabytes of GPU memory in its hands.  So everything that starts inside :meth:`Offspring.marked`
carries a mark in its environment, which its children inherit, and only what carries the mark is
ever killed.  A guard process waits on a pipe: when this process ends, however it ends, the pipe
closes and the guard kills what is left.

Linux only; elsewhere nothing is found and there is no guard.  Run as a script, this file *is* the
guard, so it imports the standard library alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MARK = "EVALRAY_OFFSPRING"

#: How long the guard goes on looking for processes that were just being started.
_GUARD_SECONDS = 30.0
_POLL_SECONDS = 0.05
_PROC = Path("/proc")


class Offspring:
    """What one engine started."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._guard: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def marked(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Processes started inside carry the mark, and ``environment`` besides.

        They must be started anew (``spawn``): a forked one shows the environment its parent began with.
        """
        _start_resource_tracker()
        # setproctitle would write the new name over the environment that the mark is read from.
        added = {**environment, MARK: self._mark, "SPT_NOENV": "1"}
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def start_guard(self) -> None:
        """From here on the offspring does not outlive this process."""
        if self._guard is None and _PROC.is_dir():
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self._mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def guard_pid(self) -> int | None:
        return self._guard.pid if self._guard is not None else None

    def pids(self) -> list[int]:
        """Those alive now; zombies are not."""
        return find_marked(self._mark)

    def kill(self) -> None:
        kill_marked(self._mark)

    async def gone(self, within_seconds: float) -> bool:
        """Wait for all of them to end; false if some live on."""
        until = time.monotonic() + within_seconds
        while self.pids():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def end(self, within_seconds: float) -> None:
        """Give them ``within_seconds`` to end by themselves, kill the rest, and dismiss the guard."""
        if not await self.gone(within_seconds):
            self.kill()
            await self.gone(within_seconds)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            await asyncio.to_thread(guard.communicate)


def find_marked(mark: str) -> list[int]:
    """Pids of the processes, this one aside, whose environment carries ``mark``."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def kill_marked(mark: str) -> int:
    """Kill every process with ``mark``; returns how many there were."""
    pids = find_marked(mark)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _start_resource_tracker() -> None:
    """multiprocessing's helper belongs to this process, not to the offspring."""
    if sys.platform != "win32":
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()


def _guard(mark: str) -> None:
    while os.read(0, 4096):
        pass
    until = time.monotonic() + _GUARD_SECONDS
    quiet_since = time.monotonic()
    while time.monotonic() < until and time.monotonic() - quiet_since < 1.0:
        if kill_marked(mark):
            quiet_since = time.monotonic()
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    _guard(sys.argv[1])
