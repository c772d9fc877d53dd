"""A scorer's code may be anybody's: what it gives back is a verdict, or an exception that says what it was.

Nothing a scorer does ends the sweep: an exit is an exception like any other, and what is no verdict
is never taken for one.
"""

from __future__ import annotations

from collections.abc import Callable

from evalray.scorers.base import JudgeCall
from evalray.types import Outcome, Score

_MAX_DETAIL_CHARS = 500


def verdict_of(decide: Callable[[], object]) -> Score | JudgeCall:
    """What ``decide`` returns.  Raises what it raises, ``RuntimeError`` for an exit of it, and
    ``TypeError`` where it returns something else."""
    try:
        verdict = decide()
    except SystemExit as error:
        raise RuntimeError(f"the scorer called sys.exit({error.code!r})") from error
    if isinstance(verdict, Score | JudgeCall):
        return verdict
    raise TypeError(f"the scorer returned {_kind(verdict)} where a Score is expected")


def score_of(decide: Callable[[], object]) -> Score:
    """As :func:`verdict_of`, where no further question may be asked."""
    verdict = verdict_of(decide)
    if isinstance(verdict, Score):
        return verdict
    raise TypeError("the scorer asks a judge again, where a Score is expected")


def failed_score(error: BaseException) -> Score:
    """``scorer_error`` with what was raised."""
    try:
        detail = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 -- an exception that cannot say what it is
        detail = type(error).__name__
    return Score(Outcome.SCORER_ERROR, metadata={"reason": "exception", "error": detail[:_MAX_DETAIL_CHARS]})


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
