"""What a store's failures are called."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from evalray.errors import TrackingError
from evalray.tracking.client import Store, tracking_errors


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_server_that_is_down_is_said_without_the_transports_words() -> None:
    requests = pytest.importorskip("requests")
    uri = f"http://127.0.0.1:{_closed_port()}"

    def ask() -> None:
        try:
            requests.get(f"{uri}/api/2.0/mlflow", timeout=5)
        except Exception as error:
            # As MLflow does: the transport's text inside its own, one long line.
            raise RuntimeError(f"API request to {uri} failed with exception {error}") from error

    with pytest.raises(TrackingError) as caught, tracking_errors(uri):
        ask()
    assert str(caught.value) == f"MLflow at {uri} cannot be reached: nothing listens there"


def test_another_failure_is_cut_between_words() -> None:
    with pytest.raises(TrackingError) as caught, tracking_errors("sqlite:///x.db"):
        raise ValueError("word " * 200)
    assert str(caught.value).endswith(" word …")
    assert len(str(caught.value)) < 400


@pytest.mark.timeout(60)
def test_a_database_that_is_a_directory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="is a directory"):
        Store(f"sqlite:///{tmp_path}")


def test_a_scheme_that_mlflow_does_not_know_is_refused() -> None:
    with pytest.raises(TrackingError, match="foo"):
        Store("foo://bar")
