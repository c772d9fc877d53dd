"""The command line as a user calls it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; fails where there is anything else."""
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value


@pytest.fixture
def evalray(tmp_path: Path) -> Callable[..., Ended]:
    """Run ``evalray`` with the given arguments in an empty folder."""

    def call(*args: str, timeout: float = 60.0, **environment: str) -> Ended:
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and k != "RAY_ADDRESS"}
        done = subprocess.run(
            [sys.executable, "-m", "evalray", *args],
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": str(_ROOT), "COLUMNS": "100", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call
