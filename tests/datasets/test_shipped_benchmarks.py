"""The data that comes with EvalRay: loads, and its gold answers are right."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from evalray.benchmarks import load_benchmark
from evalray.datasets import open_dataset
from evalray.prompts import fewshot_messages
from evalray.types import RunConfig

ROOT = Path(__file__).parents[2]
GSM8K = ROOT / "benchmarks" / "gsm8k"
QUICKSTART = ROOT / "benchmarks" / "quickstart"
SHARED_GSM8K = ROOT.parent / "shared" / "data" / "gsm8k" / "test-400.jsonl"

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(expression: str) -> Fraction:
    def walk(node: ast.expr) -> Fraction:
        match node:
            case ast.BinOp(left, op, right):
                return OPERATORS[type(op)](walk(left), walk(right))
            case ast.UnaryOp(ast.USub(), operand):
                return -walk(operand)
            case ast.Constant(value):
                return Fraction(str(value))
        raise AssertionError(f"unexpected {ast.dump(node)}")

    return walk(ast.parse(expression, mode="eval").body)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run(benchmark: str, **settings) -> RunConfig:
    return RunConfig(benchmark, "llamacpp", "m", **settings)


@pytest.mark.parametrize(
    "row",
    rows_of(GSM8K / "sample.jsonl") + rows_of(GSM8K / "fewshot.jsonl"),
    ids=lambda r: r["question"][:30],
)
def test_every_calculation_of_a_word_problem_is_right(row: dict[str, str]) -> None:
    *steps, last = row["answer"].split("\n")
    calculations = re.findall(r"<<(.+?)=(.+?)>>([\d,.]*\d)", row["answer"])
    assert len(calculations) >= 2
    for expression, result, shown in calculations:
        assert value_of(expression) == Fraction(result) == Fraction(shown.replace(",", ""))
    assert all("<<" in step for step in steps)
    # what is written out before a calculation is what is calculated
    for step in steps:
        for prose, expression in re.findall(r"([-\d().][-+*/\d().\s]*?) = \$?<<(.+?)=", step):
            assert value_of(prose) == value_of(expression)
    assert last == f"#### {calculations[-1][1]}"
    # every number of a calculation comes from the question, from an earlier step, or is said in words
    known = set(re.findall(r"\d+(?:\.\d+)?", row["question"].replace(",", "")))
    for expression, result, _ in calculations:
        derived = [n for n in re.findall(r"\d+(?:\.\d+)?", expression) if n not in known]
        assert len(derived) <= 2, (expression, derived)
        known.add(result)


def test_gsm8k_sample_is_large_enough_and_loads_whole() -> None:
    provider = open_dataset(load_benchmark(GSM8K), run("gsm8k", data="sample"))
    provider.load(seed=42)
    assert provider.size() >= 30
    assert provider.bad_row_count == 0
    assert provider.warnings == []
    for record in provider.iter_records():
        Fraction(record.reference)
        assert "####" in record.problem


def test_gsm8k_has_examples_to_show() -> None:
    turns = fewshot_messages(load_benchmark(GSM8K), 4)
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 4
    assert all("####" in turn["content"] for turn in turns)


def test_gsm8k_examples_are_not_in_the_sample() -> None:
    sample = {row["question"] for row in rows_of(GSM8K / "sample.jsonl")}
    assert sample.isdisjoint(row["question"] for row in rows_of(GSM8K / "fewshot.jsonl"))


@pytest.mark.skipif(not SHARED_GSM8K.is_file(), reason="needs the GSM8K test questions beside the checkout")
def test_gsm8k_reads_the_columns_of_the_hub() -> None:
    provider = open_dataset(load_benchmark(GSM8K), run("gsm8k", data=str(SHARED_GSM8K)))
    provider.load(seed=42)
    assert provider.size() == 400
    assert provider.bad_row_count == 0
    assert all(Fraction(record.reference.replace(",", "")) for record in provider.iter_records())


def test_quickstart_questions_are_well_formed_and_balanced() -> None:
    rows = rows_of(QUICKSTART / "sample.jsonl")
    assert len(rows) >= 60
    assert len({row["id"] for row in rows}) == len({row["question"] for row in rows}) == len(rows)
    for row in rows:
        assert len(set(row["choices"])) == 4
    gold = Counter(row["answer"] for row in rows)
    assert set(gold) == set("ABCD")
    assert max(gold.values()) - min(gold.values()) <= 2
    assert min(Counter(row["subject"] for row in rows).values()) >= 5


def test_quickstart_arithmetic_is_right() -> None:
    words = {"+": "+", "times": "*", "minus": "-", "divided by": "/"}
    checked = 0
    for row in rows_of(QUICKSTART / "sample.jsonl"):
        found = re.fullmatch(r"What is (\d+) (\+|times|minus|divided by) (\d+)\?", row["question"])
        if found:
            wanted = value_of(f"{found[1]} {words[found[2]]} {found[3]}")
            values = [Fraction(choice) for choice in row["choices"]]
            assert values.index(wanted) == "ABCD".index(row["answer"])
            checked += 1
    assert checked >= 4


def test_quickstart_says_how_to_reply_and_offers_every_option() -> None:
    provider = open_dataset(load_benchmark(QUICKSTART), run("quickstart"))
    provider.load(seed=42)
    assert provider.size() >= 60
    assert provider.bad_row_count == 0
    for record in provider.iter_records():
        for letter, text in zip("ABCD", record.metadata["options"], strict=True):
            assert f"{letter}) {text}\n" in record.problem
        assert record.problem.endswith('Reply with "The answer is", its letter and its text.')
        assert record.reference in "ABCD"
        assert record.subject
