"""Server-sent events, fast: bytes in as they come from the socket, ``data`` payloads out.

Takes every line end (LF, CRLF, CR), payloads over several ``data:`` lines, comments and other
fields, and pieces cut anywhere.  Time is linear in the bytes however they are cut; one event may
hold at most ``MAX_EVENT_BYTES``.
"""

from __future__ import annotations

import re

from evalray.errors import RequestError

MAX_EVENT_BYTES = 64 << 20

_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventParser:
    """Feed it bytes; each call returns the payloads that are complete by then."""

    __slots__ = ("_data", "_data_bytes", "_partial", "_partial_bytes")

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        """Pieces of a line that has not ended; joined once when it does."""
        self._partial_bytes = 0
        self._data: list[bytes] = []
        """Lines of an event that has not ended."""
        self._data_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Raises :class:`RequestError` for an event over ``MAX_EVENT_BYTES``."""
        if not self._partial and not self._data and piece.endswith(b"\n\n") and b"\r" not in piece:
            return self._feed_whole_events(piece)
        return self._feed_lines(piece)

    def finish(self) -> list[bytes]:
        """What an ended stream leaves: an event whose closing blank line never came."""
        return self._feed_lines(b"\n\n")

    def _feed_whole_events(self, piece: bytes) -> list[bytes]:
        """The common case, a few times as fast: whole events of one ``data:`` line each."""
        payloads = []
        for event in piece.split(b"\n\n"):
            if event.startswith(b"data: ") and b"\n" not in event:
                payloads.append(event[6:])
            elif event:
                payloads += self._feed_lines(event + b"\n\n")
        return payloads

    def _feed_lines(self, piece: bytes) -> list[bytes]:
        # A CR at the end may be half of a CRLF: it waits for the next piece.
        if self._partial and self._partial[-1] == b"\r":
            piece = self._partial.pop() + piece
        lines = self._split(piece)
        payloads = []
        for line in lines:
            if not line:
                if self._data:
                    payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data, self._data_bytes = [], 0
            elif line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(value)
                self._data_bytes += len(value)
                self._check_size()
            elif line == b"data":
                self._data.append(b"")
        return payloads

    def _split(self, piece: bytes) -> list[bytes]:
        """Complete lines; the rest is kept."""
        held = b""
        if piece.endswith(b"\r"):
            piece, held = piece[:-1], b"\r"
        lines = _LINE_END.split(piece)
        rest = lines.pop()
        if lines and self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial, self._partial_bytes = [], 0
        if rest:
            self._partial.append(rest)
            self._partial_bytes += len(rest)
        if held:
            self._partial.append(held)
        self._check_size()
        return lines

    def _check_size(self) -> None:
        if self._partial_bytes + self._data_bytes > MAX_EVENT_BYTES:
            raise RequestError("bad_response", f"an event of over {MAX_EVENT_BYTES >> 20} MiB in the stream")
