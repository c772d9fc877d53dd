"""The error model.

Where something goes wrong decides what becomes of it:

* **Before anything starts** -- a suite, a flag, a benchmark folder: :class:`ConfigError`, which
  carries *every* problem found; the command ends with exit code 2.
* **One cell of the matrix** -- its data cannot be had: :class:`DatasetError`; an engine does not
  come up: :class:`EngineStartError`; nowhere to put it: :class:`PlacementError`.  That cell is
  reported and the sweep goes on.
* **One request** -- :class:`RequestError`, classified where it is caught (inside the engine's own
  file) by an :data:`ErrorKind`.  Retried if ``retryable``; what is left after the retries is data:
  a generation with ``error`` set, outcome ``engine_error``, never text for a scorer.
* **A whole engine** -- :class:`EngineDied`: the replica is replaced and what it had in flight is
  queued again.
* **One score** -- whatever a scorer raises becomes ``scorer_error`` on that sample; a judge that
  could not be asked is :class:`JudgeError`, outcome ``judge_error``, never text for a scorer.
* **The run directory** -- :class:`StoreError` (not writable, locked), :class:`DiskFullError`: the sweep
  stops; what is journaled stays, and the same command continues.
* **The tracker** -- :class:`TrackingError`: reported, never fatal.

Messages say what is wrong, where, and what to do, in one line.  This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal[
    "auth",  # 401, 403: wrong or missing key
    "not_found",  # 404: no such model or route
    "bad_request",  # 400, 422 other than the context
    "context_length",  # prompt, or prompt and answer, over the context
    "rate_limited",  # 429, 529
    "server_error",  # 5xx
    "connection",  # refused, reset, DNS, TLS
    "timeout",  # the request's deadline passed
    "bad_response",  # not the protocol: garbage, a stream cut short
    "content_filter",  # refused by the provider before generating
    "engine_died",  # the replica was lost and the sample could not be placed again
    "quarantined",  # this very sample ended two engines
    "engine",  # anything else the engine raised
]


class EvalRayError(Exception):
    """Base of every error we raise on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a configuration: where it stands, what is wrong, what would be right."""

    source: str
    """File or flag."""
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}" if self.key else self.source
        return f"{where}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(EvalRayError):
    """A suite, flag or benchmark definition is wrong; carries every problem found.  Exit code 2."""

    def __init__(self, problems: list[Problem] | str, source: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem(source or "evalray", "", problems)]
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


class DatasetError(EvalRayError):
    """A benchmark's data cannot be loaded.  ``gated`` when only terms or a token are missing."""

    def __init__(self, message: str, *, gated: bool = False) -> None:
        super().__init__(message)
        self.gated = gated


class PlacementError(EvalRayError):
    """The cluster cannot host a deployment; the message names the resources that are missing."""


class EngineStartError(EvalRayError):
    """An engine did not come up."""


class EngineDied(EvalRayError):  # noqa: N818 -- an event of the engine, named as Ray names its own
    """The engine as a whole is gone; no further request can succeed on it."""


class RequestError(EvalRayError):
    """One request failed.

    ``retry_after_seconds`` is the server's wish where it gave one.  ``overloaded``: the server refused it
    for its load or rate, so that fewer at once may help; default for a retryable ``rate_limited``.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        overloaded: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.overloaded = overloaded or (kind == "rate_limited" and retryable)


class JudgeError(EvalRayError):
    """A judge could not be asked: none is configured, or its call failed after its retries."""


class StoreError(EvalRayError):
    """The run directory cannot be written, read or locked."""


class DiskFullError(StoreError):
    """No room is left for the run directory.  One cause, however many files meet it: it is said once."""


class TrackingError(EvalRayError):
    """The tracking server refused or was not there."""
