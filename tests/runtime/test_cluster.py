from __future__ import annotations

import socket
from pathlib import Path

import pytest

from evalray.errors import PlacementError
from evalray.runtime import cluster
from evalray.runtime.cluster import RayCluster


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_token_is_found_where_ray_finds_it(no_token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.token_source() is None
    (no_token / ".ray").mkdir()
    (no_token / ".ray" / "auth_token").write_text("x")
    assert cluster.token_source() == "~/.ray/auth_token"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert cluster.token_source() == "RAY_AUTH_TOKEN"


def test_being_turned_away_without_a_token_says_which_and_where_to_put_it(no_token: Path) -> None:
    message = RayCluster("head:6379")._explain(ConnectionError("Failed to connect to Ray cluster"))
    assert "head:6379" in message
    assert "ray get-auth-token" in message
    assert "~/.ray/auth_token" in message
    assert "\n" not in message


def test_an_address_where_nothing_listens_fails_at_once_and_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(PlacementError, match=f"nothing answers at {address}"):
        cluster._probe(address)


def test_a_tiny_shared_memory_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tiny:
        free = 64 << 20

    monkeypatch.setenv("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE", "")
    monkeypatch.setattr(cluster.shutil, "disk_usage", lambda path: Tiny)
    assert "_plasma_directory" in cluster._object_store()


async def test_a_local_ray_that_did_not_come_up_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    starts: list[str] = []

    def init(**options: object) -> None:
        starts.append(str(options["address"]))
        if len(starts) == 1:
            raise RuntimeError("Failed to start GCS.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    connection = RayCluster()
    await connection.connect(30.0)
    await connection.close(5.0)
    assert starts == ["local", "local"]


async def test_a_local_ray_that_never_comes_up_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    def init(**_: object) -> None:
        raise RuntimeError("Failed to start GCS.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(PlacementError, match="Failed to start GCS"):
        await RayCluster().connect(30.0)
