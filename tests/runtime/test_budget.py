from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalray.runtime.budget import Budget
from evalray.types import Generation


def spent(cost: float | None = None, tokens: int | None = None, **more: Any) -> Generation:
    return Generation(cost_usd=cost, prompt_tokens=tokens, completion_tokens=tokens, **more)


def test_reached_is_said_once_and_stays() -> None:
    said: list[str] = []
    budget = Budget(max_tokens_total=10, on_reached=said.append)
    for _ in range(2):
        budget.count(spent(tokens=2))
    assert not budget.reached
    for _ in range(3):
        budget.count(spent(tokens=2))
    assert budget.tokens == 20
    assert len(said) == 1
    assert budget.reached == said[0]
    assert "12 tokens of max_tokens_total = 10" in said[0]


def test_dollars_of_answers_and_judges_count_together() -> None:
    budget = Budget(max_cost_usd=0.3)
    budget.count(spent(0.1))
    budget.count_judge({"cost_usd": 0.15, "calls": 2})
    budget.count_judge(None)
    assert not budget.reached
    budget.count(spent(0.1, error="cut short", error_kind="bad_response"))
    assert "max_cost_usd = 0.3" in budget.reached


@pytest.mark.parametrize("value", [None, float("nan"), -5, "many", True])
def test_what_is_not_measured_is_nothing(value: Any) -> None:
    budget = Budget(max_cost_usd=1.0, max_tokens_total=1)
    budget.count(spent(value, value))
    assert (budget.cost_usd, budget.tokens, budget.reached) == (0.0, 0, "")


def test_replies_from_the_cache_cost_nothing() -> None:
    budget = Budget(max_tokens_total=1)
    budget.count(spent(tokens=50, cached=True))
    assert budget.tokens == 0


def test_earlier_processes_count_with_all_they_paid_for(tmp_path: Path) -> None:
    run = tmp_path / "b_m"
    run.mkdir()
    answers = [
        {"generation": {"cost_usd": 0.5, "prompt_tokens": 3, "completion_tokens": 4}},
        {"generation": {"prompt_tokens": 10, "error": "late"}},
        {"generation": {"prompt_tokens": 99, "cached": True}},
        {"foreign": 1},
    ]
    (run / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in answers) + '{"torn')
    judged = {"judge": {"cost_usd": 0.25, "prompt_tokens": 1, "completion_tokens": 1}}
    (run / "scores.jsonl").write_text(json.dumps(judged) + "\n")
    budget = Budget(max_cost_usd=0.7)
    budget.count_journals(tmp_path)
    assert (budget.cost_usd, budget.tokens) == (0.75, 19)
    assert budget.reached
    unlimited = Budget()
    unlimited.count_journals(tmp_path)
    assert unlimited.tokens == 0


def test_a_larger_budget_is_of_the_limits_that_are_used_up() -> None:
    budget = Budget(max_cost_usd=1.0, max_tokens_total=1_000)
    assert budget.larger() == {}
    budget.count_judge({"cost_usd": 0.5, "prompt_tokens": 1_234, "completion_tokens": 0})
    assert budget.larger() == {"--max-tokens-total": 2_500}
    budget.count_judge({"cost_usd": 0.7})
    assert budget.larger() == {"--max-cost-usd": 2.4, "--max-tokens-total": 2_500}
