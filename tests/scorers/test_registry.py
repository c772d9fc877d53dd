"""Building scorers by name, and telling one configuration from another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalray.errors import ConfigError
from evalray.scorers import SCORERS, Scorer, build_scorer, scorer_fingerprint


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_every_registered_scorer_builds_and_has_its_name(name: str) -> None:
    scorer = build_scorer(name)
    assert isinstance(scorer, Scorer)
    assert scorer.scorer_id == name


def test_arguments_reach_the_scorer() -> None:
    assert build_scorer("mcq", {"letters": "ABCD"}).letters == "ABCD"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("mqc", {}, "did you mean mcq?"),
        ("zzz", {}, "known: exact, frames, gaia, hle, math, mcq"),
        ("exact", {"ignore_cas": True}, "did you mean ignore_case?"),
        ("number", {"x": 1}, "takes: no arguments"),
        ("exact", {"ignore_case": "yes"}, "ignore_case"),
        ("exact", {"punctuation": "some"}, "punctuation"),
        ("exact", {"separator": ""}, "separator must not be empty"),
        ("mcq", {"letters": "a?"}, "capital letters"),
        ("gaia", {"headline": "best"}, "headline"),
        ("wildchat", {"headline": "official"}, "headline"),
        ("frames", {"judge": False}, "takes: no arguments"),
        ("no_such_module:X", {}, "cannot import no_such_module"),
        ("evalray.scorers.mcq:Nope", {}, "no Scorer class 'Nope'"),
        ("json:JSONDecoder", {}, "no Scorer class"),
        ("evalray.scorers.base:Scorer", {}, "scorer_id"),
    ],
)
def test_what_cannot_be_built_is_a_config_error_that_says_what_to_do(
    name: str, args: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build_scorer(name, args)
    assert expected in str(caught.value)


def test_all_wrong_arguments_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build_scorer("exact", {"ignore_case": 1, "punctuation": "x", "bogus": 1})
    assert {problem.key for problem in caught.value.problems} == {"ignore_case", "punctuation", "bogus"}


OWN = """
from evalray.scorers import Scorer

class Longer(Scorer):
    scorer_id = "longer"

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum

    def score(self, record, model_answer):
        return (len(model_answer) >= self.minimum if model_answer else None), {"length": len(model_answer)}
"""


def test_a_scorer_of_ones_own_is_built_by_module_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    (tmp_path / "own_length_scorer.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    from evalray.scorers import Answer

    scorer = build_scorer("own_length_scorer:Longer", {"minimum": 3})
    outcomes = [scorer.assess(record("x"), Answer(text)) for text in ("long", "no", "")]
    assert [score.outcome.value for score in outcomes if hasattr(score, "outcome")] == [
        "correct",
        "incorrect",
        "unparsed",
    ]
    with pytest.raises(ConfigError, match="missing argument"):
        build_scorer("own_length_scorer:Longer")


def test_a_fingerprint_follows_the_rules_and_arguments_and_nothing_else() -> None:
    first = scorer_fingerprint(build_scorer("exact", {"ignore_case": True}), {"ignore_case": True})
    again = scorer_fingerprint(build_scorer("exact", {"ignore_case": True}), {"ignore_case": True})
    other = scorer_fingerprint(build_scorer("exact", {"ignore_case": False}), {"ignore_case": False})
    assert first == again
    assert len({first, other, scorer_fingerprint(build_scorer("mcq"), {})}) == 3


def test_a_fingerprint_ignores_the_order_of_arguments() -> None:
    scorer = build_scorer("exact")
    left = scorer_fingerprint(scorer, {"ignore_case": True, "punctuation": "all"})
    assert left == scorer_fingerprint(scorer, {"punctuation": "all", "ignore_case": True})


def test_importing_the_scorers_loads_no_mathematics_library() -> None:
    code = "import sys, evalray.scorers as s; s.build_scorer('math'); print([m for m in ('sympy', 'math_verify', 'ray') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


JUDGE = {"model": "judge-1", "engine": "openai", "temperature": 0.0}


@pytest.mark.parametrize("name", ["frames", "hle", "simpleqa", "wildchat", "reasoning", "gaia"])
def test_a_fingerprint_follows_who_judges_where_a_judge_is_asked(name: str) -> None:
    scorer = build_scorer(name)
    prints = {
        scorer_fingerprint(scorer, {}, judge=judge) for judge in (None, JUDGE, {**JUDGE, "model": "judge-2"})
    }
    assert len(prints) == 3


@pytest.mark.parametrize(("name", "args"), [("exact", {}), ("mcq", {}), ("gaia", {"judge": False})])
def test_a_judge_that_is_never_asked_changes_no_fingerprint(name: str, args: dict[str, Any]) -> None:
    scorer = build_scorer(name, args)
    assert scorer_fingerprint(scorer, args, judge=JUDGE) == scorer_fingerprint(scorer, args)


@pytest.mark.parametrize(
    ("name", "args", "uses", "needs"),
    [
        ("exact", {}, False, False),
        ("math", {}, False, False),
        ("mcq", {}, False, False),
        ("mcq", {"judge": True}, True, False),
        ("gaia", {}, True, False),
        ("gaia", {"headline": "seed"}, True, True),
        ("gaia", {"judge": False, "headline": "seed"}, False, False),
        ("reasoning", {}, True, True),
        ("reasoning", {"judge": False}, False, False),
        ("frames", {}, True, True),
        ("hle", {}, True, True),
        ("simpleqa", {}, True, True),
        ("wildchat", {}, True, True),
    ],
)
def test_a_scorer_says_whether_it_uses_and_needs_a_judge(
    name: str, args: dict[str, Any], uses: bool, needs: bool
) -> None:
    scorer = build_scorer(name, args)
    assert (scorer.uses_judge, scorer.needs_judge) == (uses, needs)
