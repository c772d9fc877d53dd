"""``scripts/setup.sh`` with an interpreter that installs nothing: what it says, and where."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"
_PYTHON = """#!/bin/bash
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/bin/evalray && chmod +x .venv/bin/evalray
elif [ "$1" = "-c" ]; then
  echo Python 3.11.0
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(_SCRIPT, tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("fastapi==1\nray==2\n")
    python = tmp_path / "python"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    return tmp_path


def _setup(checkout: Path, **environment: str) -> list[str]:
    around = {name: value for name, value in os.environ.items() if not name.startswith("EVALRAY_")}
    done = subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=checkout,
        env={**around, "PYTHON": str(checkout / "python"), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_every_step_is_a_line_and_the_last_lines_say_what_comes_next(checkout: Path) -> None:
    said = _setup(checkout)
    assert all(line.startswith("setup: ") for line in said)
    for step, line in zip(("making .venv", "installing EvalRay [llamacpp]", "model"), said, strict=False):
        assert step in line
    assert "evalray run -c configs/quickstart.toml" in said[-2]
    assert "evalray doctor" in said[-1]


def test_what_is_installed_already_is_said_too_and_nothing_is_done_again(checkout: Path) -> None:
    first = _setup(checkout)
    assert _setup(checkout) == first[-2:]


def test_a_script_that_goes_on_is_not_told_what_comes_next(checkout: Path) -> None:
    assert not any("Next" in line for line in _setup(checkout, EVALRAY_SETUP_GOES_ON="1"))
    assert _setup(checkout, EVALRAY_SETUP_GOES_ON="1") == []


def test_vllm_says_how_much_it_brings(checkout: Path) -> None:
    assert any("4.4 GB" in line for line in _setup(checkout, EVALRAY_VLLM="cpu"))
