"""Ctrl-C, SIGTERM and SIGHUP: once to stop in order, once more to stop now.

What arrives together is one request: ``timeout`` signals its child and then the group the child is in,
and a closing terminal sends SIGHUP more than once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from evalray.runtime.result import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

TOGETHER_SECONDS = 1.0
"""Signals this soon after the first are the same request as it."""


@contextlib.contextmanager
def stop_signals(
    on_first: Callable[[], None],
    on_second: Callable[[], None],
    *,
    together_seconds: float = TOGETHER_SECONDS,
) -> Iterator[Callable[[], None]]:
    """Handle the signals while the block runs, in the main thread; elsewhere they are left alone.

    A SIGHUP that is ignored stays ignored, as ``nohup`` means it to.  ``on_second`` runs inside the
    handler and must be quick; then the process ends at once.

    Yields what takes the signals back from a library that came to handle them meanwhile; call it in the
    main thread.  Ray's handler of SIGTERM, installed as it starts, prints a stack and sets an alarm that
    aborts the process 3 s later, in the middle of the stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    first: float | None = None
    ending = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first, ending
        if first is None:
            first = time.monotonic()
            on_first()
            return
        if ending or time.monotonic() - first < together_seconds:
            return
        ending = True
        try:
            on_second()
        finally:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                if sys.stderr.isatty():
                    os.write(2, b"\x1b[?25h\n")  # a live display had hidden the cursor
            os._exit(EXIT_INTERRUPTED)

    numbers = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handle) for number in numbers}

    def take_back() -> None:
        for number in numbers:
            signal.signal(number, handle)
        signal.alarm(0)

    try:
        yield take_back
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
