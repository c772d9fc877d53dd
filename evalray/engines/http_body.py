"""The whole of an HTTP reply, bounded, and from the host that was asked.

aiohttp's ``content.read(n)`` returns what has arrived so far, which of a long reply is its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalray.engines.failures import one_line
from evalray.engines.sse import MAX_EVENT_BYTES
from evalray.errors import RequestError

if TYPE_CHECKING:
    import aiohttp

#: Of an error's text that much is read.
MAX_ERROR_BYTES = 1 << 20


async def read_body(response: aiohttp.ClientResponse, limit: int = MAX_EVENT_BYTES) -> bytes:
    """The body, refused beyond ``limit`` bytes where it is an answer and cut where it is an error."""
    pieces, size = [], 0
    while piece := await response.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            if response.status == 200:
                raise RequestError("bad_response", f"a reply of over {limit >> 20} MiB")
            break
    return b"".join(pieces)


def refuse_redirect(response: aiohttp.ClientResponse, secrets: tuple[str, ...]) -> None:
    """Raises :class:`RequestError` for a redirect.

    It is not followed: prompts and keys are for the host that the user named, and for no other.
    """
    if 300 <= response.status < 400:
        raise redirected(response.status, response.headers.get("Location"), secrets)


def redirected(status: int, target: str | None, secrets: tuple[str, ...]) -> RequestError:
    """The error that a redirect to ``target`` is."""
    shown = one_line(target or "?", secrets)
    return RequestError("bad_response", f"HTTP {status}: redirected to {shown}: correct base_url")
