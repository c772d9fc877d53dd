"""Ctrl-C and SIGTERM: once to stop in order, twice to stop now."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from evalray.runtime.result import EXIT_INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_signals(on_first: Callable[[], None], on_second: Callable[[], None]) -> Iterator[None]:
    """Handle the signals while the block runs, in the main thread; elsewhere they are left alone.

    ``on_second`` runs inside the handler and must be quick; then the process ends at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            on_first()
            return
        try:
            on_second()
        finally:
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a live display had hidden the cursor
            os._exit(EXIT_INTERRUPTED)

    before: dict[int, Any] = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
