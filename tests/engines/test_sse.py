from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines import sse
from evalray.engines.sse import EventParser
from evalray.errors import RequestError


def parse(*pieces: bytes) -> list[bytes]:
    parser = EventParser()
    return [payload for piece in pieces for payload in parser.feed(piece)] + parser.finish()


@pytest.mark.parametrize(
    ("raw", "payloads"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": keep-alive\n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 1\ndata: a\nretry: 5\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"\n\n\n\n", []),
        (b"<html>no events</html>", []),
        (b"data\n\n", [b""]),
    ],
)
def test_events_are_read_as_the_standard_says(raw: bytes, payloads: list[bytes]) -> None:
    assert parse(raw) == payloads


@given(
    st.lists(
        st.sampled_from(
            [b"data: x", b"data:", b": c", b"data: long payload", b"event: e", b"\n", b"\r\n", b"\r", b"\n\n"]
        ),
        max_size=30,
    ).map(b"".join),
    st.data(),
)
def test_where_the_stream_is_cut_changes_nothing(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    edges = [0, *cuts, len(raw)]
    pieces = [raw[begin:end] for begin, end in itertools.pairwise(edges)]
    assert parse(*pieces) == parse(*(raw[index : index + 1] for index in range(len(raw))))


@pytest.mark.timeout(20)
def test_a_line_of_many_megabytes_in_small_pieces_takes_linear_time() -> None:
    piece = b"x" * 1024
    assert len(parse(b"data: ", *[piece] * 20_000, b"\n\n")[0]) == 20_000 * 1024


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    parser = EventParser()
    parser.feed(b"data: " + b"x" * 900)
    with pytest.raises(RequestError) as caught:
        parser.feed(b"x" * 200)
    assert caught.value.kind == "bad_response"
