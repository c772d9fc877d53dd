from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.engines.base import EngineConfig
from evalray.errors import ConfigError
from evalray.plan import Plan, make_plan, plan_to_dict
from evalray.plan_limits import cost_warnings
from evalray.suite import Overrides, load_suite

_SERVER = 'engine = "openai-compatible"\nbase_url = "http://127.0.0.1:1/v1"\n'


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def make(run: str = "", model: str = _SERVER, **flags: Any) -> Plan:
        path = tmp_path / "suite.toml"
        path.write_text(f'[run]\n{run}\n[[models]]\nname = "m"\n{model}\n[[benchmarks]]\nname = "gsm8k"\n')
        return make_plan(load_suite(path), Overrides(**flags))

    return make


def test_without_being_asked_for_there_is_no_budget_and_no_cache(planned: Any) -> None:
    plan = planned()
    assert (plan.max_cost_usd, plan.max_tokens_total, plan.cache_directory) == (None, None, None)


def test_a_flag_goes_before_the_suite(planned: Any) -> None:
    suite = "max_cost_usd = 2.5\nmax_tokens_total = 1000"
    assert (planned(suite).max_cost_usd, planned(suite).max_tokens_total) == (2.5, 1000)
    plan = planned(suite, max_cost_usd=0.5, max_tokens_total=7)
    assert (plan.max_cost_usd, plan.max_tokens_total) == (0.5, 7)
    assert plan_to_dict(plan)["max_tokens_total"] == 7


@pytest.mark.parametrize(
    "line",
    ["max_cost_usd = 0", "max_cost_usd = -1", "max_tokens_total = 0", "max_tokens_total = 1.5", 'max_cost_usd = "1"',
     "max_cost_usd = nan", "cache = 3", 'cache = ""'],
)  # fmt: skip
def test_an_impossible_limit_is_an_error_that_names_its_key(planned: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=line.split()[0]):
        planned(line)


@pytest.mark.parametrize("flags", [{"max_cost_usd": 0.0}, {"max_tokens_total": -3}])
def test_an_impossible_flag_is_an_error_too(planned: Any, flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="--max-"):
        planned(**flags)


def test_the_cache_is_beside_the_sweeps_or_where_it_is_wanted(planned: Any, tmp_path: Path) -> None:
    assert planned("cache = true", output_dir=str(tmp_path)).cache_directory == tmp_path / ".cache"
    assert planned(f'cache = "{tmp_path}/mine"').cache_directory == tmp_path / "mine"
    assert planned("cache = false").cache_directory is None


@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        (_SERVER, True),
        (_SERVER + "max_concurrency = 4", True),
        (_SERVER + "adaptive_concurrency = false", False),
        ('engine = "llamacpp"\npath = "m.gguf"', False),
    ],
)
def test_only_an_engine_over_the_network_adapts_and_it_can_be_turned_off(
    planned: Any, model: str, adaptive: bool
) -> None:
    [deployment] = planned(model=model).deployments
    assert deployment.engine_config.adaptive_concurrency is adaptive


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        (EngineConfig("no-such-model", "openai"), True),
        (EngineConfig("gpt-4o", "openai"), False),
        (
            EngineConfig(
                "no-such-model",
                "openai",
                engine_args={"price_input_per_mtok": 1.0, "price_output_per_mtok": 2.0},
            ),
            False,
        ),
        (EngineConfig("m", "openai-compatible", base_url="http://a/v1", api_key_env="KEY"), True),
        (EngineConfig("m", "openai-compatible", base_url="http://a/v1"), False),
        (EngineConfig("m", "llamacpp", path="m.gguf"), False),
    ],
)
def test_a_cost_that_cannot_be_bounded_is_said_once_beforehand(config: EngineConfig, warned: bool) -> None:
    warnings = [line for line in cost_warnings(1.0, [config, config]) if "cannot bound" in line]
    assert len(warnings) == int(warned)
    assert all(config.model in warning for warning in warnings)
    assert cost_warnings(None, [config]) == []


def _keyed(model: str, engine: str = "openai-compatible") -> EngineConfig:
    return EngineConfig(model, engine, base_url="http://a/v1", api_key_env="KEY")


def test_models_without_a_known_price_are_named_in_one_line() -> None:
    [line] = cost_warnings(1.0, [_keyed("a"), EngineConfig("b", "openai"), EngineConfig("gpt-4o", "openai")])
    assert "cannot bound a, b:" in line
    assert "gpt-4o" not in line
    [many] = cost_warnings(1.0, [_keyed(f"m{i}") for i in range(20)])
    assert "m7 and 12 more" in many


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "ollama", "lemonade"])
def test_an_engine_on_ones_own_hardware_costs_no_dollars_and_is_not_said_to_have_no_price(
    engine: str,
) -> None:
    [line] = cost_warnings(1.0, [_keyed("m", engine)])
    assert line == (
        f"max_cost_usd will not end this sweep (m: {engine} cost no dollars); max_tokens_total bounds it"
    )
    assert cost_warnings(1.0, [_keyed("m", engine), EngineConfig("gpt-4o", "openai")]) == []


def test_a_server_without_a_key_is_said_to_bound_nothing_only_where_no_other_model_costs() -> None:
    server = EngineConfig("m", "openai-compatible", base_url="http://a/v1")
    [line] = cost_warnings(1.0, [server])
    assert "what a server may report" in line
    assert cost_warnings(1.0, [server, EngineConfig("gpt-4o", "openai")]) == []
