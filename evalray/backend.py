"""A model behind one blocking call: text in, text out.

The interface that OpenJarvis gives its backends.  Judge scorers of one's own are given one
(:class:`evalray.scorers.LLMJudgeScorer`); in a sweep it leads to the judge's engine actors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class InferenceBackend(ABC):
    """Blocking calls to one model or several.  Raises for a call that failed; never returns error text."""

    backend_id: ClassVar[str]

    @abstractmethod
    def generate(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> str:
        """The model's reply to one user message."""

    @abstractmethod
    def generate_full(
        self, prompt: str, *, model: str, system: str = "", temperature: float = 0.0, max_tokens: int = 2048
    ) -> dict[str, Any]:
        """The reply with ``content``, ``usage`` (``prompt_tokens``, ``completion_tokens``), ``model``,
        ``latency_seconds`` and ``cost_usd``; ``None`` where one was not measured."""

    def close(self) -> None:  # noqa: B027  (optional, not abstract)
        """Release connections and handles."""
