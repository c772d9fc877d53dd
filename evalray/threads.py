"""Blocking calls beside the event loop that may never return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, from a thread that ends with the process.

    Unlike :func:`asyncio.to_thread`, whose threads the loop and the interpreter wait for at their end.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not result.done():
            outcome()

    def run() -> None:
        try:
            outcome = partial(result.set_result, work())
        except StopIteration as error:  # a future cannot hold one
            outcome = partial(result.set_exception, RuntimeError(f"StopIteration: {error}"))
        except Exception as error:  # noqa: BLE001 -- carried over to the loop
            outcome = partial(result.set_exception, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="evalray-call", daemon=True).start()
    return await result
