"""Judges through the command line: keys, files, plan, and new verdicts without new answers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]
_KEY = "sk-judge-0123456789abcdef0123456789"
_SUITE = """
[meta]
name = "judged"
[judge]
model = "the-judge"
base_url = "{base_url}"
api_key_env = "EVALRAY_TEST_JUDGE_KEY"
max_retries = 0
temperature = 0.5
[[models]]
name = "spy"
engine = "spying_engine:SpyingEngine"
[[benchmarks]]
name = "facts"
max_samples = 6
"""


@pytest.fixture
def server() -> Iterator[Any]:
    path = _ROOT / "tests" / "runtime" / "judge_server.py"
    spec = importlib.util.spec_from_file_location("judge_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.judge_server() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, server: Any) -> Path:
    facts = tmp_path / "benchmarks" / "facts"
    facts.mkdir(parents=True)
    rows = [{"id": f"f{i}", "question": f"Repeat the number {i}", "answer": str(i)} for i in range(10, 16)]
    (facts / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (facts / "prompt.jinja").write_text("{{ question }}")
    (facts / "benchmark.toml").write_text(
        'title = "Facts"\ndescription = "Numbers"\ncategory = "chat"\n[fields]\nid = "id"\nreference = "answer"\n'
        '[scorer]\nname = "frames"\n'
    )
    (tmp_path / "suite.toml").write_text(_SUITE.format(base_url=server.base_url))
    return tmp_path


def evalray(folder: Path, *arguments: str, key: str | None = _KEY) -> tuple[int, dict[str, Any], str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(Path(__file__).parent)])}
    environment.pop("EVALRAY_TEST_JUDGE_KEY", None)
    if key is not None:
        environment["EVALRAY_TEST_JUDGE_KEY"] = key
    command = [sys.executable, "-m", "evalray", *arguments, "--json"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_judges_key_is_in_no_file_and_with_no_engine_and_verdicts_can_be_given_anew(
    folder: Path, server: Any
) -> None:
    code, report, errors = evalray(folder, "run", "-c", "suite.toml")
    assert code == 0, errors
    assert report["runs"][0]["outcomes"]["correct"] == 6
    assert server.keys == {f"Bearer {_KEY}"}
    assert {body["temperature"] for body in server.bodies} == {0.5}
    sweep = Path(report["dir"])
    assert "JUDGE" not in (sweep / "facts_spy" / "generations.jsonl").read_text()
    for file in folder.rglob("*"):
        if file.is_file():
            assert _KEY.encode() not in file.read_bytes(), file
    assert _KEY not in errors
    server.questions.clear()

    code, report, errors = evalray(folder, "rescore", str(sweep), "--reask", "--no-tracking")
    assert code == 0, errors
    assert report["runs"][0]["outcomes"]["correct"] == 6
    assert len(server.questions) == 6, "the judge is where the suite said"

    code, report, errors = evalray(
        folder, "rescore", str(sweep / "facts_spy"), "--scorer", "exact", "--no-tracking"
    )
    assert code == 0, errors
    assert report["runs"][0]["outcomes"]["judge_error"] == 0
    assert len(server.questions) == 6


def test_plan_shows_the_judge_and_that_its_key_is_missing(folder: Path) -> None:
    code, report, _ = evalray(folder, "plan", "-c", "suite.toml", key=None)
    assert code == 0
    [judge] = report["judges"]
    assert (judge["model"], judge["engine"]["engine"]) == ("the-judge", "openai-compatible")
    assert judge["judges"] == [{"benchmark": "facts", "model": "spy"}]
    assert any("EVALRAY_TEST_JUDGE_KEY" in note for note in report["runs"][0]["notes"])


def test_run_all_plans_every_benchmark_for_a_model(folder: Path) -> None:
    code, report, _ = evalray(folder, "run-all", "-m", "spy", "-e", "spying_engine:SpyingEngine", "--dry-run")
    assert code == 0
    names = {run["benchmark"] for run in report["runs"]}
    assert "facts" in names
    assert report["sweep_id"] == "all_spy"
