from __future__ import annotations

import asyncio

from evalray.runtime.admission import Admission, Claim
from evalray.runtime.placement import Need

_NODE = {"Alive": True, "NodeID": "n", "Resources": {"CPU": 2.0, "GPU": 1.0}}


async def test_a_judge_is_none_of_the_deployments_that_may_run_at_once() -> None:
    admission = Admission([_NODE], limit=1)
    async with (
        admission.admit(Claim(Need(0.0), 1, exclusive=False, counts=False)),
        asyncio.timeout(5),
        admission.admit(Claim(Need(1.0), 1, exclusive=False)),
    ):
        assert not admission.contended


async def test_a_deployment_that_waits_for_a_judges_gpu_is_seen_to_wait() -> None:
    admission = Admission([_NODE], limit=4)
    entered = asyncio.Event()

    async def deployment() -> None:
        async with admission.admit(Claim(Need(0.25, 1.0), 1, exclusive=False)):
            entered.set()

    async with admission.admit(Claim(Need(0.25, 1.0), 1, exclusive=False, counts=False)):
        waiting = asyncio.create_task(deployment())
        await asyncio.sleep(0.05)
        assert admission.contended
        assert not entered.is_set()
    await asyncio.wait_for(waiting, 5)
    assert entered.is_set()
    assert not admission.contended
