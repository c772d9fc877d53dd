"""Which deployments may run at once: as many as their resources allow, in the order of the plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from evalray.runtime.placement import Need, Nodes, total


@dataclass(slots=True, frozen=True)
class Claim:
    """What one deployment takes while it runs.  ``exclusive``: it computes on the driver's own cores.
    ``counts``: it is one of the deployments that may run at once, as a judge is not."""

    need: Need
    replicas: int
    exclusive: bool
    counts: bool = True


class Admission:
    """Bookkeeping of claims against a cluster's totals; placing on nodes is Ray's."""

    def __init__(self, nodes: Nodes, limit: int) -> None:
        self._free = {"CPU": total("CPU", nodes), "GPU": total("GPU", nodes)}
        self._total = dict(self._free)
        self._limit = limit
        self._running = 0
        self._exclusive = False
        self._waiting = 0
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def admit(self, claim: Claim) -> AsyncIterator[None]:
        """Wait for the turn; what was claimed is free again at the end of the block."""
        taken = self._taken(claim)
        async with self._changed:
            self._waiting += claim.counts
            try:
                await self._changed.wait_for(lambda: self._fits(claim, taken))
            finally:
                self._waiting -= claim.counts
            self._running += claim.counts
            self._exclusive = self._exclusive or claim.exclusive
            for name, value in taken.items():
                self._free[name] -= value
        try:
            yield
        finally:
            async with self._changed:
                self._running -= claim.counts
                if claim.exclusive:
                    self._exclusive = False
                for name, value in taken.items():
                    self._free[name] += value
                self._changed.notify_all()

    @property
    def contended(self) -> bool:
        """Whether a deployment waits for its turn."""
        return self._waiting > 0

    def _taken(self, claim: Claim) -> dict[str, float]:
        """More than there is cannot be waited for: then all of it, and Ray's placement has the last word."""
        wanted = {"CPU": claim.need.cpus * claim.replicas, "GPU": claim.need.gpus * claim.replicas}
        return {name: min(value, self._total[name]) for name, value in wanted.items()}

    def _fits(self, claim: Claim, taken: dict[str, float]) -> bool:
        if (claim.counts and self._running >= self._limit) or (claim.exclusive and self._exclusive):
            return False
        return all(value <= self._free[name] + 1e-9 for name, value in taken.items())
