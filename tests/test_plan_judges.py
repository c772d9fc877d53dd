"""Who judges which run, and how that judge is run."""

from __future__ import annotations

from typing import Any

import pytest

from evalray.errors import ConfigError
from evalray.plan import Plan, make_plan, plan_to_dict
from evalray.suite import Overrides, suite_from_table

_URL = "http://127.0.0.1:9/v1"


def planned(
    *,
    judge: dict[str, Any] | None = None,
    models: list[dict[str, Any]] | None = None,
    benchmark: dict[str, Any] | None = None,
    **flags: Any,
) -> Plan:
    table = {
        "models": models or [{"name": "m", "base_url": _URL}],
        "benchmarks": [{"name": "simpleqa", "data": "sample", **(benchmark or {})}],
        **({"judge": judge} if judge else {}),
    }
    return make_plan(suite_from_table(table, "suite.toml"), Overrides(**flags))


def engine_of(plan: Plan) -> tuple[str, str, str | None]:
    [judge] = plan.judges
    config = judge.deployment.engine_config
    return config.model, config.engine, config.base_url


@pytest.mark.parametrize(
    ("setup", "engine"),
    [
        ({"judge": {"model": "gpt-4o"}}, ("gpt-4o", "openai", None)),
        ({"judge": {"model": "claude-x"}}, ("claude-x", "anthropic", None)),
        ({"judge": {"model": "j", "base_url": _URL}}, ("j", "openai-compatible", _URL)),
        ({"judge": {"model": "j", "engine": "ollama"}}, ("j", "ollama", None)),
        ({"judge": {"model": "m"}}, ("m", "openai-compatible", _URL)),
        ({"judge": {"model": "m", "engine": "ollama"}}, ("m", "ollama", None)),
        (
            {"judge": {"model": "j", "engine": "ollama"}, "benchmark": {"judge_model": "k"}},
            ("k", "ollama", None),
        ),
        ({"judge": {"model": "j", "engine": "ollama"}, "judge_model": "m"}, ("m", "openai-compatible", _URL)),
        (
            {
                "judge": {"model": "j", "engine": "ollama"},
                "judge_engine": "openai-compatible",
                "judge_base_url": _URL,
            },
            ("j", "openai-compatible", _URL),
        ),
    ],
)
def test_a_judge_is_run_as_its_model_entry_or_the_judge_section_says(
    setup: dict[str, Any], engine: tuple[str, str, str | None]
) -> None:
    assert engine_of(planned(**setup)) == engine


def test_only_runs_whose_scorer_asks_have_a_judge() -> None:
    assert planned(judge={"model": "gpt-4o"}, benchmark={"name": "gsm8k"}).judges == []


def test_a_missing_judge_or_key_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    [run] = planned().runs
    assert run.judge is None
    assert any("no judge model is given" in note for note in run.notes)
    [run] = planned(judge={"model": "gpt-4o"}).runs
    assert any("OPENAI_API_KEY" in note for note in run.notes)


def test_a_judge_that_cannot_be_run_is_a_note_and_its_samples_stay_unjudged() -> None:
    plan = planned(judge={"model": "whose-is-this"})
    assert "neither OpenAI's" in plan.judges[0].problem
    assert any("cannot be asked" in note for note in plan.runs[0].notes)


def test_models_share_one_judge_and_no_engine_keeps_the_others_key() -> None:
    plan = planned(
        judge={"model": "gpt-4o", "api_key_env": "JUDGE_KEY"},
        models=[
            {"name": "a", "base_url": _URL, "api_key_env": "MODEL_KEY"},
            {"name": "b", "base_url": _URL},
        ],
    )
    [judge] = plan.judges
    assert [run.judge for run in plan.runs] == [judge, judge]
    assert judge.deployment.engine_config.withheld_env == ("MODEL_KEY",)
    assert [d.engine_config.withheld_env for d in plan.deployments] == [
        ("JUDGE_KEY",),
        ("JUDGE_KEY", "MODEL_KEY"),
    ]


def test_a_plan_as_data_has_its_judges() -> None:
    [judge] = plan_to_dict(planned(judge={"model": "gpt-4o", "max_tokens": 99}))["judges"]
    assert (judge["model"], judge["max_tokens"]) == ("gpt-4o", 99)
    assert judge["judges"] == [{"benchmark": "simpleqa", "model": "m"}]
    assert "payload" not in judge["engine"]


def test_a_key_in_the_judge_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="api_key_env"):
        planned(judge={"model": "gpt-4o", "api_key": "sk-x"})


@pytest.mark.parametrize(
    ("setup", "unused"),
    [
        (
            {"judge": {"model": "m", "replicas": 2, "engine_args": {"reasoning": True}}},
            "judge m: [judge] engine_args, replicas: not used, as m is run as [[models]] says",
        ),
        (
            {"judge": {"model": "j", "base_url": _URL, "replicas": 2}, "judge_engine": "ollama"},
            "judge j: [judge] base_url: not used, as the engine is ollama",
        ),
        ({"judge": {"model": "m", "temperature": 0.5, "max_tokens": 9}}, None),
        ({"judge": {"model": "j", "engine": "ollama", "replicas": 2}}, None),
    ],
)
def test_keys_of_the_judge_section_without_effect_are_named(
    setup: dict[str, Any], unused: str | None
) -> None:
    found = [note for note in planned(**setup).runs[0].notes if "[judge]" in note]
    assert found == ([unused] if unused else [])


def test_flags_of_a_judge_that_nothing_asks_are_said_to_be_unused() -> None:
    flags = {"judge_model": "gpt-4o", "judge_base_url": _URL}
    [warning] = planned(benchmark={"name": "gsm8k"}, **flags).warnings
    assert warning == "--judge-model, --judge-base-url: not used, as nothing selected asks a judge"
    assert planned(**flags).warnings == []
