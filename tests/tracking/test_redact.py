"""No secret leaves for a tracking server, by whichever road it came."""

from __future__ import annotations

import pytest

from evalray.tracking.redact import is_secret_name, redact, redact_text, secrets_of


@pytest.mark.parametrize(
    "name",
    ["api_key", "API-Key", "apikey", "openai_api_key", "Authorization", "hf_token", "token", "password", "x-api-key",
     "client_secret", "aws_secret_key", "headers.Cookie", "credentials", "private_key", "auth_token"],
)  # fmt: skip
def test_a_name_that_says_secret_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["api_key_env", "max_tokens", "tokenizer", "completion_tokens", "stop_token_ids", "key", "engine_key", "monkey",
     "judge_api_key_env", "skip_special_tokens"],
)  # fmt: skip
def test_a_name_that_only_resembles_one_is_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcdefghijklmnop1234",
        "hf_abcdefghijklmnopqrst",
        "Authorization: Bearer abcdef123456",
        "http://user:hunter22@host/v1",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_abcdefghijklmnopqrst12",
    ],
)
def test_a_text_that_looks_like_a_secret_loses_it(text: str) -> None:
    safe = redact_text(f"before {text} after")
    assert text not in safe
    assert "***" in safe
    assert safe.startswith("before ")
    assert safe.endswith(" after")


def test_the_value_of_a_secret_variable_is_found_in_any_text() -> None:
    environment = {"MY_SERVICE_TOKEN": "plainlooking", "HOME": "/home/somebody", "SHORT_KEY": "abc"}
    assert secrets_of(environment) == ("plainlooking",)
    assert redact_text("url?t=plainlooking&h=/home/somebody", environment) == "url?t=***&h=/home/somebody"


def test_a_nested_configuration_keeps_everything_but_its_secrets() -> None:
    config = {
        "engine_args": {
            "headers": [{"Authorization": "Basic abc"}],
            "api_key": "k",
            "max_tokens": 5,
            "token": None,
        },
        "base_url": "http://u:p@h/v1",
        "api_key_env": "OPENAI_API_KEY",
    }
    assert redact(config) == {
        "engine_args": {
            "headers": [{"Authorization": "***"}],
            "api_key": "***",
            "max_tokens": 5,
            "token": None,
        },
        "base_url": "http://***@h/v1",
        "api_key_env": "OPENAI_API_KEY",
    }
