"""Ray itself: start one here, or join the one that is named.

Starting takes seconds, so it happens in a thread of its own while data loads.  That thread stays
until Ray is shut down: the kernel ends Ray's processes when the *thread* that started them ends,
which is also what leaves no process behind when the driver is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalray.errors import PlacementError
from evalray.runtime.placement import Nodes, alive
from evalray.threads import in_thread

_log = logging.getLogger("evalray.ray")

_STORE_BYTES = 128 << 20
_SMALLEST_STORE_BYTES = 80 << 20
_PROBE_SECONDS = 5.0
#: A local Ray that does not come up is started once more.
_START_ATTEMPTS = 2
_WATCH_SECONDS = 3.0
_ANSWER_SECONDS = 10.0

_LOST = (
    "Ray on this machine is gone (its {process} was killed or crashed; was memory short?); "
    "the same command starts it anew and continues"
)

#: Read by Ray's processes when they start.  Users' own settings win.
_QUIET = {
    # One event a task, kept by the head: hundreds of MB in a long sweep, and nobody reads them here.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # What an engine started ends with its actor, also where that is killed.
    "RAY_kill_child_processes_on_worker_exit": "1",
    "RAY_process_group_cleanup_enabled": "1",
}
#: Of a Ray that is started here.  Without its head it ends this process too, on the spot: not while we end in order.
_PATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}


class RayCluster:
    """A connection to Ray.  ``address`` ``None`` starts a local one; one this process has is used as it is."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self._ours = False
        self._head = ""
        """Address of the head, of a Ray that was started here."""
        self._ended = threading.Event()
        self._settled = threading.Event()
        self._thread: threading.Thread | None = None

    async def connect(self, deadline_seconds: float) -> None:
        """Raises :class:`PlacementError` with what to do."""
        loop = asyncio.get_running_loop()
        connected: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            self._settled.set()

            def set_it() -> None:
                if connected.done():
                    return
                if error is None:
                    connected.set_result(None)
                else:
                    connected.set_exception(error)

            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(set_it)

        self._thread = threading.Thread(target=self._live, args=(settle,), name="evalray-ray", daemon=True)
        self._thread.start()
        what = f"joining Ray at {self.address}" if self.address else "starting Ray on this machine"
        try:
            await asyncio.wait_for(connected, deadline_seconds)
        except TimeoutError:
            raise PlacementError(
                f"{what} took more than {deadline_seconds:g} s; is the machine busy?"
            ) from None

    async def close(
        self, deadline_seconds: float = 20.0, *, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Shut a local Ray down, or leave the cluster.  Safe to call twice."""
        self._ended.set()
        thread = self._thread
        if thread is not None and thread.is_alive():
            if not self._settled.is_set():  # Ray's start cannot be cut short without leaving processes behind
                say("waiting for Ray to start up so that it can be shut down")
            await asyncio.to_thread(thread.join, deadline_seconds)

    @staticmethod
    def nodes() -> Nodes:
        """The nodes and their resources; blocks for a moment."""
        import ray

        found: Nodes = ray.nodes()
        return found

    async def watch(self) -> str:
        """Return once the Ray that was started here has lost its head or its node, and what to say then.

        It cannot heal, as nothing starts either again.  Of a cluster that was joined, where nodes may
        come back, it never returns.
        """
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if not self._ours or self.address is not None:
                continue
            headless = bool(self._head) and await asyncio.to_thread(_nothing_listens, self._head)
            if headless:
                return _LOST.format(process="gcs_server")
            with contextlib.suppress(Exception):  # without an answer: the next look tells
                if not alive(await asyncio.wait_for(in_thread(self.nodes), _ANSWER_SECONDS)):
                    return _LOST.format(process="raylet")

    @property
    def elastic(self) -> bool:
        """Whether nodes may come that are not there yet."""
        return self.address is not None

    def _live(self, settle: Callable[[BaseException | None], None]) -> None:
        try:
            self._connect()
        except PlacementError as error:
            settle(error)
            return
        except BaseException as error:  # noqa: BLE001 -- Ray raises a great many things here
            settle(PlacementError(self._explain(error)))
            return
        settle(None)
        self._ended.wait()
        if self._ours:
            import ray

            with contextlib.suppress(Exception):
                ray.shutdown()  # without a head it takes some seconds longer

    def _connect(self) -> None:
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            return
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        if self.address is None:
            for name, value in _PATIENT.items():
                os.environ.setdefault(name, value)
            _provide_local_token()
        else:
            _probe(self.address)
            if has_token():
                os.environ.setdefault("RAY_AUTH_MODE", "token")
        import ray

        _quieten()
        _set_apart()
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        self._ours = True
        if self.address is not None:
            ray.init(address=self.address, **common)
            return
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                ray.init(
                    address="local",  # never what a stale /tmp/ray/ray_current_cluster or RAY_ADDRESS names
                    num_cpus=os.cpu_count() or 1,
                    include_dashboard=False,
                    **_object_store(),
                    **common,
                )
                with contextlib.suppress(Exception):
                    self._head = ray.get_runtime_context().gcs_address
                return
            except RuntimeError:  # Ray gives its own processes little time; a busy machine may need more
                if attempt == _START_ATTEMPTS or self._ended.is_set():
                    raise
                ray.shutdown()

    def _explain(self, error: BaseException) -> str:
        lines = str(error).strip().splitlines() or [""]
        detail = f"{type(error).__name__}: {lines[0]}"[:300]
        if self.address is None:
            return f"Ray did not start on this machine: {detail}; see /tmp/ray/session_latest/logs"
        if not has_token():
            return f"Ray at {self.address} did not let us in ({detail}); {TOKEN_ADVICE}"
        if "auth" in str(error).lower() or "token" in str(error).lower():
            return f"Ray at {self.address} refused the token of {token_source()}; {TOKEN_ADVICE}"
        return (
            f"cannot join Ray at {self.address}: {detail}; does it run the same Ray and Python version, "
            f"and is the token of {token_source()} the cluster's?"
        )


TOKEN_ADVICE = (
    "if the cluster uses token authentication, put the token that `ray get-auth-token` prints on its head "
    "node into ~/.ray/auth_token or into the environment variable RAY_AUTH_TOKEN"
)


def token_source() -> str | None:
    """Where Ray's cluster token would come from, if there is one."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if named and Path(named).is_file():
        return named
    with contextlib.suppress(RuntimeError, OSError):
        if (Path.home() / ".ray" / "auth_token").is_file():
            return "~/.ray/auth_token"
    return None


def has_token() -> bool:
    return token_source() is not None


def _provide_local_token() -> None:
    """A local Ray gets a token of its own for its lifetime, so that none has to be written to the home.

    Ray reads the mode when it is imported.  Where somebody has done that already the mode stays as it was
    then: a Ray that we started with a token would turn this very process away.
    """
    if "ray" in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        return
    if not has_token() and os.environ.get("RAY_AUTH_MODE", "token") == "token":
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.setdefault("RAY_AUTH_MODE", "token")


def _quieten() -> None:
    """Ray prints what happens to its workers on stdout, which is the results' alone: into the log with it."""
    from ray._private import worker

    def to_log(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        for line in data.get("lines", ()):
            _log.debug("%s", line)

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = to_log


def _set_apart() -> None:
    """Ray's processes get a process group of their own: ``timeout`` and a terminal signal our whole group,
    and would take the engines from under the requests that an orderly stop waits for."""
    from ray._private import services

    # Elsewhere the group is also what Ray's own reaper cleans up by.
    if sys.platform == "linux" and hasattr(services, "ConsolePopen"):
        services.ConsolePopen = functools.partial(services.ConsolePopen, process_group=0)


def _probe(address: str) -> None:
    """Find out quickly that nothing listens at ``host:port``, where Ray itself tries for a minute."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return
    except OSError as error:
        raise PlacementError(
            f"nothing answers at {address} ({error.strerror or error}); "
            "is the Ray cluster up, and is this its head's address and port (default 6379)?"
        ) from None


def _nothing_listens(address: str) -> bool:
    """Whether connections to ``host:port`` are refused."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _object_store() -> dict[str, Any]:
    """Ray's shared memory: little, since nothing large is shared; on disk where /dev/shm is tiny."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return {"object_store_memory": _STORE_BYTES}
    free = shutil.disk_usage(shared).free
    if free >= 2 * _SMALLEST_STORE_BYTES:
        return {"object_store_memory": min(_STORE_BYTES, free // 2)}
    os.environ.setdefault("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE", "1")
    return {"object_store_memory": _SMALLEST_STORE_BYTES, "_plasma_directory": tempfile.gettempdir()}
