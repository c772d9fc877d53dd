"""The command line as other programs see it: exit codes, stdout, stderr, what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalray.cli.report import Report, json_channel

_HEAVY = "ray,mlflow,datasets,pyarrow,numpy,jinja2,openai,anthropic,xllamacpp,prometheus_client"
_IMPORTS = """
import sys, evalray.cli
try:
    evalray.cli.main(sys.argv[2:])
except SystemExit:
    pass
sys.stderr.write(",".join(name for name in sys.argv[1].split(",") if name in sys.modules))
"""
_SUITE = """
[[models]]
name = "m"
engine = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"

[[benchmarks]]
name = "gsm8k"
"""
_SELECTION = {
    "--config",
    "-c",
    "--benchmark",
    "-b",
    "--model",
    "-m",
    "--engine",
    "-e",
    "--max-samples",
    "-n",
    "--max-workers",
    "-w",
    "--output",
    "-o",
    "--seed",
    "--split",
    "--temperature",
    "--max-tokens",
    "--judge-model",
    "--verbose",
    "-v",
    "--backend",
    "--agent",
    "--tools",
    "--base-url",
    "--data",
    "--output-dir",
    "--sweep-id",
    "--address",
    "--tracking-uri",
    "--no-tracking",
    "--prometheus-port",
    "--json",
}
Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("args", "absent"),
    [
        (["--help"], _HEAVY + ",pydantic"),
        # Typer brings pydantic in itself, to read the values of a command's options.
        (["run", "--help"], _HEAVY),
        (["list", "--help"], _HEAVY),
        (["--version"], _HEAVY),
    ],
)
def test_help_imports_nothing_heavy(args: list[str], absent: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, absent, *args],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout
    assert done.stderr == ""


def test_a_plan_imports_neither_ray_nor_mlflow_nor_datasets(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(_SUITE)
    absent = "ray,mlflow,datasets,pyarrow,xllamacpp"
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, absent, "plan", "-c", str(suite)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "1 run on 1 deployment" in done.stdout
    assert done.stderr == ""


def test_every_flag_is_in_the_help_of_run_and_the_selection_in_that_of_plan(evalray: Call) -> None:
    run, plan = evalray("run", "--help").stdout.split(), evalray("plan", "--help").stdout.split()
    assert _SELECTION | {"--fresh", "--dry-run"} <= set(run)
    assert set(plan) >= _SELECTION
    assert "--fresh" not in plan


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--json", "--no-such-flag"],
        ["run", "--json", "-n", "many", "-b", "gsm8k", "-m", "m"],
        ["run", "--json", "-n", "0", "-b", "gsm8k", "-m", "m"],
        ["run", "--json", "-c", "absent.toml"],
        ["run", "--json", "-b", "gsm8k"],
        ["run", "--json", "-b", "gsm8k", "-m", "m", "-e", "llamacp"],
        ["plan", "--json", "-b", "gsm9k", "-m", "m"],
    ],
)
def test_bad_usage_still_gives_one_json_object_and_exit_2(evalray: Call, args: list[str]) -> None:
    ended = evalray(*args)
    assert ended.code == 2
    assert ended.json["exit_code"] == 2
    assert ended.json["errors"]
    assert ended.json["runs"] == []
    assert {"sweep_id", "dir"} <= ended.json.keys()
    assert "Traceback" not in ended.stderr
    assert all(error.splitlines()[0] in ended.stderr for error in ended.json["errors"])


def test_a_misspelt_flag_names_the_nearest_one(evalray: Call) -> None:
    ended = evalray("run", "--max-sample", "3")
    assert ended.code == 2
    assert ended.stdout == ""
    assert "--max-samples" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_all_errors_of_a_suite_come_at_once_one_line_each(evalray: Call, tmp_path: Path) -> None:
    suite = _SUITE.replace('"gsm8k"', '"gsm9k"').replace("openai-compatible", "openai-compatibel")
    (tmp_path / "suite.toml").write_text(suite + "max_samples = 'ten'\n")
    ended = evalray("run", "-c", "suite.toml")
    lines = ended.stderr.splitlines()
    assert ended.code == 2
    assert len(lines) == 3
    assert all("suite.toml: " in line for line in lines)
    for named in ("gsm8k", "openai-compatible", "max_samples"):
        assert any(named in line for line in lines)


_TELEMETRY = """
[telemetry]
estimate = "yes"
grid_gco2e_per_kwh = 0
prometheus_port = 70000
prometheus_host = "http://localhost:9400"
prometheus_prot = 1
"""


def test_all_errors_of_the_telemetry_settings_come_at_once(evalray: Call, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(_TELEMETRY + _SUITE)
    ended = evalray("run", "-c", "suite.toml", "--json")
    assert ended.code == 2
    for key in ("estimate", "grid_gco2e_per_kwh", "prometheus_port", "prometheus_host", "prometheus_prot"):
        [error] = [error for error in ended.json["errors"] if f"telemetry.{key}:" in error]
        assert len(error.splitlines()) == 1
    assert len(ended.json["errors"]) == 5
    assert not (tmp_path / "results").exists()


def test_a_plan_shows_the_telemetry_settings_and_the_flag_wins(evalray: Call, tmp_path: Path) -> None:
    section = "[telemetry]\nestimate = true\ngrid_gco2e_per_kwh = 380\nprometheus_port = 9400\n"
    (tmp_path / "suite.toml").write_text(section + _SUITE)
    shown = evalray("plan", "-c", "suite.toml").stdout
    for part in ("estimated", "380 gCO2e/kWh", "127.0.0.1, port 9400"):
        assert part in shown
    found = evalray("plan", "-c", "suite.toml", "--prometheus-port", "0", "--json").json["telemetry"]
    assert found == {
        "estimate": True,
        "grid_gco2e_per_kwh": 380.0,
        "prometheus_port": 0,
        "prometheus_host": "127.0.0.1",
    }


def test_a_port_that_cannot_be_is_a_wrong_flag(evalray: Call) -> None:
    ended = evalray("plan", "-b", "gsm8k", "-m", "m", "--prometheus-port", "65536")
    assert ended.code == 2
    assert "--prometheus-port" in ended.stderr


def test_plan_and_dry_run_say_the_same_and_start_nothing(evalray: Call, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(_SUITE)
    plan = evalray("plan", "-c", "suite.toml", "--json")
    dry = evalray("run", "-c", "suite.toml", "--dry-run", "--json")
    assert plan.code == dry.code == 0
    assert plan.json == dry.json
    [run] = plan.json["runs"]
    assert (run["benchmark"], run["model"], run["engine"]) == ("gsm8k", "m", "openai-compatible")
    assert Path(plan.json["dir"]) == tmp_path / "results" / "suite"
    assert not (tmp_path / "results").exists()


def test_run_all_is_titled_by_its_model_and_not_by_all_that_it_spans(evalray: Call) -> None:
    ended = evalray("run-all", "-m", "SmolLM2-135M-Instruct.Q4_1", "--dry-run")
    title, description = ended.stdout.splitlines()[:2]
    assert title == "all_SmolLM2-135M-Instruct.Q4_1"
    assert description.strip().startswith("frames, gaia, gpqa and ")
    assert description.endswith(" on SmolLM2-135M-Instruct.Q4_1")
    named = evalray("run-all", "-m", "m", "-b", "gsm8k", "--dry-run", "--json").json
    assert (named["name"], named["sweep_id"], len(named["runs"])) == ("all_m", "all_m", 1)


def test_a_plan_reads_well_without_json(evalray: Call, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(_SUITE)
    ended = evalray("plan", "-c", "suite.toml", "-n", "7")
    assert ended.code == 0
    assert "gsm8k: 7 samples" in ended.stdout
    assert "1 run on 1 deployment" in ended.stdout


def test_doctor_names_keys_and_never_shows_them(evalray: Call) -> None:
    ended = evalray("doctor", "--json", OPENAI_API_KEY="sk-very-secret-0123", HF_TOKEN="hf_very_secret")
    assert ended.code == 0
    assert "very" not in ended.stdout + ended.stderr
    checks = {check["name"]: check for check in ended.json["checks"]}
    assert checks["OPENAI_API_KEY"]["status"] == "ok"
    assert checks["ANTHROPIC_API_KEY"]["status"] == "note"
    assert checks["ray"]["status"] == "ok"


def test_summarize_of_a_path_that_is_not_there_is_bad_usage(evalray: Call) -> None:
    ended = evalray("summarize", "absent", "--json")
    assert ended.code == 2
    assert "absent: no such file or directory" in ended.json["errors"][0]


def test_summarize_of_rows_without_a_journal_says_what_it_needs(evalray: Call, tmp_path: Path) -> None:
    (tmp_path / "foreign.jsonl").write_text('{"record_id": "1"}\n')
    ended = evalray("summarize", "foreign.jsonl")
    assert ended.code == 2
    assert "no journal beside it" in ended.stderr


def test_mlflow_sync_gives_one_json_object_with_every_sweep(evalray: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "sweep.json").write_text("[")
    ended = evalray("mlflow", "sync", "results", "--json")
    assert ended.code == ended.json["exit_code"] == 1
    assert [Path(sweep["dir"]).name for sweep in ended.json["sweeps"]] == ["a", "b"]
    assert all(sweep["error"] and sweep["uri"] is None for sweep in ended.json["sweeps"])
    assert [error.partition(":")[0] for error in ended.json["errors"]] == ["a", "b"]
    assert "holds no sweep" in evalray("mlflow", "sync", ".", "--json").json["errors"][0]


def test_ui_without_a_store_says_where_it_looked(evalray: Call) -> None:
    ended = evalray("ui", MLFLOW_TRACKING_URI="")
    assert ended.code == 2
    assert "results: no MLflow store here" in ended.stderr


def test_a_reader_that_leaves_early_causes_no_traceback() -> None:
    command = f"{sys.executable} -m evalray list scorers | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


_UNEXPECTED = """
import sys, evalray.api
from evalray.cli import main
def broken(*args, **flags):
    import os
    print("a print"); os.write(1, b"native noise\\n"); os.system("echo a child")
    raise {error}
evalray.api.plan_suite = broken
main(sys.argv[1:])
"""


def _broken(error: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _UNEXPECTED.format(error=error), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_defect_of_ours_is_exit_1_with_json_and_nothing_else_on_stdout() -> None:
    done = _broken("TypeError('oops \\x1b[31m')", "run", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["errors"] == ["unexpected TypeError: oops ␛[31m (-v shows where)"]
    assert "Traceback" not in done.stderr
    for noise in ("a print", "native noise", "a child"):
        assert noise in done.stderr


def test_verbose_shows_the_traceback_of_a_defect() -> None:
    assert "Traceback" in _broken("TypeError('oops')", "run", "-v", "-c", "x").stderr


@pytest.mark.parametrize(
    "raised", ["KeyboardInterrupt", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 1)"]
)
def test_an_interrupt_before_anything_started_is_130(raised: str) -> None:
    done = _broken(raised, "run", "--json")
    assert done.returncode == 130
    assert json.loads(done.stdout)["exit_code"] == 130


def test_numbers_that_json_lacks_become_null(capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(
        wanted=True, fields={"accuracy": float("nan"), "runs": [{"x": float("inf")}], "name": "\ud800"}
    )
    with json_channel(report):
        os.write(1, b"noise\n")
    value = json.loads(capfd.readouterr().out)
    assert value["accuracy"] is None
    assert value["runs"] == [{"x": None}]


@pytest.mark.parametrize("command", [[], ["run"], ["list", "engines"], ["mlflow", "sync"]])
def test_a_flag_without_a_value_shows_none_in_its_help(evalray: Call, command: list[str]) -> None:
    shown = evalray(*command, "--help").stdout
    assert "--help" in shown
    assert "bool" not in shown.lower()
