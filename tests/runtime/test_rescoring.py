"""New verdicts for a finished sweep, from the generations it has."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.errors import ConfigError
from evalray.plan import Deployment, JudgeDeployment
from evalray.rescoring import RescoreOptions, plan_rescore
from evalray.runtime import RuntimePolicy, SweepResult, run_sweep

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

_QUICK = RuntimePolicy(hang_seconds=5.0, poll_seconds=1.0, drain_seconds=5.0)
_RUN = "b_scripted"


@pytest.fixture
def sweep(plans: Any, server: Any) -> Path:
    """Twelve answers that a judge found right but for two it could not be asked about."""
    prompts = [f"say {i}" for i in range(10)] + [f"broken {i}" for i in range(2)]
    plan = plans.one(prompts, scorer="frames", max_error_rate=0.5)
    engine = EngineConfig("judge", "openai-compatible", base_url=server.base_url, max_retries=0)
    plan.judges = [JudgeDeployment(Deployment("judge", engine, cpus_per_replica=0.0))]
    plan.runs[0].judge = plan.judges[0]
    server.failing = {"broken"}
    result = run_sweep(plan, policy=_QUICK)
    assert outcomes(result) == {"correct": 10, "judge_error": 2}
    server.failing.clear()
    server.questions.clear()
    directory: Path = plan.directory
    return directory


def rescore(directory: Path, **options: Any) -> SweepResult:
    return run_sweep(plan_rescore(directory, None, RescoreOptions(**options)), policy=_QUICK)


def outcomes(result: SweepResult) -> dict[str, int]:
    summary = result.runs[0].summary
    assert summary is not None
    return {name: count for name, count in summary.outcomes.items() if count}


def at(server: Any) -> dict[str, str]:
    return {"judge_model": "second", "judge_engine": "openai-compatible", "judge_base_url": server.base_url}


def test_stored_replies_are_read_again_and_nobody_is_asked(sweep: Path, server: Any) -> None:
    before = (sweep / _RUN / "generations.jsonl").read_bytes()
    described = (sweep / "sweep.json").read_bytes()
    result = rescore(sweep)
    assert outcomes(result) == {"correct": 10, "judge_error": 2}
    assert server.questions == []
    assert (sweep / _RUN / "generations.jsonl").read_bytes() == before
    assert (sweep / "sweep.json").read_bytes() == described
    assert len(list((sweep / _RUN).glob("scores.*.jsonl"))) == 1, "the earlier verdicts are kept"
    rows = [json.loads(line) for line in (sweep / f"{_RUN}.jsonl").read_text().splitlines()]
    assert rows[0]["scoring_metadata"]["judge"]["model"] == "judge"


def test_another_judge_is_asked_about_everything_and_the_same_command_again_asks_nothing(
    sweep: Path, server: Any
) -> None:
    result = rescore(sweep, **at(server))
    assert outcomes(result) == {"correct": 12}
    assert len(server.questions) == 12
    again = rescore(sweep, **at(server))
    assert outcomes(again) == {"correct": 12}
    assert len(server.questions) == 12
    summary = asdict(again.runs[0].summary)  # type: ignore[arg-type]
    assert (summary["judge_calls"], summary["judge_input_tokens"]) == (12, 120)


def test_a_judge_that_was_named_once_is_asked_where_it_was_and_not_where_the_suite_has_its_own(
    sweep: Path, server: Any
) -> None:
    described = json.loads((sweep / "sweep.json").read_text())
    described["suite"] = {"judge": {"model": "judge", "base_url": "http://127.0.0.1:9/v1"}}
    (sweep / "sweep.json").write_text(json.dumps(described))
    rescore(sweep, **at(server))
    server.questions.clear()
    assert outcomes(rescore(sweep, reask=True)) == {"correct": 12}
    assert len(server.questions) == 12
    named = plan_rescore(sweep, None, RescoreOptions(judge_model="judge"))
    assert named.judges[0].deployment.engine_config.base_url == "http://127.0.0.1:9/v1"


def test_reask_asks_the_same_judge_again(sweep: Path, server: Any) -> None:
    rescore(sweep, **at(server))
    rescore(sweep, **at(server), reask=True)
    assert len(server.questions) == 24


def test_another_scorer_needs_no_judge(sweep: Path, server: Any) -> None:
    result = rescore(sweep, scorer="number")
    assert outcomes(result) == {"correct": 12}
    assert server.questions == []
    assert json.loads((sweep / _RUN / "run.json").read_text())["config"]["scorer"] == "number"


def test_an_unknown_scorer_is_said_before_anything_is_moved(sweep: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-scorer"):
        rescore(sweep, scorer="no-such-scorer")
    assert list((sweep / _RUN).glob("scores.*.jsonl")) == []
