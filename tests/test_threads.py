from __future__ import annotations

import subprocess
import sys

import pytest

from evalray.threads import in_thread


async def test_what_the_call_returns_is_the_result() -> None:
    assert await in_thread(lambda: 7) == 7
    assert await in_thread(lambda: None) is None


@pytest.mark.parametrize(("raised", "seen"), [(ValueError, ValueError), (StopIteration, RuntimeError)])
async def test_what_the_call_raises_is_raised(raised: type[Exception], seen: type[Exception]) -> None:
    def fail() -> None:
        raise raised("why")

    with pytest.raises(seen, match="why"):
        await in_thread(fail)


HANGING = """
import asyncio, time
from evalray.threads import in_thread

async def main():
    try:
        await asyncio.wait_for(in_thread(lambda: time.sleep(600)), 0.1)
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""


def test_a_call_that_hangs_keeps_nobody_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60)
    assert done.stdout == "given up\n", done.stderr
