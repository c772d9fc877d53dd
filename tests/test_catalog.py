from __future__ import annotations

import re
from pathlib import Path

import pytest

from evalray.catalog import known_benchmarks, known_engines, known_scorers, runnable_benchmarks

DOCS = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def test_no_two_scorers_or_engines_share_a_description() -> None:
    for rows in (known_scorers(), known_engines()):
        described = [row[-1] for row in rows]
        assert all(described)
        assert len(set(described)) == len(described)


def test_the_documentation_names_every_scorer_with_its_arguments() -> None:
    section = DOCS.read_text().partition("\n### Scorers\n")[2].partition("\n### ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    for name, arguments, _ in known_scorers():
        (row,) = [row for row in rows if f"`{name}`" in row[1]]
        named = set(re.findall(r"`(\w+)`", row[3]))
        assert named == set(arguments.split(", ")) - {"-"}


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ('name = "exct"', "scorer.name: unknown scorer 'exct' (did you mean 'exact'?)"),
        ('name = "exact"\nignore_artcles = true', "scorer.ignore_artcles: scorer exact: unknown argument"),
        ('name = "mine.py:Holds"', "write mine:Holds, with its folder on PYTHONPATH"),
    ],
)
def test_a_benchmark_whose_scorer_is_wrong_is_listed_as_broken_and_not_run_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scorer: str, said: str
) -> None:
    folder = tmp_path / "benchmarks" / "capitals"
    folder.mkdir(parents=True)
    (folder / "benchmark.toml").write_text(f'[fields]\nreference = "capital"\n[scorer]\n{scorer}\n')
    (folder / "prompt.jinja").write_text("What is the capital of {{ country }}?\n")
    (folder / "sample.jsonl").write_text('{"country": "Norway", "capital": "Oslo"}\n')
    monkeypatch.chdir(tmp_path)
    (title,) = [row[-1] for row in known_benchmarks() if row[0] == "capitals"]
    assert title.startswith("broken: benchmark.toml: ")
    assert said in title
    assert "capitals" not in runnable_benchmarks()
