"""What failures of the network are called."""

from __future__ import annotations

import socket

import aiohttp
import pytest

from evalray.engines.failures import error_from_client


async def _failure(url: str) -> str:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.get(url)
    error = error_from_client(caught.value)
    assert error is not None
    assert error.kind == "connection"
    return str(error)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_said_in_plain_words(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await _failure(f"http://{host}:{port}/v1") == f"no connection to {host}:{port}: Connection refused"


async def test_a_name_that_does_not_exist_is_said_in_plain_words() -> None:
    said = await _failure("http://no-such-host.invalid:8000/v1")
    assert said.startswith("no connection to no-such-host.invalid:8000: ")
    assert "ssl" not in said
    assert "Unknown error" not in said
