from __future__ import annotations

import datetime
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.errors import StoreError
from evalray.store.jsonlines import encode, read_json, redact, without_lone_surrogates, write_json

any_text = st.text(st.characters(exclude_categories=()))
any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


def _as_read(text: str) -> str:
    """JSON spells a character beyond the BMP as two surrogates: lone halves side by side become one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@given(any_text)
def test_any_text_comes_back_as_it_was(text):
    line = encode({"text": text})
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["text"] == _as_read(text)


@given(any_value)
def test_any_value_is_one_line_of_strict_json(value):
    line = encode(value)
    assert line.isascii()
    assert "\n" not in line

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(line, parse_constant=refuse)


class _Odd:
    def __str__(self) -> str:
        return "odd"


def _nest(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def _cycle() -> dict:
    value: dict = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        ([math.inf, -math.inf, 1.5], [None, None, 1.5]),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        ({1: "a", (2, 3): "b"}, {"1": "a", "(2, 3)": "b"}),
        ({"s": {"b", "a"}}, {"s": ["a", "b"]}),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (_Odd(), "odd"),
        pytest.param(10**5000, None, id="huge"),
    ],
)
def test_what_json_does_not_know_becomes_something_it_does(value, expected):
    assert json.loads(encode(value)) == expected


@pytest.mark.parametrize("value", [_nest(5000), _cycle()], ids=["deep", "cycle"])
def test_bottomless_values_end(value):
    assert "nested deeper" in encode(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain", "plain"), ("é\ud835x", "é\ufffdx"), ("\ud83d\ude00", "😀"), ("\x00", "\x00")],
)
def test_exported_text_is_valid_unicode(text, expected):
    assert without_lone_surrogates(text) == expected


def test_secrets_are_left_out_and_their_names_are_not():
    value = {
        "api_key": "k",
        "api_key_env": "OPENAI_API_KEY",
        "max_tokens": 5,
        "deep": [{"Authorization": "k"}],
    }
    assert redact(value) == {
        "api_key": "<redacted>",
        "api_key_env": "OPENAI_API_KEY",
        "max_tokens": 5,
        "deep": [{"Authorization": "<redacted>"}],
    }


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b""])
def test_a_damaged_json_file_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"run\.json: not "):
        read_json(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, file_size_limit):
    path = tmp_path / "run.json"
    write_json(path, {"old": True})
    with file_size_limit(1000), pytest.raises(StoreError, match=r"run\.json"):
        write_json(path, {"new": "x" * 5000})
    assert read_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
