"""``evalray compare`` and ``evalray import`` as commands: exit codes, the JSON object, untrusted text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evalray.cli.app import app
from evalray.cli.report import Report
from evalray.errors import ConfigError


def row(number: int, right: bool, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": f"simpleqa-{number}",
        "benchmark": "simpleqa",
        "model": "m",
        "backend": "jarvis-direct",
        "model_answer": "x",
        "is_correct": right,
        "score": float(right),
        "latency_seconds": 1.0,
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "scoring_metadata": {},
        "error": None,
        **changes,
    }


@pytest.fixture
def rows_file(tmp_path: Path) -> Callable[..., Path]:
    """A results file whose verdicts are given as text of ``+`` and ``-``."""

    def write(name: str, verdicts: str, **changes: Any) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text(
            "".join(
                json.dumps(row(n, verdict == "+", **changes)) + "\n" for n, verdict in enumerate(verdicts)
            )
        )
        return path

    return write


def call(*args: object) -> tuple[int, str, Report]:
    report = Report(args=[str(arg) for arg in args])
    result = CliRunner().invoke(app, report.args, obj=report, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value or 0, result.stdout, report


def test_compare_shows_the_difference_and_ends_with_0(rows_file) -> None:
    code, shown, _ = call("compare", rows_file("a", "+-" * 20), rows_file("b", "++" * 20))
    assert code == 0
    assert "+50.0 points" in shown
    assert "B better 20, worse 0, same 20" in shown


@pytest.mark.parametrize(
    ("after", "options", "code"),
    [
        ("-" * 20 + "+" * 20, ["--fail-on-regression"], 1),
        ("-" * 20 + "+" * 20, [], 0),
        ("-" * 20 + "+" * 20, ["--fail-on-regression", "--threshold", "0.6"], 0),
        ("+" * 40, ["--fail-on-regression"], 0),
    ],
)
def test_only_a_regression_that_was_asked_about_fails(
    rows_file, after: str, options: list[str], code: int
) -> None:
    assert call("compare", rows_file("a", "+" * 40), rows_file("b", after), *options)[0] == code


def test_the_json_object_has_the_figures_and_the_verdict(evalray, rows_file) -> None:
    a, b = rows_file("a", "+" * 40), rows_file("b", "-" * 20 + "+" * 20)
    ended = evalray("compare", str(a), str(b), "--fail-on-regression", "--json")
    assert ended.code == ended.json["exit_code"] == 1
    assert ended.json["regression"] is True
    [comparison] = ended.json["comparisons"]
    assert comparison["accuracy"]["difference"] == -0.5
    assert comparison["accuracy"]["losses"] == 20
    assert comparison["measures"]["latency_seconds"]["ratio"] == 1.0


def test_too_little_overlap_and_other_benchmarks_end_with_2(evalray, rows_file) -> None:
    few = rows_file("few", "+++")
    ended = evalray("compare", str(few), str(few), "--fail-on-regression", "--json")
    assert ended.code == 2
    assert "not enough overlap" in ended.json["errors"][0]
    other = rows_file("other", "+++", benchmark="frames")
    ended = evalray("compare", str(few), str(other))
    assert ended.code == 2
    assert "--allow-different" in ended.stderr


def test_a_p_value_reads_as_it_is_and_each_row_says_whether_it_is_a_median_or_a_total(rows_file) -> None:
    _, shown, _ = call("compare", rows_file("a", "+-" * 40), rows_file("b", "++" * 40))
    assert ", p < 0.001 McNemar" in shown
    assert "= <" not in shown
    assert "median latency, s" in shown
    _, shown, _ = call("compare", rows_file("c", "+-" * 3), rows_file("d", "++" * 3))
    assert ", p = 0.250 McNemar" in shown


def test_one_run_alone_is_refused(rows_file) -> None:
    with pytest.raises(ConfigError, match="at least two"):
        call("compare", rows_file("a", "++"))


def test_names_from_models_and_data_reach_the_terminal_inert(rows_file) -> None:
    evil = "[red]m\x1b[2J\u202e"
    a = rows_file("a", "+-" * 5, model=evil, subject="\x1b]0;x\x07bio")
    _, shown, _ = call("compare", a, rows_file("b", "++" * 5, model=evil, subject="\x1b]0;x\x07bio"))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]m" in shown


def test_import_makes_a_run_that_summarize_and_compare_take(rows_file, tmp_path: Path) -> None:
    file = rows_file("simpleqa_m", "++-+")
    code, shown, report = call("import", file, "--output-dir", tmp_path / "out", "--sweep-id", "old")
    assert code == 0
    assert "75.0%" in shown
    [run] = report.fields["runs"]
    assert (run["benchmark"], run["accuracy"], run["outcomes"]["correct"]) == ("simpleqa", 0.75, 3)
    assert Path(run["results"]).is_file()
    assert call("summarize", tmp_path / "out" / "old")[0] == 0
    assert call("compare", tmp_path / "out" / "old", file)[0] == 0


def test_import_of_a_foreign_file_ends_with_2_and_says_why(evalray, tmp_path: Path) -> None:
    (tmp_path / "foreign.jsonl").write_text('{"id": 1}\n')
    ended = evalray("import", "foreign.jsonl", "--json")
    assert ended.code == 2
    assert "foreign.jsonl:1: no 'record_id'" in ended.json["errors"][0]
    assert not (tmp_path / "results").exists()
