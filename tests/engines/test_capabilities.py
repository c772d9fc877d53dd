from __future__ import annotations

from typing import Any

import pytest

from evalray.engines.capabilities import Capabilities, ParameterFilter, find_capabilities

WANTED = {"max_tokens": 16, "temperature": 0.0, "top_p": 0.9}


@pytest.mark.parametrize(
    ("vendor", "model", "takes_temperature"),
    [
        ("openai", "gpt-4o", True),
        ("openai", "gpt-4.1-mini", True),
        ("openai", "gpt-5", False),
        ("openai", "gpt-5-mini-2025-08-07", False),
        ("openai", "gpt-5-chat-latest", True),
        ("openai", "gpt-5.2-chat-latest", True),
        ("openai", "gpt-6-sol", False),
        ("openai", "o3", False),
        ("openai", "o4-mini-2025-04-16", False),
        ("openai", "chatgpt-4o-latest", True),
        ("openai", "my-own-model", True),
        ("openai", "llama-3", True),
        ("anthropic", "claude-sonnet-4-5", True),
        ("anthropic", "claude-opus-4-6", True),
        ("anthropic", "claude-opus-4-7", False),
        ("anthropic", "claude-haiku-5-5", False),
        ("anthropic", "claude-3-5-haiku-20241022", True),
        ("anthropic", "SmolLM2", True),
    ],
)
def test_what_a_model_refuses_is_known_beforehand(vendor: str, model: str, takes_temperature: bool) -> None:
    sent, left_out = ParameterFilter(find_capabilities(vendor, model)).select({"temperature": 0.0})
    assert (sent, left_out) == (({"temperature": 0.0}, []) if takes_temperature else ({}, ["temperature"]))


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [("gpt-5.2", "none", True), ("gpt-5.2", "low", False), ("gpt-5.2", None, False)],
)
def test_without_reasoning_a_reasoning_model_samples(model: str, effort: str | None, sent: bool) -> None:
    chosen = ParameterFilter(find_capabilities("openai", model), effort=effort)
    assert ("temperature" in chosen.select(dict(WANTED))[0]) == sent


def test_of_two_that_do_not_go_together_the_first_is_sent() -> None:
    chosen = ParameterFilter(find_capabilities("anthropic", "claude-opus-4-6"))
    assert chosen.select(dict(WANTED)) == ({"max_tokens": 16, "temperature": 0.0}, ["top_p"])


@pytest.mark.parametrize(
    ("status", "message", "parameter", "left"),
    [
        (
            400,
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "temperature",
            ["temperature"],
        ),
        (
            400,
            "Unsupported value: 'temperature' does not support 0.0 with this model.",
            None,
            ["temperature"],
        ),
        (400, "`temperature` is deprecated for this model.", None, ["temperature"]),
        (400, "temperature: Extra inputs are not permitted", None, ["temperature"]),
        (400, "`temperature` and `top_p` cannot both be specified for this model", None, ["top_p"]),
        (422, "unknown field: top_p", None, ["top_p"]),
        (400, "the temperature of the prompt is fine, but something else broke", None, []),
        (400, "Unsupported parameter: 'top_k'", "top_k", []),
        (400, "Unsupported value: 'max_tokens' is not valid", "max_tokens", []),
        (500, "Unsupported parameter: 'temperature'", "temperature", []),
        (429, "temperature is not supported", "temperature", []),
    ],
)
def test_a_refusal_is_learnt_where_it_names_what_was_sent(
    status: int, message: str, parameter: str | None, left: list[str]
) -> None:
    chosen = ParameterFilter(Capabilities())
    sent, _ = chosen.select(dict(WANTED))
    assert chosen.learn(status, message, parameter, sent) == bool(left)
    assert chosen.select(dict(WANTED))[1] == left


def test_another_name_for_the_limit_is_learnt() -> None:
    chosen = ParameterFilter(Capabilities())
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    assert chosen.learn(400, message, "max_tokens", dict(WANTED))
    sent, left_out = chosen.select(dict(WANTED))
    assert (sent["max_completion_tokens"], "max_tokens" in sent, left_out) == (16, False, [])
    assert not chosen.learn(400, message, "max_tokens", sent)


def test_what_a_user_asks_for_by_name_is_never_dropped() -> None:
    chosen = ParameterFilter(Capabilities())
    sent: dict[str, Any] = {"reasoning_effort": "max", "thinking": {"type": "adaptive"}}
    assert not chosen.learn(400, "Unsupported parameter: 'reasoning_effort', 'thinking'", None, sent)


@pytest.mark.parametrize(
    ("name", "message", "parameter", "left_out"),
    [
        ("response_format", "'response_format' of type 'json_schema' is not supported", None, True),
        ("response_format", "invalid value: `json_schema`, supported values are: `json_object`", None, True),
        ("response_format", "Unable to compile the grammar", None, True),
        ("text.format", "this cannot be done", "text.format", True),
        ("output_config.format", "output_config.format: Extra inputs are not permitted", None, True),
        ("output_config.format", "output_config: Extra inputs are not permitted", None, True),
        ("output_config.format", "claude-x does not support output format", None, True),
        ("output_config.format", "output_config.effort: xhigh is not supported", None, False),
        ("output_config.format", "messages: at least one message is required", None, False),
    ],
)
def test_a_refused_schema_is_learnt_in_every_wording(
    name: str, message: str, parameter: str | None, left_out: bool
) -> None:
    chosen = ParameterFilter(Capabilities())
    sent, _ = chosen.select({**WANTED, name: {"type": "json_schema"}})
    assert chosen.learn(400, message, parameter, sent) == left_out
    assert chosen.select({**WANTED, name: {}})[1] == ([name] if left_out else [])


def test_a_refusal_of_something_else_leaves_the_schema() -> None:
    chosen = ParameterFilter(Capabilities())
    sent, _ = chosen.select({**WANTED, "response_format": {}})
    assert chosen.learn(400, "Unsupported parameter: 'temperature'", "temperature", sent)
    assert chosen.select({**WANTED, "response_format": {}})[1] == ["temperature"]
