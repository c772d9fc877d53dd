"""Run a server so that nothing of it outlives the process that asked for it.

A program of its own, with no import beyond the standard library: ``python supervise.py GRACE_SECONDS
COMMAND...``, started in a process group of its own with a pipe for standard input.  When that pipe ends -- it was
closed, or its owner died, by whatever signal -- the whole group is ended, politely and then not.  The
server itself gets ``PR_SET_PDEATHSIG``, so that it goes too if this program is killed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(grace_seconds: float, command: list[str]) -> int:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # preexec_fn is safe here: this program has one thread.
    linux = sys.platform.startswith("linux")
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent if linux else None
    )
    while child.poll() is None:
        ready, _, _ = select.select([sys.stdin.buffer, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if sys.stdin.buffer in ready and not os.read(sys.stdin.fileno(), 4096):
            break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    try:
        code = child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(0, signal.SIGKILL)
        raise AssertionError("unreachable") from None
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
