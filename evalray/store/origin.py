"""Where a file of rows comes from that lies outside its sweep, such as what ``run -o FILE`` copied.

Looked for beside the file and in the working directory, where sweeps are by default: in these folders, in
their ``results``, and one level below.
"""

from __future__ import annotations

import filecmp
import json
from collections.abc import Iterator
from pathlib import Path

from evalray.store.layout import RunFiles

_RESULTS = "results"
#: A first line longer than this is no row of ours.
_MAX_LINE_BYTES = 1 << 26


def holds_own_rows(path: Path) -> bool:
    """Whether the first line of a file is a row that EvalRay wrote; ``False`` for what cannot be read."""
    try:
        with path.open("rb") as file:
            row = json.loads(file.readline(_MAX_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "schema_version" in row and "record_id" in row


def find_origin(path: Path) -> tuple[Path, str] | None:
    """The sweep directory whose run has the very rows of ``path``, and the run's name; ``None`` for none."""
    try:
        size = path.stat().st_size
        for sweep in _sweeps_near(path):
            for rows in sorted(sweep.glob("*.jsonl")):
                files = RunFiles(rows.with_suffix(""))
                same = rows.stat().st_size == size and files.manifest.is_file()
                if same and filecmp.cmp(rows, path, shallow=False):
                    return sweep, files.name
    except OSError:
        return None
    return None


def _sweeps_near(path: Path) -> Iterator[Path]:
    folders = [base / name for base in (path.absolute().parent, Path.cwd()) for name in ("", _RESULTS)]
    seen: set[Path] = set()
    for folder in filter(Path.is_dir, folders):
        for sweep in (folder, *sorted(child for child in folder.iterdir() if child.is_dir())):
            if sweep not in seen and (sweep / "sweep.json").is_file():
                seen.add(sweep)
                yield sweep
