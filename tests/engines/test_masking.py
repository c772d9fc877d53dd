from __future__ import annotations

import base64
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.masking import key_mask, shown_url, url_secrets

KEY = "sk-A+b/c very=secret"
mask = key_mask((KEY,))


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        KEY.upper(),
        urllib.parse.quote(KEY, safe=""),
        urllib.parse.quote_plus(KEY),
        urllib.parse.quote(KEY, safe="").lower(),
    ],
)
def test_a_key_is_blanked_as_it_is_and_as_an_address_writes_it(echo: str) -> None:
    assert mask(f"the key {echo} is wrong") == "the key [redacted] is wrong"


@given(st.text(max_size=9), st.text(max_size=9))
def test_a_key_is_blanked_in_base64_wherever_it_stands(before: str, after: str) -> None:
    encoded = base64.b64encode(f"{before}{KEY}{after}".encode()).decode()
    assert "[redacted]" in mask(encoded)
    assert mask.finds(encoded)


@pytest.mark.parametrize("key", ["EMPTY", "none", "x"])
def test_a_placeholder_is_no_secret(key: str) -> None:
    assert key_mask((key,))(f"The answer is {key}.") == f"The answer is {key}."


@given(st.text(max_size=200))
def test_other_text_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize("key", ['sk-"quoted"-key', r"sk-back\slash-key", "sk-it's-a-key"])
def test_a_key_is_blanked_as_json_and_python_write_it(key: str) -> None:
    for written in (json.dumps({"key": key}), repr({"key": key}), repr([key, '"'])):
        assert "sk-" not in key_mask((key,))(written)
        assert "[redacted]" in key_mask((key,))(written)


def test_every_text_of_a_value_is_blanked() -> None:
    value = {"url": f"http://{KEY}@host", KEY: [1, None, (KEY, True)]}
    assert mask.all_of(value) == {
        "url": "http://[redacted]@host",
        "[redacted]": [1, None, ["[redacted]", True]],
    }


@pytest.mark.parametrize(
    ("url", "shown", "secrets"),
    [
        ("http://host:8000/v1", "http://host:8000/v1", ()),
        ("https://user:pass%40word@host/v1", "https://host/v1", ("pass%40word", "pass@word")),
        ("https://host/v1?api-version=2024-02-01", "https://host/v1", ()),
        ("https://host/v1?api-version=1&api-key=abc%20d", "https://host/v1", ("abc d",)),
        ("https://host/v1?sig=xyz", "https://host/v1", ("xyz",)),
        ("user:password@host/v1?token=t", "host/v1", ("t",)),
        ("http://[broken", "http://[broken", ()),
        ("localhost:8000", "localhost:8000", ()),
    ],
)
def test_an_address_is_shown_without_what_is_secret_of_it(
    url: str, shown: str, secrets: tuple[str, ...]
) -> None:
    assert (shown_url(url), url_secrets(url)) == (shown, secrets)
