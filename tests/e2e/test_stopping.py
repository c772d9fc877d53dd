"""``evalray run`` that ends before its work does: a second Ctrl-C, a budget."""

from __future__ import annotations

import json
import signal
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
    time.sleep(0.05)
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
