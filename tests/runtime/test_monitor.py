"""The driver's end of a node's monitors, without Ray: when one is replaced, and when the node is given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalray.runtime import monitor
from evalray.runtime.monitor import MonitorLink
from evalray.telemetry import Batch, ClockPair, NodeInfo

_NODE = NodeInfo("node", (), 0.1, ClockPair(0.0, 1e9))


class _Lives(MonitorLink):
    """Each life fetches once and ends, as ``ends`` has it; ``None`` ends well."""

    def __init__(self, ends: list[Exception | None], keep: Any) -> None:
        self.ends = ends
        self.lived = 0
        self.said: list[str] = []
        super().__init__("node", keep, self.said.append, estimate=False)

    async def _live(self, incarnation: int) -> None:
        self.lived += 1
        self._actor, self.node, self._incarnation = _Actor(self.ends[incarnation]), _NODE, incarnation
        await self._fetch("drain")


class _Actor:
    def __init__(self, end: Exception | None) -> None:
        self.drain = end


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(end: Exception | None, seconds: float) -> Batch:
        if end is not None:
            raise end
        return Batch([], ClockPair(0.0, 1e9))

    monkeypatch.setattr(monitor, "_call", call)
    monkeypatch.setattr(MonitorLink, "_kill", lambda self: None)


def _lived(ends: list[Exception | None], keep: Any = lambda *_: None) -> tuple[int, list[str]]:
    async def run() -> tuple[int, list[str]]:
        link = _Lives(ends, keep)
        await link._task
        return link.lived, link.said

    return asyncio.run(run())


@pytest.mark.parametrize("end", [TimeoutError(), ConnectionResetError("gone"), RuntimeError("died")])
def test_a_monitor_that_hangs_or_dies_is_replaced(end: Exception) -> None:
    assert _lived([end, end, None]) == (3, [])


def test_a_monitor_that_dies_again_and_again_is_given_up() -> None:
    lived, said = _lived([TimeoutError("no answer")] * 9)
    assert lived == 4
    assert len(said) == 1
    assert "no answer" in said[0]


def test_readings_that_cannot_be_written_end_the_monitoring_at_once() -> None:
    def keep(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    lived, said = _lived([None] * 9, keep)
    assert lived == 1
    assert "Read-only file system" in said[0]
