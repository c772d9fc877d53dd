"""The chat-completions protocol: request bodies out, chunks in.

Shared by every engine that speaks it, over HTTP or in process.  Parsing is lenient where servers
differ (missing fields, ``null``, invalid UTF-8, raw control characters) and strict where the
answer would suffer: what is not an object of the protocol is ``bad_response``.
"""

from __future__ import annotations

import json
from typing import Any

from evalray.engines.base import Chunk, Usage
from evalray.engines.failures import error_from_body, one_line
from evalray.engines.figures import count_of, measure_of, measures_of
from evalray.errors import RequestError
from evalray.types import GenerationRequest

_FAILED = ("abort", "error")
"""Finish reasons by which servers and gateways say that they, not the model, ended the reply."""

# strict=False: raw control characters (NUL included) inside strings are text, not an error.
_decode = json.JSONDecoder(strict=False).decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def chat_body(model: str, request: GenerationRequest) -> dict[str, Any]:
    """The request's parameters under their protocol names; what is ``None`` is not sent."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": request.messages,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = sampling.stop
    return body


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The ``response_format`` by which a server holds the reply to a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}


def encode_body(body: dict[str, Any]) -> bytes:
    """JSON in UTF-8.  A lone surrogate, which no tokenizer takes, becomes ``?``."""
    return _encode(body).encode("utf-8", "replace")


def decode_json(data: bytes | str, secrets: tuple[str, ...] = ()) -> Any:
    """Parse JSON; raises :class:`RequestError` (``bad_response``, retryable) where it is none."""
    try:
        return _decode(data if isinstance(data, str) else data.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        assert isinstance(data, bytes)
        return decode_json(data.decode("utf-8", "replace"), secrets)
    except (ValueError, RecursionError) as error:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        shown = one_line(text, secrets, limit=200)
        raise RequestError(
            "bad_response", f"not JSON: {shown!r} ({type(error).__name__})", retryable=True
        ) from None


def parse_chunk(event: Any, secrets: tuple[str, ...] = ()) -> Chunk | None:
    """One streamed object as a chunk, or ``None`` where it carries nothing.

    Raises :class:`RequestError` for an ``error`` object or for anything that is not the protocol.
    """
    try:
        if event.get("error"):
            raise error_from_body(None, event, secrets=secrets)
        choices = event.get("choices")
        chunk = Chunk()
        useful = False
        if choices:
            choice = choices[0]
            delta = choice.get("delta")
            if delta:
                content = delta.get("content")
                if content:
                    chunk.text = _text(content)
                    useful = True
                elif refusal := delta.get("refusal"):
                    chunk.text = _text(refusal)
                    chunk.refused = useful = True
                reasoning = delta.get("reasoning_content") or delta.get("reasoning")
                if reasoning:
                    chunk.reasoning = _text(reasoning)
                    useful = True
            finish = choice.get("finish_reason")
            if finish:
                chunk.finish_reason = _finish_reason(finish)
                useful = True
        elif choices is None:
            raise _not_the_protocol(event, secrets)
        usage = event.get("usage")
        if usage:
            _add_usage(chunk, usage)
            useful = True
        timings = event.get("timings")
        if timings:
            chunk.timings = measures_of(_table(timings))
            useful = True
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise _not_the_protocol(event, secrets) from error
    return chunk if useful else None


def parse_completion(reply: Any, secrets: tuple[str, ...] = ()) -> Chunk:
    """A reply that came in one piece, as its only chunk.  Raises as :func:`parse_chunk` does."""
    try:
        if reply.get("error"):
            raise error_from_body(None, reply, secrets=secrets)
        choices = reply.get("choices")
        if not choices:
            raise _not_the_protocol(reply, secrets)
        choice = choices[0]
        message = choice.get("message") or {}
        content, refusal = message.get("content"), message.get("refusal")
        chunk = Chunk(
            text=_text(content or refusal or ""),
            reasoning=_text(message.get("reasoning_content") or message.get("reasoning") or ""),
            finish_reason=_finish_reason(choice.get("finish_reason")),
            whole=True,
            refused=bool(refusal and not content),
        )
        if usage := reply.get("usage"):
            _add_usage(chunk, usage)
        if timings := reply.get("timings"):
            chunk.timings = measures_of(_table(timings))
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise _not_the_protocol(reply, secrets) from error
    return chunk


def has_choice(event: Any) -> bool:
    """Whether a streamed object is a piece of a reply, rather than counts or a sign of life."""
    return isinstance(event, dict) and bool(event.get("choices"))


def _finish_reason(value: Any) -> str | None:
    """The reason as the server gives it; one that means the server's own failure is an error."""
    if value in _FAILED:
        raise RequestError("server_error", f"the server gave the reply up ({value})", retryable=True)
    return None if value is None else str(value)


def _add_usage(chunk: Chunk, usage: Any) -> None:
    """Counts in another shape were not measured; the answer beside them was given, and paid for."""
    if not isinstance(usage, dict):
        return
    prompt = _table(usage.get("prompt_tokens_details"))
    completion = _table(usage.get("completion_tokens_details"))
    chunk.usage = Usage(
        prompt_tokens=count_of(usage.get("prompt_tokens")),
        completion_tokens=count_of(usage.get("completion_tokens")),
        cached_tokens=count_of(prompt.get("cached_tokens")),
        reasoning_tokens=count_of(completion.get("reasoning_tokens")),
    )
    chunk.cost_usd = measure_of(usage.get("cost"))


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    """Content is a string, or a list of parts of which those with text count."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if isinstance(part.get("text"), str))


def _not_the_protocol(event: Any, secrets: tuple[str, ...]) -> RequestError:
    shown = one_line(json.dumps(event, default=str), secrets, limit=300)
    return RequestError("bad_response", f"not a chat-completions reply: {shown}", retryable=True)
