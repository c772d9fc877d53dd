"""The process in which isolated scorers run: ``python -m evalray.scorers.worker``.

Speaks length-prefixed frames over its standard streams: pickled requests in (they come from our
own parent), JSON replies out (they are made from hostile text).  It ends when its parent does: by
the closed pipe, and on Linux by the kernel even while it computes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import struct
import sys
import threading
from dataclasses import dataclass
from typing import Any, BinaryIO

from evalray.scorers.base import Answer, Scorer
from evalray.scorers.registry import build_scorer
from evalray.types import EvalRecord, Score

#: Address space of a worker: an expression that needs more ends with an error, not with the machine.
MEMORY_LIMIT_BYTES = 4 << 30
_HEADER = struct.Struct("<I")


@dataclass(slots=True, frozen=True)
class Load:
    """Build this scorer and warm it up."""

    name: str
    args: dict[str, Any]


@dataclass(slots=True, frozen=True)
class Assess:
    """Assess one answer with the scorer loaded last."""

    record: EvalRecord
    answer: Answer


def encode_request(request: Load | Assess) -> bytes:
    body = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body)) + body


def main() -> None:
    parent = os.getppid()
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    # What a library prints must not end up between the frames.
    os.dup2(2, 1)
    _die_with_parent(parent)
    _limit_memory()
    requests: queue.Queue[bytes] = queue.Queue(maxsize=1)
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    scorer: Scorer | None = None
    while True:
        request: Load | Assess = pickle.loads(requests.get())
        reply: dict[str, Any]
        try:
            if isinstance(request, Load):
                scorer = build_scorer(request.name, request.args)
                scorer.warm_up()
                reply = {}
            else:
                assert scorer is not None
                reply = _as_json(scorer.assess(request.record, request.answer))
        except BaseException as error:  # noqa: BLE001  (a scorer's own exit included)
            reply = {
                "error": f"{type(error).__name__}: {error}"[:500],
                "spent": isinstance(error, MemoryError),
            }
        body = json.dumps(reply, default=repr).encode()
        replies.write(_HEADER.pack(len(body)) + body)


def _as_json(score: Any) -> dict[str, Any]:
    if not isinstance(score, Score):
        raise TypeError(f"an isolated scorer must return a Score, got {type(score).__name__}")
    return {"outcome": score.outcome.value, "score": score.score, "metadata": score.metadata}


def _read_requests(stream: BinaryIO, requests: queue.Queue[bytes]) -> None:
    while True:
        header = stream.read(_HEADER.size)
        body = stream.read(_HEADER.unpack(header)[0]) if len(header) == _HEADER.size else b""
        if not body:
            os._exit(0)
        requests.put(body)


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


if __name__ == "__main__":
    # Requests are pickled with this module's importable name; run that one.
    from evalray.scorers.worker import main as importable_main

    importable_main()
