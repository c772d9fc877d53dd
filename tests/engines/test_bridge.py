from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from evalray.engines.bridge import NativeBridge, NativeCallError


def _tokens(count: int, pause: float = 0.0) -> Callable[[bytes, Callable[[bytes], bool]], None]:
    def call(body: bytes, on_piece: Callable[[bytes], bool]) -> None:
        for index in range(count):
            if on_piece(body + str(index).encode()):
                return
            time.sleep(pause)

    return call


async def test_no_token_is_lost_or_out_of_order_over_many_threads() -> None:
    bridge = NativeBridge(_tokens(500), workers=4)

    async def read(name: bytes) -> list[bytes]:
        return [piece async for _, piece in bridge.stream(name)]

    replies = await asyncio.gather(*(read(bytes([65 + index])) for index in range(12)))
    for index, reply in enumerate(replies):
        assert reply == [bytes([65 + index]) + str(number).encode() for number in range(500)]
    assert await bridge.close(5.0)


async def test_tokens_carry_the_time_at_which_they_came() -> None:
    bridge = NativeBridge(_tokens(4, pause=0.02), workers=1)
    times = [at async for at, _ in bridge.stream(b"")]
    assert all(later - earlier >= 0.015 for earlier, later in itertools.pairwise(times))
    assert await bridge.close(5.0)


async def test_closing_the_iterator_stops_the_call() -> None:
    ended = threading.Event()
    seen: list[int] = []

    def call(body: bytes, on_piece: Callable[[bytes], bool]) -> None:
        while not on_piece(b"x"):
            seen.append(1)
            time.sleep(0.001)
        ended.set()

    bridge = NativeBridge(call, workers=1)
    stream = bridge.stream(b"")
    assert (await anext(stream))[1] == b"x"
    await stream.aclose()  # type: ignore[attr-defined]
    assert ended.wait(5.0)
    assert await bridge.close(5.0)


async def test_what_the_call_raises_reaches_the_reader_after_its_tokens() -> None:
    def call(body: bytes, on_piece: Callable[[bytes], bool]) -> None:
        on_piece(b"x")
        raise RuntimeError("native trouble")

    bridge = NativeBridge(call, workers=1)
    stream = bridge.stream(b"")
    assert (await anext(stream))[1] == b"x"
    with pytest.raises(NativeCallError, match="native trouble"):
        await anext(stream)
    assert await bridge.close(5.0)


async def _first(stream: AsyncIterator[tuple[float, bytes]]) -> tuple[float, bytes]:
    return await anext(stream)


async def test_a_call_that_will_not_stop_is_reported() -> None:
    release = threading.Event()
    bridge = NativeBridge(lambda body, on_piece: release.wait(10), workers=1)
    stream = bridge.stream(b"")
    reader = asyncio.create_task(_first(stream))
    await asyncio.sleep(0.02)
    assert not await bridge.close(0.05)
    release.set()
    with pytest.raises(StopAsyncIteration):
        await reader
