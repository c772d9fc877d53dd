"""What the driver and the tracking process say to each other: one JSON object a line.

Driver to worker: ``open``, ``progress``, ``run_finished``, ``finish``.  Worker to driver:
``synced`` and ``failed``, each with the final flag where it answers ``finish``.
"""

from __future__ import annotations

import json
from typing import Any

OPEN = "open"
PROGRESS = "progress"
RUN_FINISHED = "run_finished"
FINISH = "finish"
SYNCED = "synced"
FAILED = "failed"


def encode(kind: str, **content: Any) -> bytes:
    """One line."""
    return json.dumps({"kind": kind, **content}, default=str).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The object in a line; an empty one for anything else, such as a library's own print."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
