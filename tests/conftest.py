from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# How long an example takes is the machine's affair, not a test's claim.
hypothesis.settings.register_profile("evalray", deadline=None)
hypothesis.settings.load_profile("evalray")

_TESTS = str(Path(__file__).parent)

# A test session that was started in the background (nohup, a CI runner) ignores these, and so would every
# command that its tests start and interrupt.
for _signal, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One local Ray for the whole test session, as the runtime itself starts it.

    What runs in this process while it is up uses it instead of starting another.
    """
    import asyncio

    from evalray.runtime.cluster import RayCluster

    # Engines and scorers of the tests are found by name in Ray's processes too.
    old = os.environ.get("PYTHONPATH")
    sys.path.insert(0, _TESTS)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_TESTS, old]))
    cluster = RayCluster()
    asyncio.run(cluster.connect(180.0))
    try:
        yield
    finally:
        asyncio.run(cluster.close(30.0))
        sys.path.remove(_TESTS)
        if old is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = old
