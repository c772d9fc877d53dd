"""What docs/python-api.md shows, run as one program, and what it says happens on a second call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evalray

_ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_page_on_the_python_api_runs(tmp_path: Path) -> None:
    blocks = _BLOCK.findall((_ROOT / "docs" / "python-api.md").read_text())
    assert len(blocks) >= 5
    program = tmp_path / "example.py"
    body = "\n".join(blocks).replace("import evalray\n", "")
    again = """
    again = evalray.run_benchmark(
        RunConfig(benchmark="additions", backend="calculator", model="calculator-1", max_samples=25),
        dataset=Additions(), backend=Calculator(), scorer=SameNumber(), output_dir="results",
    )
    assert (again.correct, again.planned_samples) == (25, 25)
    """
    indented = "".join(f"    {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    program.write_text(f"import evalray\n\n\ndef main():\n{indented}{again}\n\nmain()\n")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "100% of 20" in done.stdout
    journal = tmp_path / "results" / "additions_calculator-1" / "additions_calculator-1" / "generations.jsonl"
    assert len(journal.read_text().splitlines()) == 25, "nothing was generated twice"


@pytest.mark.parametrize("name", evalray.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(evalray, name) is not None
