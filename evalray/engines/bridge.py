"""Carry chunks from blocking native calls to asyncio, cheaply and without losing one.

Every native call blocks a thread of its own and hands over each token there.  Waking the event
loop per token would cost more than the token on a small machine, and take the cores that compute
the next one.  So a token is put down with its arrival time, and the loop is woken for the first
token of a reply, for its end, and in between at most once per ``WAKE_SECONDS``.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

WAKE_SECONDS = 0.1

#: A blocking call: takes a body and a callback that returns true to stop it.
NativeCall = Callable[[bytes, Callable[[bytes], bool]], object]


class NativeCallError(Exception):
    """The native call raised; the message is its own."""


class _Reply:
    """One request under way: written by its thread, read by the loop."""

    __slots__ = ("arrived", "cancelled", "error", "event", "finished", "woken_at")

    def __init__(self) -> None:
        self.arrived: deque[tuple[float, bytes]] = deque()
        self.cancelled = False
        self.finished = False
        self.error: BaseException | None = None
        self.event = asyncio.Event()
        self.woken_at = 0.0


class NativeBridge:
    """Runs up to ``workers`` native calls at once for one event loop."""

    def __init__(self, call: NativeCall, workers: int) -> None:
        self._call: NativeCall | None = call
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="native-call")
        self._active: set[_Reply] = set()
        self._to_wake: deque[_Reply] = deque()
        self._wake_scheduled = False

    async def stream(self, body: bytes) -> AsyncIterator[tuple[float, bytes]]:
        """Yield ``(time.monotonic() of arrival, piece)``.

        Closing the iterator early stops the call at its next token.  Raises
        :class:`NativeCallError` with what the call raised.
        """
        if self._call is None:
            raise NativeCallError("the engine is closed")
        reply = _Reply()
        self._active.add(reply)
        future = self._threads.submit(self._run, self._call, body, reply)
        try:
            while True:
                finished = reply.finished
                while reply.arrived:
                    yield reply.arrived.popleft()
                if finished:
                    break
                await reply.event.wait()
                reply.event.clear()
            if reply.error is not None:
                raise NativeCallError(str(reply.error) or type(reply.error).__name__)
        finally:
            reply.cancelled = True
            if future.cancel():
                self._active.discard(reply)

    def _run(self, call: NativeCall, body: bytes, reply: _Reply) -> None:
        def on_piece(piece: bytes) -> bool:
            now = time.monotonic()
            reply.arrived.append((now, piece))
            if now - reply.woken_at > WAKE_SECONDS:
                reply.woken_at = now
                self._wake(reply)
            return reply.cancelled

        try:
            if not reply.cancelled:
                call(body, on_piece)
        except BaseException as error:  # noqa: BLE001 -- it crosses threads: raised again where the reply is read
            reply.error = error
        finally:
            reply.finished = True
            self._active.discard(reply)
            self._wake(reply)

    def _wake(self, reply: _Reply) -> None:
        self._to_wake.append(reply)
        if not self._wake_scheduled:
            self._wake_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._wake_all)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _wake_all(self) -> None:
        # Cleared before the queue is emptied: a reply added meanwhile is either seen here or schedules anew.
        self._wake_scheduled = False
        while self._to_wake:
            self._to_wake.popleft().event.set()

    async def close(self, deadline_seconds: float) -> bool:
        """Stop every call; false if some were still running when the deadline passed."""
        self._call = None
        for reply in list(self._active):
            reply.cancelled = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + deadline_seconds
        while self._active and time.monotonic() < until:
            await asyncio.sleep(0.01)
            self._active = {reply for reply in self._active if not reply.finished}
        return not self._active
