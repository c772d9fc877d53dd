"""Standard streams that are closed, full or left by their reader, and interrupts that come early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = f"{sys.executable} -m evalray"

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    """``evalray`` in a shell's line; the exit code is the first failing one of a pipe."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("evalray", _PYTHON, 1)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("evalray list scorers --json >&-", "stdout is closed"),
        pytest.param("evalray list scorers --json >/dev/full", "No space left", marks=needs_dev_full),
        pytest.param("evalray list scorers >/dev/full", "No space left", marks=needs_dev_full),
    ],
)
def test_output_that_cannot_be_written_is_said_and_exits_1(command: str, told: str) -> None:
    done = _shell(command)
    assert done.returncode == 1
    assert told in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=needs_dev_full)])
@pytest.mark.parametrize(("arguments", "code"), [("list scorers --json", 0), ("run -b nosuch --json", 2)])
def test_a_stderr_that_is_missing_or_full_changes_nothing(stderr: str, arguments: str, code: int) -> None:
    done = _shell(f"evalray {arguments} {stderr}")
    assert done.returncode == code
    assert json.loads(done.stdout)["exit_code"] == code
    assert done.stderr == ""


@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_leaves_does_not_change_the_exit_code(reader: str) -> None:
    done = _shell(f"evalray list benchmarks | {reader}")
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_table_whose_reader_left_leaves_the_commands_own_exit_code() -> None:
    program = """
import os, sys
from evalray.cli.report import Report
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
report = Report()
report.show("a table")
report.show("more of it")
print("still here", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "still here\n")


#: Found by Python as it starts; the interrupt comes inside the ``exec`` of a string, as dataclasses use it.
_EARLY = """
import os, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            for number in {numbers}:
                exec("os.kill(os.getpid(), number); [None for _ in range(1000)]")
sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("numbers", [[2], [15], [1], [15, 15], [2, 15]])
def test_an_interrupt_while_the_commands_are_imported_is_130_with_one_object(
    tmp_path: Path, numbers: list[int]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_EARLY.format(numbers=numbers))
    done = subprocess.run(
        [sys.executable, "-m", "evalray", "run", "--json", "-b", "gsm8k"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{_ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["errors"]) == (130, ["interrupted"])
    assert "Traceback" not in done.stderr
