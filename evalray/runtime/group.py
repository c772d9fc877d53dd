"""The placement group of one replica whose GPUs lie on several nodes, from its reservation to its removal.

Ray removes it with the driver's job, however that ends; while the driver lives it is removed here, and what
runs in it ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from evalray.runtime.placement import Need, whole_stages

#: How long nodes that had room for whole pipeline stages may turn out to have it no more.
_WHOLE_STAGES_SECONDS = 10.0
_NODE_ID_LABEL = "ray.io/node-id"


class ReplicaGroup:
    """See the module.  ``node_ids`` are known once it is reserved."""

    def __init__(self, need: Need) -> None:
        self.node_ids: frozenset[str] = frozenset()
        self._need = need
        self._group: Any = None

    async def reserve(self, seconds: float) -> None:
        """Wait for the GPUs: whole pipeline stages on a node where that is free now, else as Ray packs them.

        Raises :class:`TimeoutError`.
        """
        until = time.monotonic() + seconds
        chosen = whole_stages(self._need, await asyncio.to_thread(_free_gpus))
        if chosen is not None:
            pinned = [{_NODE_ID_LABEL: node_id} for node_id in chosen]
            with contextlib.suppress(TimeoutError):
                await self._create(min(_WHOLE_STAGES_SECONDS, seconds / 2), bundle_label_selector=pinned)
                return
            self.remove()
        await self._create(max(0.0, until - time.monotonic()))

    def strategy(self) -> Any:
        """How Ray schedules the engine's actor, and whatever that starts: into the group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )

    def remove(self) -> None:
        """Give the GPUs back, and end what still runs on them.  Safe to call twice."""
        group, self._group = self._group, None
        if group is not None:
            from ray.util import remove_placement_group

            with contextlib.suppress(Exception):
                remove_placement_group(group)

    async def _create(self, seconds: float, **options: Any) -> None:
        from ray.util import placement_group, placement_group_table

        # Not in a thread: a wait that is cancelled must not leave a group behind that nobody knows of.
        group = self._group = placement_group(self._need.bundles(), strategy="PACK", **options)
        await asyncio.wait_for(asyncio.wrap_future(group.ready().future()), seconds)
        table = await asyncio.to_thread(placement_group_table, group)
        self.node_ids = frozenset(table["bundles_to_node_id"].values())


def _free_gpus() -> dict[str, float]:
    """By node id; empty where this Ray does not tell."""
    try:
        from ray._private.state import available_resources_per_node
    except ImportError:
        return {}
    return {node_id: float(free.get("GPU", 0.0)) for node_id, free in available_resources_per_node().items()}
