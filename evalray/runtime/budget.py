"""What a sweep may cost, over all its models and judges, and what it has cost so far.

Counts tokens and dollars of every generation and judgement that was journaled, those of earlier
processes of the same sweep included, failed and repeated ones too: what was paid is paid.  Answers
from the response cache cost nothing.  What nobody measured counts as 0.

Once the budget is reached nothing more is sent, and what is in flight ends: that is what the sweep
may overshoot by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.journal import parse, read_lines
from evalray.types import Generation


class Budget:
    """Limits of one sweep, either of them ``None``; used from the driver's loop.

    ``on_reached`` is called once, with the reason.
    """

    def __init__(
        self,
        max_cost_usd: float | None = None,
        max_tokens_total: int | None = None,
        on_reached: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.max_cost_usd = max_cost_usd
        self.max_tokens_total = max_tokens_total
        self.cost_usd = 0.0
        self.tokens = 0
        """Prompts and answers."""
        self.reached = ""
        """Empty while there is some left; then the reason."""
        self._on_reached = on_reached

    @property
    def is_limited(self) -> bool:
        return self.max_cost_usd is not None or self.max_tokens_total is not None

    def count(self, generation: Generation) -> None:
        """A generation that came back."""
        if not generation.cached:
            self._spend(generation.cost_usd, generation.prompt_tokens, generation.completion_tokens)

    def count_judge(self, judge: dict[str, Any] | None) -> None:
        """What asking the judge about one answer took, as its score is journaled with it."""
        if judge is not None:
            self._spend(judge.get("cost_usd"), judge.get("prompt_tokens"), judge.get("completion_tokens"))

    def count_journals(self, sweep: Path) -> None:
        """What is journaled in a sweep directory; blocks.  Reads nothing where there is no limit.

        Raises :class:`StoreError`.
        """
        if not self.is_limited:
            return
        for line in _lines(sweep, "generations.jsonl"):
            spent = line.get("generation")
            if isinstance(spent, dict) and not spent.get("cached"):
                self._spend(spent.get("cost_usd"), spent.get("prompt_tokens"), spent.get("completion_tokens"))
        for line in _lines(sweep, "scores.jsonl"):
            judge = line.get("judge")
            if isinstance(judge, dict):
                self.count_judge(judge)

    def _spend(self, cost_usd: Any, *tokens: Any) -> None:
        self.cost_usd += _number(cost_usd)
        self.tokens += int(sum(map(_number, tokens)))
        if not self.reached and (reason := self._why_reached()):
            self.reached = f"budget reached: {reason}; a larger one continues"
            self._on_reached(self.reached)

    def larger(self) -> dict[str, float]:
        """Limits that leave room to continue, by their flags, for those that are used up: twice what was spent."""
        found: dict[str, float] = {}
        if self.max_cost_usd is not None and self.cost_usd >= self.max_cost_usd:
            found["--max-cost-usd"] = float(f"{2 * self.cost_usd:.2g}")
        if self.max_tokens_total is not None and self.tokens >= self.max_tokens_total:
            found["--max-tokens-total"] = int(float(f"{2 * self.tokens:.2g}"))
        return found

    def _why_reached(self) -> str:
        if self.max_cost_usd is not None and self.cost_usd >= self.max_cost_usd:
            return f"${self.cost_usd:.4g} of max_cost_usd = {self.max_cost_usd:g}"
        if self.max_tokens_total is not None and self.tokens >= self.max_tokens_total:
            return f"{self.tokens} tokens of max_tokens_total = {self.max_tokens_total}"
        return ""


def _number(value: Any) -> float:
    """A server's count; what is no number, or negative, is nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e15 else 0.0


def _lines(sweep: Path, name: str) -> Iterator[dict[str, Any]]:
    try:
        paths = sorted(sweep.glob(f"*/{name}"))
    except OSError as error:
        raise StoreError(f"{sweep}: {error.strerror or error}") from error
    for path in paths:
        for _, line in read_lines(path):
            if (value := parse(line)) is not None:
                yield value
