"""Real processes: found by their mark, killed, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalray.engines.offspring import MARK, Offspring

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

SLEEP = "import time; time.sleep(60)"
WITH_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def offspring() -> Iterator[Offspring]:
    offspring = Offspring()
    yield offspring
    offspring.kill()


def start(offspring: Offspring, code: str = SLEEP) -> subprocess.Popen[bytes]:
    with offspring.marked({}):
        return subprocess.Popen([sys.executable, "-c", code])


def test_children_and_their_children_are_found_and_killed(offspring: Offspring) -> None:
    child = start(offspring, WITH_A_CHILD)
    assert wait_until(lambda: len(offspring.pids()) == 2)
    assert child.pid in offspring.pids()
    offspring.kill()
    child.wait(10)
    assert wait_until(lambda: offspring.pids() == [])


def test_a_process_without_the_mark_is_never_touched(offspring: Offspring) -> None:
    other = subprocess.Popen([sys.executable, "-c", SLEEP])
    of_another = Offspring()
    theirs = start(of_another)
    try:
        assert wait_until(lambda: of_another.pids() == [theirs.pid])
        offspring.kill()
        assert offspring.pids() == []
        assert alive(other.pid)
        assert alive(theirs.pid)
    finally:
        other.kill()
        theirs.kill()
        other.wait()
        theirs.wait()


def test_the_environment_is_as_before_once_the_processes_are_started(
    offspring: Offspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALRAY_TEST_KEPT", "before")
    with offspring.marked({"EVALRAY_TEST_KEPT": "inside", "EVALRAY_TEST_NEW": "inside"}):
        assert (os.environ["EVALRAY_TEST_KEPT"], os.environ["EVALRAY_TEST_NEW"]) == ("inside", "inside")
        assert os.environ[MARK]
    assert os.environ["EVALRAY_TEST_KEPT"] == "before"
    assert "EVALRAY_TEST_NEW" not in os.environ
    assert MARK not in os.environ


async def test_ending_waits_for_the_willing_kills_the_rest_and_dismisses_the_guard(
    offspring: Offspring,
) -> None:
    offspring.start_guard()
    guard = offspring.guard_pid
    assert guard is not None
    stubborn = start(offspring, f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}")
    assert wait_until(lambda: offspring.pids() == [stubborn.pid])
    await offspring.end(0.2)
    assert offspring.pids() == []
    assert not alive(guard)
    stubborn.wait(10)
    await offspring.end(0.2)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_parent_that_is_killed(ending: signal.Signals) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "from evalray.engines.offspring import Offspring\n"
            "offspring = Offspring()\n"
            "offspring.start_guard()\n"
            "with offspring.marked({}):\n"
            f"    subprocess.Popen([sys.executable, '-c', {WITH_A_CHILD!r}])\n"
            "while len(offspring.pids()) < 2: time.sleep(0.02)\n"
            "print(*offspring.pids(), offspring.guard_pid, flush=True)\n"
            "time.sleep(60)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    parent.send_signal(ending)
    parent.wait(10)
    assert wait_until(lambda: not any(alive(pid) for pid in pids))
