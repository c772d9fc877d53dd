"""``evalray run`` that ends before its work does: a second Ctrl-C, a budget."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def _command(base_url: str, data: Path, *more: str) -> list[str]:
    return [
        *("run", "--json", "-b", "gsm8k", "-m", "m", "-e", "openai-compatible", "--base-url", base_url),
        *("--data", str(data), "-w", "8", "--sweep-id", "sums", "--no-tracking", *more),
    ]


def test_a_second_interrupt_still_gives_the_json_object_and_keeps_what_is_done(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    process = cli.start(*_command(slow_adder.base_url, sums(400)))
    slow_adder.wait_for(60, process)
    process.send_signal(signal.SIGINT)
    time.sleep(1.05)
    process.send_signal(signal.SIGINT)
    ended = cli.end(process)
    assert ended.code == 130, ended.stderr
    assert ended.json["exit_code"] == 130
    assert (ended.json["sweep_id"], len(ended.json["runs"])) == ("sums", 1)
    assert ended.json["runs"][0]["status"] == "partial"
    assert ended.json["errors"]
    journal = (cli.folder / "results" / "sums" / "gsm8k_m" / "generations.jsonl").read_text()
    assert journal.endswith("\n")
    assert len([json.loads(line) for line in journal.splitlines()]) >= 30


def test_what_timeout_sends_to_the_command_and_its_group_is_one_orderly_stop(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    process = cli.start(*_command(slow_adder.base_url, sums(400)))
    slow_adder.wait_for(30, process)
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    ended = cli.end(process)
    assert ended.code == 130, ended.stderr
    [run] = ended.json["runs"]
    assert run["status"] == "partial"
    assert run["summary"] is not None
    assert run["outcomes"]["correct"] + run["outcomes"]["incorrect"] >= 30
    assert not run["outcomes"].get("engine_error")
    assert "once more stops now" in ended.stderr
    assert "SIGTERM received" not in ended.stderr
    assert any("interrupted" in error for error in ended.json["errors"])
    assert set(slow_adder.seen().values()) == {1}


def test_a_terminals_interrupt_of_the_whole_group_costs_no_sample_that_is_being_scored(
    cli: Any, slow_adder: Any, tmp_path: Path
) -> None:
    # Sums left undone, which no rule can compare: each goes to the workers of the isolated scorer.
    rows = [
        {"unique_id": f"s{i}", "problem": f"What is {i} plus {2 * i}?", "answer": f"{i}+{2 * i}"}
        for i in range(0, 800, 2)
    ]
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["run", "--json", "-b", "math500", "-m", "m", "-e", "openai-compatible", "-w", "8"]
    command += ["--base-url", slow_adder.base_url, "--data", str(data), "--sweep-id", "sums", "--no-tracking"]
    scores = cli.folder / "results" / "sums" / "math500_m" / "scores.jsonl"

    process = cli.start(*command)
    slow_adder.wait_for(8, process)
    deadline = time.monotonic() + 120
    while not (scores.is_file() and scores.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    stopped = cli.end(process)
    assert stopped.code == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "KeyboardInterrupt" not in stopped.stderr
    [run] = stopped.json["runs"]
    assert run["status"] == "partial"
    assert {name for name, count in run["outcomes"].items() if count} == {"correct", "skipped"}
    rest = cli(*command)
    assert rest.code == 0, rest.stderr
    assert rest.json["runs"][0]["outcomes"]["correct"] == len(rows)
    assert set(slow_adder.seen().values()) == {1}


def _child_of(driver: int, wanted: str) -> int | None:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" (")
        except OSError:
            continue  # ended meanwhile
        name, _, fields = rest.rpartition(") ")
        if name == wanted and int(fields.split()[1]) == driver:
            return int(pid)
    return None


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks for the process in /proc")


@needs_proc
def test_an_interrupt_while_ray_starts_says_what_is_waited_for(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    process = cli.start(*_command(slow_adder.base_url, sums(10)))
    deadline = time.monotonic() + 60
    while _child_of(process.pid, "gcs_server") is None:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    ended = cli.end(process)
    assert ended.code == 130, ended.stderr
    assert "waiting for Ray to start up so that it can be shut down" in ended.stderr
    assert any("interrupted" in error for error in ended.json["errors"])
    assert slow_adder.seen() == {}


@needs_proc
@pytest.mark.parametrize("killed", ["raylet", "gcs_server"])
def test_a_lost_ray_ends_the_sweep_with_3_and_what_is_done_is_kept(
    killed: str, cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    total = 4000
    command = _command(slow_adder.base_url, sums(total))
    process = cli.start(*command)
    slow_adder.wait_for(30, process)
    lost = _child_of(process.pid, killed)
    assert lost is not None
    os.kill(lost, signal.SIGKILL)
    ended = cli.end(process)
    assert ended.code == 3, ended.stderr
    assert ended.json["exit_code"] == 3
    [run] = ended.json["runs"]
    assert run["status"] == "partial"
    for said in (run["reason"], *ended.json["errors"], ended.stderr):
        assert killed in said
        assert "the same command" in said
    assert not run["outcomes"].get("engine_error")
    done = total - run["outcomes"]["skipped"]
    assert done >= 20
    journal = (cli.folder / "results" / "sums" / "gsm8k_m" / "generations.jsonl").read_text()
    assert len(journal.splitlines()) == done
    rest = cli(*command, "-n", "300")
    assert rest.code == 0, rest.stderr
    assert rest.json["runs"][0]["status"] == "complete"
    assert sum(slow_adder.seen().values()) <= max(done, 300) + 20


def test_a_budget_ends_with_4_and_a_larger_one_continues(
    cli: Any, adder: Any, sums: Callable[[int], Path]
) -> None:
    data = sums(60)
    stopped = cli(*_command(adder.base_url, data, "--max-tokens-total", "300"))
    assert stopped.code == 4, stopped.stderr
    [run] = stopped.json["runs"]
    assert run["status"] == "partial"
    assert "budget reached" in run["reason"]
    assert 0 < run["outcomes"]["skipped"] < 60
    assert "resume  evalray run --json" in stopped.stderr
    rest = cli(*_command(adder.base_url, data, "--max-tokens-total", "1000000"))
    assert rest.code == 0, rest.stderr
    assert rest.json["runs"][0]["status"] == "complete"
    assert set(adder.seen().values()) == {1}
