"""A sweep of which no cell can run ends at once, with its report: no Ray is started, and no MLflow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from evalray.api import plan_suite, run_plan
from evalray.errors import DatasetError, PlacementError
from evalray.runtime.cell import Cell

_SERVER = 'name = "m"\nengine = "openai-compatible"\nbase_url = "http://127.0.0.1:9/v1"\n'
_GSM8K = '[[benchmarks]]\nname = "gsm8k"\n'
_SAMPLE = _GSM8K + 'data = "sample"\nmax_samples = 3\n'


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    started: list[str] = []

    async def connect(self: Any, deadline_seconds: float) -> NoReturn:
        started.append("ray")
        raise PlacementError("no Ray in this test")

    def start() -> NoReturn:
        started.append("mlflow")
        raise OSError

    monkeypatch.setattr("evalray.runtime.cluster.RayCluster.connect", connect)
    monkeypatch.setattr("evalray.tracking.tracker._start", start)
    # However slow the machine that runs the tests is.
    monkeypatch.setattr("evalray.runtime.deployment._REFUSED_WITHIN_SECONDS", 300.0)
    for name in ("HF_TOKEN", "RAY_ADDRESS", "ABSENT_KEY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return started


def _run(tmp_path: Path, models: str, benchmarks: str, **overrides: Any) -> Any:
    suite = tmp_path / "suite.toml"
    suite.write_text(f"[[models]]\n{models}\n{benchmarks}")
    return run_plan(plan_suite(suite, output_dir=tmp_path / "results", **overrides))


@pytest.mark.parametrize(
    ("models", "benchmarks", "code", "why"),
    [
        ('name = "m"\nengine = "sglang"\n', _GSM8K, 4, "engine 'sglang' is not available"),
        (_SERVER, '[[benchmarks]]\nname = "gpqa"\n', 4, "gated"),
        (_SERVER, _GSM8K + 'data = "absent.jsonl"\n', 1, "no such data"),
        (
            _SERVER + 'api_key_env = "ABSENT_KEY"\n',
            _SAMPLE,
            1,
            "variable ABSENT_KEY (api_key_env) is not set",
        ),
        (
            'name = "m"\nengine = "llamacpp"\npath = "absent.gguf"\n',
            _SAMPLE,
            1,
            "absent.gguf' does not exist",
        ),
    ],
)
def test_it_ends_with_its_report_and_starts_nothing(
    tmp_path: Path, nothing_starts: list[str], models: str, benchmarks: str, code: int, why: str
) -> None:
    result = _run(tmp_path, models, benchmarks)
    assert nothing_starts == []
    assert (result.exit_code, result.nothing_ran) == (code, True)
    assert all(why in run.reason for run in result.runs)
    assert (result.directory / "report.html").is_file()
    assert result.untracked == "nothing ran, so there is nothing to send"


def test_one_cell_that_can_run_starts_ray(tmp_path: Path, nothing_starts: list[str]) -> None:
    benchmarks = _GSM8K + 'data = "absent.jsonl"\n' + _SAMPLE
    result = _run(tmp_path, _SERVER, benchmarks, tracking_enabled=False)
    assert nothing_starts == ["ray"]
    assert not result.nothing_ran
    assert {run.status for run in result.runs} == {"failed"}


def test_ray_starts_while_data_that_takes_long_is_loaded(
    tmp_path: Path, nothing_starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_data: list[list[str]] = []

    def slow_load(self: Cell, store: Any) -> NoReturn:
        deadline = time.monotonic() + 30.0
        while not nothing_starts and time.monotonic() < deadline:
            time.sleep(0.01)
        before_the_data.append(list(nothing_starts))
        raise DatasetError("no such data")

    monkeypatch.setattr(Cell, "prepare", slow_load)
    monkeypatch.setattr("evalray.runtime.deployment._REFUSED_WITHIN_SECONDS", 0.01)
    _run(tmp_path, _SERVER, _SAMPLE, tracking_enabled=False)
    assert before_the_data == [["ray"]]


def test_a_cluster_that_is_joined_may_have_what_is_missing_here(
    tmp_path: Path, nothing_starts: list[str]
) -> None:
    models = 'name = "m"\nengine = "llamacpp"\npath = "absent.gguf"\n'
    _run(tmp_path, models, _SAMPLE, tracking_enabled=False, address="127.0.0.1:9")
    assert nothing_starts == ["ray"]
