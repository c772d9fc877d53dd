"""Records of a stream, read ahead in a thread so that the driver never waits for the network."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from evalray.types import EvalRecord

Pending = tuple[int, int, EvalRecord]
"""Position, epoch, record."""

_AHEAD = 256
_PUT_SECONDS = 0.5


class Prefetched:
    """An iterator that never blocks: :meth:`next` gives what has arrived.

    ``wake`` is called, from the thread, whenever something did after there was nothing.
    """

    def __init__(self, source: Iterator[Pending], wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._queue: queue.Queue[Pending] = queue.Queue(_AHEAD)
        self._error: Exception | None = None
        self._ended = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="evalray-prefetch", daemon=True)
        self._thread.start()

    def next(self) -> Pending | None:
        """What is there, or ``None``; raises what reading raised once all before it was taken."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            if self.ended and self._error is not None:
                error, self._error = self._error, None
                raise error from None
            return None

    @property
    def ended(self) -> bool:
        return self._ended and self._queue.empty()

    def close(self) -> None:
        self._closed.set()

    def _read(self) -> None:
        try:
            for item in self._source:
                while not self._closed.is_set():
                    try:
                        self._queue.put(item, timeout=_PUT_SECONDS)
                        break
                    except queue.Full:
                        continue
                if self._closed.is_set():
                    return
                if self._queue.qsize() == 1:
                    self._wake()
        except Exception as error:  # noqa: BLE001 -- raised where it is taken
            self._error = error
        finally:
            self._ended = True
            self._wake()
