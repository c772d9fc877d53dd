"""How many requests one replica of a network engine has in flight, found out as it goes.

:class:`ConcurrencyController` decides and knows no clock, no network and no event loop.  It starts
at a modest number, grows fast until something is in the way, halves once per congestion event,
returns fast to just below where that happened, and from there tries one more now and then:
additive increase, multiplicative decrease.  Two things are in the way:

* **Refusals**: 429, 529, 503, "overloaded".  All refusals of requests that were sent before the
  last cut belong to the event that caused it.
* **Latency that buys nothing**: it stands at several times its moving minimum.  Whether that is
  the server's queue or its batching is tried out: half the requests for one window.  Where the
  throughput stays the same the cut stays; else it is taken back and not tried again soon.

:class:`Gate` applies it: a request is sent by whoever holds one of its slots.  Those who were
refused come before those who have not been sent, and ``Retry-After`` holds back all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from evalray.errors import RequestError

#: In flight before anything is known of the server.
START = 16
#: Added per success while nothing has been in the way: threefold each round trip.
_RAMP = 2
#: Rounds, and successes, without trouble at the knee before one more is tried.
_HOLD_ROUNDS = 10
_HOLD_SUCCESSES = 50
#: Completions a window has at least.
_WINDOW = 16
#: Windows the moving minimum is taken over.  What stands for a window is its 20th percentile: early on,
#: while requests begin to queue, its fastest ones still tell of a server without a queue.
_REMEMBERED = 64
#: Times the moving minimum at which latency is looked into.
_RISE = 3.0
#: Share of the throughput that half the requests must reach for the cut to stay.
_SAME = 0.95
#: Windows between one look into the latency and the next; doubled whenever there was nothing in it.
_PATIENCE_WINDOWS = 4
_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0
_MAX_RETRY_AFTER_SECONDS = 120.0


class ConcurrencyController:
    """Decides :attr:`limit`, from 1 to ``ceiling``.  Times are seconds of any monotonic clock."""

    def __init__(self, ceiling: int, *, start: int = START) -> None:
        self.ceiling = max(1, ceiling)
        self.limit = min(self.ceiling, max(1, start))
        self.paused_until = 0.0
        """Nothing may be sent before."""
        self.events = 0
        """Congestion events so far."""
        self._knee = self.ceiling
        """Up to here growth is fast."""
        self._credit = 0.0
        self._cut_at = -1.0
        self._strikes = 0
        """Events since the last success."""
        self._latencies: list[float] = []
        self._window_began = -1.0
        self._limit_changed = False
        self._skip = 0
        self._lows: deque[float] = deque(maxlen=_REMEMBERED)
        self._before_trial: tuple[int, float] | None = None
        """Limit and throughput before half the requests were tried."""
        self._patience = _PATIENCE_WINDOWS
        self._windows_to_wait = _PATIENCE_WINDOWS

    @property
    def throttled(self) -> bool:
        """Whether the server has set a limit below the ceiling."""
        return self.limit < self.ceiling and self._knee < self.ceiling

    def succeeded(self, now: float, latency: float, active: int) -> None:
        """A reply came; ``active`` were in flight with it.

        ``latency`` is to the first token where that is known, as it depends least on the length of the answer.
        """
        self._strikes = 0
        if self._before_trial is None and 2 * active >= self.limit:
            self._grow()
        self._observe(now, latency)

    def congested(self, now: float, sent_at: float, retry_after: float | None, active: int) -> None:
        """The server refused a request for its load; ``active`` were in flight with it."""
        if retry_after is not None:
            pause = min(retry_after, _MAX_RETRY_AFTER_SECONDS)
            self.paused_until = max(self.paused_until, now + pause)
        if sent_at < self._cut_at:
            return
        self.events += 1
        self._strikes += 1
        if retry_after is None and self._strikes > 1:
            pause = min(_MAX_PAUSE_SECONDS, _PAUSE_SECONDS * 2.0 ** min(self._strikes - 2, 16))
            self.paused_until = max(self.paused_until, now + pause)
        reached = max(1, min(self.limit, active))
        self._before_trial = None
        self._knee = max(1, reached - 1)
        self._cut(now, reached // 2)

    # -- inside -----------------------------------------------------------------------------

    def _grow(self) -> None:
        if self.limit >= self.ceiling:
            return
        if self.limit < self._knee:
            room = self._knee - self.limit
            self._set(self.limit + min(_RAMP, room))
            return
        at_knee = self.limit == self._knee
        self._credit += 1.0 / (max(_HOLD_SUCCESSES, _HOLD_ROUNDS * self.limit) if at_knee else self.limit)
        if self._credit >= 1.0 - 1e-9:
            self._set(self.limit + 1)

    def _cut(self, now: float, limit: int) -> None:
        self._cut_at = now
        self._skip = self.limit
        self._set(max(1, limit))

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._credit = 0.0
        self._limit_changed = True

    def _observe(self, now: float, latency: float) -> None:
        if self._skip > 0:  # sent under another limit
            self._skip -= 1
            return
        if self._window_began < 0.0:
            self._window_began = now
            return
        self._latencies.append(latency)
        if len(self._latencies) < max(_WINDOW, self.limit):
            return
        seconds = now - self._window_began
        number = len(self._latencies)
        low = sorted(self._latencies)[number // 5]
        self._lows.append(low)
        self._latencies, self._window_began = [], now
        changed, self._limit_changed = self._limit_changed, False
        if not changed and seconds > 0.0:
            self._judge(now, low, number / seconds)

    def _judge(self, now: float, latency: float, throughput: float) -> None:
        """A window under one limit is over."""
        if self._before_trial is not None:
            limit, before = self._before_trial
            self._before_trial = None
            if throughput >= _SAME * before:
                self._knee, self._patience = self.limit, _PATIENCE_WINDOWS
            else:
                self._set(limit)
                self._patience *= 2
            self._windows_to_wait = self._patience
        elif self._windows_to_wait > 0:
            self._windows_to_wait -= 1
        elif self.limit > 1 and latency > _RISE * min(self._lows):
            self._before_trial = self.limit, throughput
            self._cut(now, self.limit // 2)
            self._window_began, self._limit_changed = -1.0, False


class Slot:
    """The right to have one request in flight.  Given back by :meth:`release`, whatever happened."""

    __slots__ = ("_gate", "_held", "_sent_at")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held = True
        self._sent_at = 0.0

    def sent(self) -> None:
        """An attempt begins."""
        self._sent_at = self._gate.clock()

    def ended(self, error: RequestError | None, first_token_seconds: float | None) -> None:
        """The attempt is over; ``first_token_seconds`` from sent to first token, where there was one."""
        gate, now = self._gate, self._gate.clock()
        if error is None:
            latency = now - self._sent_at if first_token_seconds is None else first_token_seconds
            gate.controller.succeeded(now, latency, gate.active)
        elif error.overloaded:
            gate.controller.congested(now, self._sent_at, error.retry_after_seconds, gate.active)

    def release(self) -> None:
        """Let others go.  Safe to call twice."""
        if self._held:
            self._held = False
            self._gate.leave()

    async def regain(self) -> None:
        """Wait to send once more, before those who have not sent yet."""
        if not self._held:
            await self._gate.enter(again=True)
            self._held = True


class Gate:
    """Slots of one replica, as many as its controller allows right now.  Used from one event loop."""

    def __init__(
        self, controller: ConcurrencyController, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.controller = controller
        self.clock = clock
        self.active = 0
        self._again: deque[asyncio.Future[None]] = deque()
        self._new: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        return self.controller.limit

    async def slot(self) -> Slot:
        """Wait for a slot."""
        await self.enter()
        return Slot(self)

    async def enter(self, *, again: bool = False) -> None:
        """Wait until one more may be in flight; from then on it counts."""
        if self._is_open() and not (self._again or self._new):
            self.active += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        (self._again if again else self._new).append(waiter)
        self._let_in()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # it was let in at the same moment
            raise

    def leave(self) -> None:
        """One less in flight."""
        self.active -= 1
        self._let_in()

    def _is_open(self) -> bool:
        return self.active < self.controller.limit and self.clock() >= self.controller.paused_until

    def _let_in(self) -> None:
        while self._again or self._new:
            if not self._is_open():
                self._wake_after_pause()
                return
            waiter = (self._again or self._new).popleft()
            if not waiter.done():
                self.active += 1
                waiter.set_result(None)

    def _wake_after_pause(self) -> None:
        seconds = self.controller.paused_until - self.clock()
        if seconds <= 0.0:
            return  # full: whoever leaves lets the next in
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds + 0.001, self._let_in)

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._timer.cancel()  # type: ignore[union-attr]
