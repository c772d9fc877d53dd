"""The circuit breaker: the same failure so often in a row that going on would only waste requests."""

from __future__ import annotations

import re

from evalray.wording import counted

_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)


def normalise_message(message: str) -> str:
    """A failure's text without what differs from request to request: numbers, addresses, ids."""
    return _VARIABLE.sub("#", message)[:200]


class CircuitBreaker:
    """Opens after ``threshold`` consecutive failures of one kind and wording, in order of completion.

    Any success, or a failure of another sort, starts the count again.  A threshold of 0 never opens.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self._last: tuple[str, str] | None = None
        self._count = 0
        self.reason = ""
        """Empty while closed; what happened once open."""

    @property
    def is_open(self) -> bool:
        return bool(self.reason)

    def success(self) -> None:
        self._last, self._count = None, 0

    def failure(self, kind: str, message: str) -> bool:
        """Count one failure; whether the breaker is open now."""
        key = (kind, normalise_message(message))
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        if self.threshold and self._count >= self.threshold and not self.is_open:
            self.reason = (
                f"{counted(self._count, 'request')} in a row failed the same way ({kind}: {message[:200]})"
            )
        return self.is_open
