"""Run a server so that nothing of it outlives the process that asked for it.

A program of its own, with no import beyond the standard library: ``python supervise.py GRACE_SECONDS
COMMAND...``, started in a process group of its own with a pipe for standard input.  When that pipe ends -- it was
closed, or its owner died, by whatever signal -- or the server ends by itself, all that it started is ended, politely
and then not: on Linux also what left the process group, and what goes on after the server has gone, since this program
adopts it.  The server itself gets ``PR_SET_PDEATHSIG``, so that it goes too if this program is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
_POLL_SECONDS = 0.05
_KILL_SECONDS = 3.0
#: What is left of a server that ended by itself gets that long: its owner waits to hear of the end.
_ORPHAN_SECONDS = 0.3


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(grace_seconds: float, command: list[str]) -> int:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # preexec_fn is safe here: this program has one thread.
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent if _LINUX else None
    )
    while child.poll() is None:
        ready, _, _ = select.select([sys.stdin.buffer, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _bury(child.pid)
        if sys.stdin.buffer in ready and not os.read(sys.stdin.fileno(), 4096):
            break
    ended_by_itself = child.poll() is not None
    _end_all(child, _ORPHAN_SECONDS if ended_by_itself else grace_seconds)
    code = child.returncode
    return code if code >= 0 else 128 - code


def _end_all(child: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """TERM to the group and to all that was started, KILL to what is there after ``grace_seconds``."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    _send(signal.SIGTERM)
    if _none_left(child, time.monotonic() + grace_seconds):
        return
    until = time.monotonic() + _KILL_SECONDS
    while _send(signal.SIGKILL) and time.monotonic() < until:
        _none_left(child, time.monotonic() + _POLL_SECONDS)
    if child.poll() is None:
        os.killpg(0, signal.SIGKILL)


def _none_left(child: subprocess.Popen[bytes], until: float) -> bool:
    """Wait for the server and all that it started; false if some are there at ``until``."""
    while True:
        ended = child.poll() is not None
        _bury(child.pid)
        if ended and not _descendants():
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)


def _send(number: int) -> bool:
    """Signal every descendant; whether there was one."""
    pids = _descendants()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def _bury(server: int) -> None:
    """Reap adopted processes that ended; the server's own end is its ``Popen``'s to see."""
    for pid, parent, state in _processes():
        if state == "Z" and parent == os.getpid() and pid != server:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _descendants() -> list[int]:
    """Everything alive that this program's child started, however deep; nothing where there is no ``/proc``."""
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, parent, state in _processes():
        children.setdefault(parent, []).append((pid, state))
    found, unseen = [], [os.getpid()]
    while unseen:
        for pid, state in children.pop(unseen.pop(), ()):
            unseen.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def _processes() -> list[tuple[int, int, str]]:
    """``(pid, parent, state)`` of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        # The name, in brackets, may hold anything; a process may end meanwhile.
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = file.read_text(errors="replace").rpartition(")")[2].split()[:2]
            found.append((int(file.parent.name), int(parent), state))
    return found


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
