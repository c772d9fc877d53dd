"""Each prompt asks for an answer in the form that the benchmark's scorer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import load_benchmark
from evalray.scorers import Answer, build_scorer
from evalray.scorers.base import JudgeCall
from evalray.types import Outcome, Score

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(file.parent.name for file in FOLDER.glob("*/benchmark.toml"))

#: Benchmark, what its prompt asks for, and a reply in that form.
FORMS = [
    ("supergpqa", 'as "Answer: X"', "Answer: {}"),
    ("mmlu-pro", 'as "Answer: X"', "Answer: {}"),
    ("gpqa", '"Answer: X"', "The second law rules A and B out.\n\nAnswer: {}"),
    ("math500", "\\boxed{...}", "So it is 7 at first, and then\n\\[ \\boxed{{{}}} \\]"),
    ("gaia", '"FINAL ANSWER: "', "I counted 3 and 4.\nFINAL ANSWER: {}"),
    ("natural-reasoning", '"Answer:"', "Step 1 is easy.\nAnswer: {}"),
    ("simpleqa", "short phrase", "{}"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_scorer_of_a_benchmark_can_be_built(name: str) -> None:
    benchmark = load_benchmark(FOLDER / name)
    build_scorer(benchmark.scorer, benchmark.scorer_args)


@pytest.mark.parametrize(("name", "asked", "form"), FORMS)
def test_the_reference_in_the_form_asked_for_is_right(name: str, asked: str, form: str, load: Any) -> None:
    benchmark = load_benchmark(FOLDER / name)
    scorer = build_scorer(benchmark.scorer, benchmark.scorer_args)
    verdicts: list[Score | JudgeCall] = []
    for record in load(name).iter_records():
        assert asked in record.problem
        answer = Answer(form.format(record.reference), "stop")
        verdicts.append(scorer.shortcut(record, answer) or scorer.assess(record, answer))
    judged = sum(isinstance(verdict, JudgeCall) for verdict in verdicts)
    assert judged == 0
    assert {verdict.outcome for verdict in verdicts if isinstance(verdict, Score)} == {Outcome.CORRECT}


@pytest.mark.parametrize("name", ["supergpqa", "mmlu-pro", "gpqa"])
def test_another_letter_is_wrong(name: str, load: Any) -> None:
    benchmark = load_benchmark(FOLDER / name)
    scorer = build_scorer(benchmark.scorer, benchmark.scorer_args)
    for record in load(name).iter_records():
        other = "A" if record.reference != "A" else "B"
        verdict = scorer.assess(record, Answer(f"Answer: {other}", "stop"))
        assert isinstance(verdict, Score)
        assert verdict.outcome is Outcome.INCORRECT
