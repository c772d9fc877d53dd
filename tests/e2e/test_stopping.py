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
def test_a_lost_ray_ends_the_sweep_with_3_and_what_is_done_is_kept(
    cli: Any, slow_adder: Any, sums: Callable[[int], Path]
) -> None:
    total = 4000
    process = cli.start(*_command(slow_adder.base_url, sums(total)))
    slow_adder.wait_for(30, process)
    raylet = _child_of(process.pid, "raylet")
    assert raylet is not None
    os.kill(raylet, signal.SIGKILL)
    ended = cli.end(process)
    assert ended.code == 3, ended.stderr
    assert ended.json["exit_code"] == 3
    [run] = ended.json["runs"]
    assert run["status"] == "partial"
    for said in (run["reason"], *ended.json["errors"], ended.stderr):
        assert "raylet" in said
        assert "the same command" in said
    assert not run["outcomes"].get("engine_error")
    done = total - run["outcomes"]["skipped"]
    assert done >= 20
    journal = (cli.folder / "results" / "sums" / "gsm8k_m" / "generations.jsonl").read_text()
    assert len(journal.splitlines()) == done


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
