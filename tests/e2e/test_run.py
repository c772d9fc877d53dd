"""Sweeps through the command line: the real entry point, Ray, journal, results."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_IN_FLIGHT = 4


def _command(base_url: str, data: Path, *more: str) -> list[str]:
    return [
        *("run", "--json", "-b", "gsm8k", "-m", "org/adder:1", "-e", "openai-compatible"),
        *("--base-url", base_url, "--data", str(data), "-w", str(_IN_FLIGHT), "--sweep-id", "sums", *more),
    ]


def _rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run["results"]).read_text().splitlines()]


def test_a_run_gives_results_on_disk_in_mlflow_and_as_one_json_object(
    cli: Any, adder: Any, sums: Callable[[int], Path]
) -> None:
    command = _command(adder.base_url, sums(40))
    first = cli(*command, "-n", "20")
    assert first.code == 0, first.stderr
    [run] = first.json["runs"]
    assert (run["benchmark"], run["model"], run["status"]) == ("gsm8k", "org/adder:1", "complete")
    assert first.json["errors"] == []
    assert sum(run["outcomes"].values()) == 20
    sweep = Path(first.json["dir"])
    assert sweep == cli.folder / "results" / "sums"
    for name in ("sweep.json", "report.md", "report.html", "report.csv", "../mlflow.db"):
        assert (sweep / name).is_file(), name
    assert "first prompt of gsm8k" in first.stderr
    assert "  | Adding them gives" in first.stderr
    assert "20/20" in first.stderr

    more = cli(*command, "-n", "40")
    assert more.code == 0, more.stderr
    [run] = more.json["runs"]
    assert run["accuracy"] == 0.5
    assert {name: number for name, number in run["outcomes"].items() if number} == {
        "correct": 20,
        "incorrect": 20,
    }
    assert set(adder.seen().values()) == {1}
    assert len(adder.seen()) == len({row["record_id"] for row in _rows(run)}) == 40

    summary = Path(run["summary"]).read_bytes()
    again = cli("summarize", run["results"], "--json")
    assert again.code == 0, again.stderr
    assert again.json["runs"][0]["outcomes"] == run["outcomes"]
    assert Path(run["summary"]).read_bytes() == summary

    synced = cli("mlflow", "sync", str(sweep))
    assert synced.code == 0, synced.stderr
    assert "0 runs sent" in synced.stderr


def test_a_run_killed_and_interrupted_on_its_way_ends_as_an_undisturbed_one(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    total = 120
    command = _command(slow_adder.base_url, sums(total), "--no-tracking")
    killed = cli.start(*command)
    slow_adder.wait_for(30, killed)
    killed.send_signal(signal.SIGKILL)
    cli.end(killed)

    process = cli.start(*command)
    slow_adder.wait_for(60, process)
    process.send_signal(signal.SIGINT)
    interrupted = cli.end(process)
    assert interrupted.code == 130, interrupted.stderr
    [run] = interrupted.json["runs"]
    assert run["status"] == "partial"
    assert run["outcomes"]["skipped"] > 0
    assert sum(run["outcomes"].values()) == total
    assert "resume  evalray run --json" in interrupted.stderr

    finished = cli(*command)
    assert finished.code == 0, finished.stderr
    [run] = finished.json["runs"]
    assert {name: number for name, number in run["outcomes"].items() if number} == {
        "correct": 60,
        "incorrect": 60,
    }
    rows = _rows(run)
    assert len(rows) == len({row["record_id"] for row in rows}) == total
    assert len(slow_adder.seen()) == total
    assert sum(slow_adder.seen().values()) <= total + 2.5 * _IN_FLIGHT


def test_a_server_that_is_not_there_ends_in_failure_and_grades_nothing(
    cli: Any, sums: Callable[[int], Path]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    suite = cli.folder / "suite.toml"
    suite.write_text(
        "[run]\nbreaker_errors = 100\n[[models]]\nname = 'm'\nengine = 'openai-compatible'\nmax_retries = 0\n"
        f"base_url = 'http://127.0.0.1:{port}/v1'\n[[benchmarks]]\nname = 'gsm8k'\ndata = '{sums(6)}'\n"
    )
    ended = cli("run", "--json", "--no-tracking", "-c", str(suite))
    assert ended.code == 1, ended.stderr
    assert ended.json["exit_code"] == 1
    [run] = ended.json["runs"]
    assert run["accuracy"] is None
    assert run["status"] == "failed"
    assert str(port) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_two_commands_on_one_sweep_directory_do_not_mix(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    command = _command(slow_adder.base_url, sums(60), "--no-tracking")
    first = cli.start(*command)
    slow_adder.wait_for(4, first)
    second = cli(*command)
    assert second.code == 1
    assert second.json["dir"]
    assert str(first.pid) in second.json["errors"][0]
    assert cli.end(first).code == 0
    assert set(slow_adder.seen().values()) == {1}


def test_a_sweep_is_served_to_prometheus_while_it_runs(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/metrics"
    command = _command(slow_adder.base_url, sums(60), "--no-tracking", "--prometheus-port", str(port))
    process = cli.start(*command)
    slow_adder.wait_for(8, process)
    with urllib.request.urlopen(url, timeout=30) as reply:
        text = reply.read().decode()
    assert 'evalray_samples_planned{benchmark="gsm8k",model="org/adder:1",run=""} 60.0' in text
    assert "evalray_replica_requests_in_flight" in text
    ended = cli.end(process)
    assert ended.code == 0, ended.stderr
    assert ended.json["prometheus_url"] == url
    assert url in ended.stderr
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=30)
