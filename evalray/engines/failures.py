"""Turn what a chat-completions server says about a failure into a :class:`RequestError`.

One table for every engine that speaks the protocol: which kind it is, whether asking again can
help, and a message of one line.  Server text is untrusted: a key it echoes is blanked, control
characters go, and then it is cut to ``MAX_MESSAGE`` characters.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
import time
from typing import Any

from evalray.engines.masking import REDACTED, key_mask
from evalray.errors import ErrorKind, RequestError

MAX_MESSAGE = 500

_CONTEXT = re.compile(
    r"context[_ ](?:length|size|window)|maximum context|max_model_len|exceed_context|"
    r"prompt is too long|too many (?:input )?tokens|input is too long|longer than the maximum model length",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ ](?:filter|policy)|content management policy", re.IGNORECASE)
_OUT_OF_QUOTA = re.compile(r"insufficient_quota|billing|credit balance", re.IGNORECASE)
_OVERLOADED = re.compile(r"overloaded|server is busy|too many requests", re.IGNORECASE)
#: How servers name what they cannot do, when the JSON schema of a reply is too much for them.
_SCHEMA = re.compile(
    r"response_format|schema|grammar|structured|guided|text\.format|output[_ ]format|"
    r"output_config(?!\.effort)",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

#: Statuses that pass by themselves: conflict and timeout of the server, too many requests, overload, 5xx.
_RETRYABLE = frozenset({408, 409, 425, 429, 529})


def one_line(text: str, secrets: tuple[str, ...] = (), limit: int = MAX_MESSAGE) -> str:
    """Untrusted text as one printable line of at most ``limit`` characters, without ``secrets``."""
    if secrets:
        text = key_mask(secrets)(text)
        for secret in filter(None, secrets):  # the short ones too: here no honest answer is at stake
            text = text.replace(secret, REDACTED)
    text = " ".join(_UNPRINTABLE.sub(" ", text[: 8 * limit]).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds a ``Retry-After`` header asks for: a number, or an HTTP date against ``now`` (Unix)."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = date.timestamp() - (time.time() if now is None else now)
    return max(0.0, seconds) if seconds == seconds and seconds != float("inf") else None


def error_from_body(
    status: int | None,
    body: Any,
    *,
    secrets: tuple[str, ...] = (),
    retry_after_seconds: float | None = None,
) -> RequestError:
    """Classify an error reply: an HTTP status with its body, or an ``error`` object within a stream.

    ``body`` is the parsed JSON, or text where it was none.  Without a status the body's own
    numeric ``code`` decides, as llama-server and vLLM send it.
    """
    message, code, details = _describe(body)
    where = "" if status is None else f"HTTP {status}: "
    if status is None:
        status = _numeric(details.get("code")) or _numeric(details.get("status")) or 500
    text = one_line(message, secrets) or "no message"
    kind, retryable = _classify(status, f"{code} {text}")
    if kind == "context_length":
        text = _context_message(details, text)
    overloaded = retryable and (status == 503 or bool(_OVERLOADED.search(f"{code} {text}")))
    return RequestError(
        kind,
        f"{where}{text}",
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
        overloaded=overloaded,
    )


def names_schema(message: str) -> bool:
    """Whether a refusal is about the JSON schema that the reply was to be held to."""
    return _SCHEMA.search(message) is not None


def connection_text(error: BaseException, secrets: tuple[str, ...] = ()) -> str:
    """What a client's error says, of a connection that was not made in plain words: whereto, and why not."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        cause = error.os_error
        number = cause.errno
        if number is None and (found := _ERRNO.search(str(cause))):
            number = int(found[1])
        # A resolver's numbers are negative and its own.
        why = os.strerror(number) if number is not None and number > 0 else cause.strerror or str(cause)
        return one_line(f"no connection to {error.host}:{error.port}: {why}", secrets)
    return one_line(str(error) or type(error).__name__, secrets)


def error_from_client(error: BaseException, secrets: tuple[str, ...] = ()) -> RequestError | None:
    """What aiohttp raised for one request, classified; ``None`` where it is nothing of the network's."""
    import aiohttp

    detail = connection_text(error, secrets)
    if isinstance(error, aiohttp.ClientPayloadError):
        return RequestError("bad_response", f"the reply was cut short: {detail}", retryable=True)
    if isinstance(error, (aiohttp.ClientSSLError, aiohttp.InvalidURL)):
        return RequestError("connection", detail)
    if isinstance(error, aiohttp.ClientResponseError):
        return RequestError("bad_response", f"not HTTP: {detail}", retryable=True)
    if isinstance(error, (aiohttp.ClientError, ConnectionError)):
        return RequestError("connection", detail, retryable=True)
    return None


def _classify(status: int, text: str) -> tuple[ErrorKind, bool]:
    if status in (400, 413, 422, 500) and _CONTEXT.search(text):
        return "context_length", False
    if status in (401, 402, 403):
        return "auth", False
    if status == 404:
        return "not_found", False
    if status in (429, 529):
        return "rate_limited", not _OUT_OF_QUOTA.search(text)
    if status in _RETRYABLE or status >= 500:
        return "server_error", True
    if 400 <= status < 500:
        return ("content_filter" if _FILTERED.search(text) else "bad_request"), False
    return "bad_response", False


def _describe(body: Any) -> tuple[str, str, dict[str, Any]]:
    """Message, symbolic code and the error object, from the shapes that servers use."""
    if not isinstance(body, dict):
        return (body if isinstance(body, str) else json.dumps(body, default=str)), "", {}
    error = body.get("error", body)
    if not isinstance(error, dict):
        return str(error), "", body
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    code = f"{error.get('code') or ''} {error.get('type') or ''}".strip()
    return (message if isinstance(message, str) else json.dumps(message, default=str)), code, error


def _context_message(details: dict[str, Any], text: str) -> str:
    prompt, context = details.get("n_prompt_tokens"), details.get("n_ctx")
    if isinstance(prompt, int) and isinstance(context, int):
        return f"the prompt has {prompt} tokens, the context {context}"
    return text


def _numeric(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:6])
    return value if isinstance(value, int) and 100 <= value < 600 else None
