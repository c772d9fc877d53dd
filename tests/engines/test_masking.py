from __future__ import annotations

import base64
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.engines.masking import key_mask

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
