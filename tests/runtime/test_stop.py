from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from evalray.runtime.prefetch import Pending, Prefetched
from evalray.runtime.stop import stop_signals
from evalray.types import EvalRecord

_ROOT = Path(__file__).resolve().parents[2]
_WAITS = """
import sys, time
from evalray.runtime.stop import stop_signals
def say(word):
    return lambda: print(word, flush=True)
with stop_signals(say("first"), say("second"), together_seconds=0.0):
    print("ready", flush=True)
    time.sleep(60)
"""
_DRAINS = """
import signal, threading
from evalray.runtime.stop import stop_signals
signal.signal(signal.SIGHUP, {hangup})
asked = threading.Event()
def first():
    print("first", flush=True)
    asked.set()
with stop_signals(first, lambda: print("second", flush=True), together_seconds=30.0):
    print("ready", flush=True)
    while not asked.wait(0.1):
        pass
    input()
    print("drained", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_ends_the_process_with_130(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", _WAITS], cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in ("ready", "first"):
        assert process.stdout.readline().strip() == line
        process.send_signal(number)
    assert process.stdout.read().strip() == "second"
    assert process.wait(20) == 130


def _draining(hangup: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _DRAINS.format(hangup=hangup)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def test_signals_that_arrive_together_are_one_request_to_stop_in_order() -> None:
    process = _draining("signal.SIG_DFL")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
    told, _ = process.communicate("\n", timeout=30)
    assert told.split() == ["first", "drained"]
    assert process.returncode == 0


def test_an_ignored_hangup_stays_ignored() -> None:
    process = _draining("signal.SIG_IGN")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate("\n", timeout=30)
    assert told.split() == ["first", "drained"]


def test_signals_can_be_taken_back_from_a_library_with_its_alarm() -> None:
    program = """
import os, signal, time
from evalray.runtime.stop import stop_signals
with stop_signals(lambda: print("first", flush=True), lambda: None) as take_back:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(1)
    take_back()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.5)
    print("went on")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout.split()) == (0, ["first", "went", "on"])


def test_handlers_are_put_back_and_other_threads_leave_them_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(lambda: None, lambda: None):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[object] = []

    def elsewhere() -> None:
        with stop_signals(lambda: None, lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


def records(number: int | None = None, *, then: Exception | None = None) -> Iterator[Pending]:
    for position in count() if number is None else range(number):
        yield position, 0, EvalRecord(str(position), "p", "r", "c")
    if then is not None:
        raise then


def drain(stream: Prefetched) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + 20
    while not stream.ended and time.monotonic() < deadline:
        item = stream.next()
        if item is None:
            time.sleep(0.01)
        else:
            found.append(item[0])
    return found


def test_a_stream_read_ahead_arrives_whole_and_in_order() -> None:
    assert drain(Prefetched(records(1000), lambda: None)) == list(range(1000))


def test_reading_ahead_is_bounded_and_ends_when_closed() -> None:
    taken: list[int] = []

    def counted() -> Iterator[Pending]:
        for item in records():
            taken.append(item[0])
            yield item

    stream = Prefetched(counted(), lambda: None)
    time.sleep(0.2)
    stream.close()
    stream._thread.join(10)
    assert not stream._thread.is_alive()
    assert len(taken) <= 258


def test_an_error_of_the_stream_is_raised_after_what_came_before_it() -> None:
    stream = Prefetched(records(3, then=OSError("network")), lambda: None)
    stream._thread.join(10)
    assert [stream.next() is not None for _ in range(3)] == [True] * 3
    with pytest.raises(OSError, match="network"):
        stream.next()
    assert stream.ended
