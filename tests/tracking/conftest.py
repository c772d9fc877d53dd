"""Stores to track into: one SQLite file a session, since its migrations take seconds; one server a session."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mlflow.entities import Run

    from evalray.telemetry import PowerTimeline

_SWEEPS = Path(__file__).parents[1] / "reports" / "conftest.py"
START_SECONDS = 150.0


def _sweeps() -> Any:
    spec = importlib.util.spec_from_file_location("evalray_tests_sweeps", _SWEEPS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_sweep(tmp_path: Path) -> Callable[..., Path]:
    """``make_sweep(name="sweep", **how)`` writes ``<tmp_path>/results/<name>`` with the real store."""
    write = _sweeps().write_sweep

    def make(name: str = "sweep", **how: Any) -> Path:
        path: Path = write(tmp_path / "results" / name, **how)
        return path

    return make


@pytest.fixture
def make_timeline() -> Callable[..., PowerTimeline]:
    make: Callable[..., PowerTimeline] = _sweeps().sample_timeline
    return make


class Seen:
    """What a reader finds in a store."""

    def __init__(self, uri: str) -> None:
        from mlflow.tracking import MlflowClient

        self.uri = uri
        self.client = MlflowClient(tracking_uri=uri)

    def runs(self, experiment: str) -> list[Run]:
        found = self.client.get_experiment_by_name(experiment)
        return list(self.client.search_runs([found.experiment_id])) if found else []

    def parents(self, experiment: str) -> list[Run]:
        return [run for run in self.runs(experiment) if "mlflow.parentRunId" not in run.data.tags]

    def parent(self, experiment: str) -> Run:
        (run,) = self.parents(experiment)
        return run

    def children(self, experiment: str) -> list[Run]:
        parent_id = self.parent(experiment).info.run_id
        return [run for run in self.runs(experiment) if run.data.tags.get("mlflow.parentRunId") == parent_id]

    def child(self, experiment: str) -> Run:
        (run,) = self.children(experiment)
        return run

    def artifacts(self, run: Run) -> set[str]:
        return {item.path for item in self.client.list_artifacts(run.info.run_id)}

    def artifact(self, run: Run, path: str, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(self.client.download_artifacts(run.info.run_id, path, str(folder)))


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    from evalray.tracking import resolve_tracking_uri

    return resolve_tracking_uri(tmp_path_factory.mktemp("store"), environment={})


@pytest.fixture
def make_seen() -> Callable[[str], Seen]:
    return Seen


@pytest.fixture
def seen(sqlite_uri: str) -> Seen:
    return Seen(sqlite_uri)


class Server:
    """An ``mlflow server`` on loopback, started by ``command``, which ends up at ``uri``."""

    def __init__(self, command: list[str], uri: str, log: Path) -> None:
        self.uri = uri
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env={**os.environ, **_NO_JOBS}
            )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return
            time.sleep(0.25)
        self.stop()
        pytest.fail(f"mlflow server did not come up: {log.read_text()[-2000:]}")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


_NO_JOBS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A team's server: it keeps the artifacts itself and serves them."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'server.db'}"),
        *("--artifacts-destination", str(folder / "artifacts")),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    server = Server(command, f"http://127.0.0.1:{port}", folder / "server.log")
    yield server
    server.stop()


@pytest.fixture
def seen_on_server(mlflow_server: Server) -> Seen:
    return Seen(mlflow_server.uri)


@pytest.fixture(scope="module")
def default_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    """A default store and its page, served the way ``evalray ui`` does."""
    from evalray.tracking import resolve_tracking_uri, ui_command

    folder, port = tmp_path_factory.mktemp("results"), free_port()
    uri = resolve_tracking_uri(folder, environment={})
    page = Server(ui_command(uri, port=port), f"http://127.0.0.1:{port}", folder / "ui.log")
    yield uri, page
    page.stop()
