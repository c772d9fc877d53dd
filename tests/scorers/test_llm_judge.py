"""Judge scorers of one's own in OpenJarvis's form."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evalray.backend import InferenceBackend
from evalray.errors import ConfigError, JudgeError
from evalray.scorers import Answer, LLMJudgeScorer, build_scorer
from evalray.types import EvalRecord, Outcome, Score

OWN = """
from evalray.scorers import LLMJudgeScorer

class Polite(LLMJudgeScorer):
    scorer_id = "polite"

    def __init__(self, judge_backend, judge_model, threshold: int = 3):
        super().__init__(judge_backend, judge_model)
        self.threshold = threshold

    def score(self, record, model_answer):
        reply = self._ask_judge(f"How polite, 1 to 5? {model_answer}", system="Be fair.")
        if not reply.isdigit():
            return None, {"raw_judge_output": reply}
        return int(reply) >= self.threshold, {"raw_judge_output": reply}
"""


class Replying(InferenceBackend):
    backend_id = "replying"

    def __init__(self, reply: str | Exception) -> None:
        self.reply = reply
        self.calls: list[dict[str, Any]] = []

    def generate(self, prompt: str, **settings: Any) -> str:
        self.calls.append({"prompt": prompt, **settings})
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def generate_full(self, prompt: str, **settings: Any) -> dict[str, Any]:
        return {"content": self.generate(prompt, **settings)}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_polite_scorer.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_polite_scorer:Polite"


RECORD = EvalRecord("r", "Greet me.", "", "chat")


def assess(scorer: Any, text: str = "Good day.") -> Score:
    result = scorer.assess(RECORD, Answer(text, "stop"))
    assert isinstance(result, Score)
    return result


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [("4", Outcome.CORRECT), ("1", Outcome.INCORRECT), ("very", Outcome.JUDGE_ERROR)],
)
def test_its_verdict_becomes_the_outcome(own: str, reply: str, outcome: Outcome) -> None:
    score = assess(build_scorer(own, judge_backend=Replying(reply), judge_model="judge-1"))
    assert score.outcome is outcome
    assert score.metadata["raw_judge_output"] == reply


def test_the_judge_is_asked_with_the_seeds_defaults(own: str) -> None:
    backend = Replying("4")
    assess(build_scorer(own, {"threshold": 2}, judge_backend=backend, judge_model="judge-1"))
    (call,) = backend.calls
    assert call == {
        "prompt": "How polite, 1 to 5? Good day.",
        "model": "judge-1",
        "system": "Be fair.",
        "temperature": 0.0,
        "max_tokens": 1024,
    }


def test_a_failed_judge_call_is_a_judge_error_and_never_text(own: str) -> None:
    backend = Replying(RuntimeError("400: max_tokens must be an integer"))
    score = assess(build_scorer(own, judge_backend=backend, judge_model="judge-1"))
    assert score.outcome is Outcome.JUDGE_ERROR
    assert score.metadata["reason"] == "judge_failed"
    assert "max_tokens must be an integer" in score.metadata["error"]


class Swallowing(LLMJudgeScorer):
    """Catches what the judge raises and calls the answer wrong, as some scorers do."""

    scorer_id = "swallowing"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        try:
            return self._ask_judge(model_answer) == "yes", {}
        except RuntimeError:
            return False, {"note": "caught"}


def test_a_judge_failure_that_the_scorer_swallows_is_still_a_judge_error() -> None:
    score = assess(Swallowing(Replying(RuntimeError("down")), "judge-1"))
    assert score.outcome is Outcome.JUDGE_ERROR
    assert score.metadata["note"] == "caught"


class Retrying(LLMJudgeScorer):
    scorer_id = "retrying"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        try:
            return self._ask_judge(model_answer) == "yes", {}
        except RuntimeError:
            self._judge_backend.reply = "yes"  # type: ignore[attr-defined]
            return self._ask_judge(model_answer) == "yes", {}


def test_a_judge_call_that_succeeds_on_the_scorers_own_retry_counts() -> None:
    assert assess(Retrying(Replying(RuntimeError("down")), "judge-1")).outcome is Outcome.CORRECT


class Broken(LLMJudgeScorer):
    scorer_id = "broken"

    def score(self, record: EvalRecord, model_answer: str) -> tuple[bool | None, dict[str, Any]]:
        self._ask_judge(model_answer)
        raise KeyError("my own mistake")


def test_the_scorers_own_error_is_raised_and_not_blamed_on_the_judge() -> None:
    with pytest.raises(KeyError):
        assess(Broken(Replying("yes"), "judge-1"))


def test_threads_do_not_see_each_others_failures() -> None:
    class Half(Replying):
        def generate(self, prompt: str, **settings: Any) -> str:
            if prompt.startswith("bad"):
                raise RuntimeError("down")
            return "yes"

    scorer = Swallowing(Half(""), "judge-1")
    texts = ["bad", "good"] * 50
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda text: assess(scorer, text), texts))
    expected = [Outcome.JUDGE_ERROR, Outcome.CORRECT] * 50
    assert [score.outcome for score in scores] == expected


def test_no_judge_is_asked_about_an_empty_answer() -> None:
    backend = Replying("yes")
    assert assess(Swallowing(backend, "judge-1"), " ").outcome is Outcome.UNPARSED
    assert backend.calls == []


def test_without_a_judge_it_is_built_and_its_arguments_checked_and_every_call_fails(own: str) -> None:
    scorer = build_scorer(own)
    assert scorer.needs_backend
    assert scorer.uses_judge
    score = assess(scorer)
    assert score.outcome is Outcome.JUDGE_ERROR
    assert "--judge-model" in score.metadata["error"]
    with pytest.raises(JudgeError):
        scorer._ask_judge("?")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="treshold"):
        build_scorer(own, {"treshold": 2})
    with pytest.raises(ConfigError, match="judge_model"):
        build_scorer(own, {"judge_model": "mine"})
