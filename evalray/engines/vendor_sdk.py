"""What the vendors' SDKs have in common: keys, settings, and errors as :class:`RequestError`.

OpenAI's and Anthropic's Python SDKs are built alike: the same error classes under the same names,
over the same HTTP client.  Retries are ours (one place for all engines), so the SDKs' own are off.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

from evalray.engines.base import EngineConfig
from evalray.engines.failures import error_from_body, one_line, parse_retry_after
from evalray.engines.http_body import redirected
from evalray.errors import EngineStartError, RequestError

CONNECT_SECONDS = 20.0
_PROBE_SECONDS = 15.0
_PROBE_ATTEMPTS = 3
_PROBE_PAUSE_SECONDS = 0.5

#: Vendors' symbolic error types, as the HTTP status they stand for: within a stream there is no other.
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def read_key(config: EngineConfig, default_variable: str) -> tuple[str, str]:
    """The key and the name of its variable; raises :class:`EngineStartError` before any request."""
    variable = config.api_key_env or default_variable
    key = os.environ.get(variable, "").strip()
    if not key:
        raise EngineStartError(
            f"environment variable {variable} is not set here: export it, or name another in api_key_env"
        )
    if not (key.isascii() and key.isprintable()):
        raise EngineStartError(f"the key in {variable} holds characters that no header takes")
    return key, variable


def import_sdk(name: str) -> ModuleType:
    """The SDK; raises :class:`EngineStartError` with how to install it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineStartError(
            f"engine {name!r} needs the package {name}: pip install {name} ({one_line(str(error))})"
        ) from None


def check_effort(model: str, effort: Any, efforts: tuple[str, ...] | None) -> str | None:
    """``effort`` where the model is known to take it, or nothing is known of it."""
    if effort is None:
        return None
    if not isinstance(effort, str):
        raise EngineStartError("engine_args.reasoning_effort must be a word, such as 'low'")
    if efforts is not None and effort not in efforts:
        hint = f"it takes {', '.join(efforts)}" if efforts else "it has none: leave it out"
        raise EngineStartError(f"model {model} does not take reasoning_effort = {effort!r}: {hint}")
    return effort


async def probe(
    ask: Callable[[], Coroutine[Any, Any, Any]],
    *,
    secrets: tuple[str, ...],
    variable: str,
    model: str,
    own_server: bool,
) -> Any | None:
    """Ask the vendor about the model, which costs nothing: what it says, or ``None`` where it does not.

    Raises :class:`EngineStartError` for a refused key, an unknown model, or a server that cannot be
    reached.  On the user's own server (``own_server``) the question may be unknown, and that is fine;
    so is a key that may ask the model and not about it (403).
    """
    for attempts_left in reversed(range(_PROBE_ATTEMPTS)):
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                return await ask()
        except TimeoutError:
            raise EngineStartError(
                f"the server did not answer within {_PROBE_SECONDS:g} s: check base_url and the network"
            ) from None
        except Exception as error:  # noqa: BLE001 -- classified here, whatever the SDK raises
            failure = request_error(error, secrets, variable)
            if getattr(error, "status_code", None) == 401:
                raise EngineStartError(str(failure)) from None
            if failure.kind == "not_found" and not own_server:
                raise EngineStartError(f"model {model!r} is not known to this account: {failure}") from None
            if failure.kind != "connection":
                return None
            if not (failure.retryable and attempts_left):
                raise EngineStartError(
                    f"the server cannot be reached: {failure}: check base_url and the network"
                ) from None
            await asyncio.sleep(_PROBE_PAUSE_SECONDS)
    return None


def request_error(
    error: BaseException, secrets: tuple[str, ...], variable: str, *, streaming: bool = False
) -> RequestError:
    """What an SDK raised, classified.  ``streaming``: after the reply had begun."""
    if isinstance(error, RequestError):
        return error
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and response is not None and "ValidationError" not in type(error).__name__:
        return _from_status(error, status, response, secrets, variable)
    body = getattr(error, "body", None)
    if isinstance(body, dict):  # an error object within OpenAI's stream
        return error_from_body(_status_of(body), {"error": body}, secrets=secrets)
    tls = _tls_problem(error)
    if tls is not None:
        return RequestError("connection", f"TLS: {one_line(tls, secrets)}")
    detail = one_line(_cause(error), secrets)
    if isinstance(error, (ValueError, UnicodeError)) or "ValidationError" in type(error).__name__:
        return RequestError("bad_response", f"not the protocol: {detail}", retryable=True)
    if streaming:
        return RequestError("bad_response", f"the reply was cut short: {detail}", retryable=True)
    if _is_network(error):
        return RequestError("connection", detail, retryable=True)
    return RequestError("engine", f"{type(error).__name__}: {detail}")


def _from_status(
    error: BaseException, status: int, response: Any, secrets: tuple[str, ...], variable: str
) -> RequestError:
    body = getattr(error, "body", None)
    if 300 <= status < 400:
        return redirected(status, response.headers.get("location"), secrets)
    if status < 400:  # an error event within a stream that began well
        inner = body.get("error", body) if isinstance(body, dict) else {}
        status = _status_of(inner if isinstance(inner, dict) else {}) or 500
    headers = response.headers
    wait = parse_retry_after(headers.get("retry-after"))
    milliseconds = parse_retry_after(headers.get("retry-after-ms"))
    if milliseconds is not None:
        wait = milliseconds / 1000
    failure = error_from_body(
        status, str(error) if body is None else body, secrets=secrets, retry_after_seconds=wait
    )
    if failure.kind == "auth" and status != 402:
        failure.args = (f"{failure}; check the key in {variable}",)
    return failure


def _status_of(error: dict[str, Any]) -> int | None:
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and value in _STATUS_OF_TYPE:
            return _STATUS_OF_TYPE[value]
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what led to it, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 10:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _tls_problem(error: BaseException) -> str | None:
    for link in _chain(error):
        if isinstance(link, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(link):
            return str(link)
    return None


def _cause(error: BaseException) -> str:
    """The most telling words of the chain: an SDK's own are often just "Connection error."."""
    words = [str(link) for link in _chain(error) if str(link)]
    if not words:
        return type(error).__name__
    return words[0] if len(words) == 1 or words[-1] == words[0] else f"{words[0]} ({words[-1]})"


def _is_network(error: BaseException) -> bool:
    names = {base.__name__ for link in _chain(error) for base in type(link).__mro__}
    return bool(names & {"APIConnectionError", "TransportError", "ConnectionError", "OSError"})
