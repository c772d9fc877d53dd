from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, cast

import pytest

from evalray.prometheus import MetricsServer, server, serving_metrics
from evalray.runtime import RunProgress, SweepProgress

_HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(server, "COST_SHARE", float("inf"))


@pytest.fixture
def progress() -> SweepProgress:
    return SweepProgress(sweep_id="s", runs=[RunProgress("b", "m", planned=7)])


@pytest.fixture
def serving(progress: SweepProgress) -> Iterator[MetricsServer]:
    running = MetricsServer(progress, _HERE, 0)
    yield running
    running.close()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as reply:
        assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(reply.read().decode("utf-8"))


def _connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_scrape_has_what_the_sweep_is_at_now(serving: MetricsServer, progress: SweepProgress) -> None:
    assert 'evalray_samples_done_total{benchmark="b",model="m",run=""} 0.0' in scrape(serving.url)
    progress.runs[0].outcomes["correct"] += 1
    assert 'evalray_samples_done_total{benchmark="b",model="m",run=""} 1.0' in scrape(serving.url)
    assert scrape(f"{serving.url}?x=1")


def test_other_paths_say_where_the_metrics_are(serving: MetricsServer) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        scrape(serving.url.replace("/metrics", "/<script>"))
    assert caught.value.code == 404
    body = caught.value.read().decode()
    assert "/metrics" in body
    assert "<script>" not in body


def test_many_scrapes_are_worked_out_once(
    serving: MetricsServer, progress: SweepProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "FRESH_SECONDS", 1e9)
    first = scrape(serving.url)
    progress.runs[0].outcomes["correct"] += 1
    assert scrape(serving.url) == first


def test_a_scrape_that_fails_harms_no_other(serving: MetricsServer, progress: SweepProgress) -> None:
    run = progress.runs[0]
    progress.runs = [cast(Any, None)]
    with pytest.raises(urllib.error.HTTPError) as caught:
        scrape(serving.url)
    assert caught.value.code == 500
    progress.runs = [run]
    assert "evalray_samples_planned" in scrape(serving.url)


def test_it_is_closed_whoever_is_still_connected(serving: MetricsServer) -> None:
    silent, reading = _connected(serving.url), _connected(serving.url)
    reading.sendall(b"GET /metrics HTTP/1.0\r\n")
    serving.close()
    with pytest.raises(ConnectionRefusedError):
        _connected(serving.url)
    silent.close()
    reading.close()


def test_more_clients_than_there_is_room_for_are_turned_away_and_later_ones_served(
    serving: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 600.0)
    silent = [_connected(serving.url) for _ in range(server.MAX_REQUESTS)]
    turned_away = _connected(serving.url)
    assert turned_away.recv(1) == b""
    for client in silent:
        client.close()
    for _ in range(1000):
        try:
            assert "evalray_samples_planned" in scrape(serving.url)
            break
        except OSError:
            continue  # the threads of those that left are still ending
    else:
        pytest.fail("nobody was served any more")


def test_a_client_that_asks_nothing_is_not_waited_for(
    progress: SweepProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._Handler, "timeout", 0.1)
    running = MetricsServer(progress, _HERE, 0)
    silent = _connected(running.url)
    assert silent.recv(1) == b""
    running.close()


def test_clients_that_ask_a_byte_at_a_time_keep_nobody_out_for_long(
    progress: SweepProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WHOLE_SECONDS", 0.2)
    running = MetricsServer(progress, _HERE, 0)
    slow = [_connected(running.url) for _ in range(server.MAX_REQUESTS)]
    try:
        for client in slow:
            client.settimeout(10)
            client.sendall(b"G")
            assert client.recv(1) == b"", (
                "it is hung up on within the time of a whole request, not of its last byte"
            )
        assert "evalray_samples_planned" in scrape(running.url)
    finally:
        for client in slow:
            client.close()
        running.close()


def test_serving_says_where_and_ends_with_its_block(progress: SweepProgress) -> None:
    said: list[str] = []
    with serving_metrics(progress, _HERE, 0, said.append):
        [line] = said
        url = progress.prometheus_url
        assert url is not None
        assert line.endswith(url)
        assert ":0/" not in url
        assert scrape(url)
    with pytest.raises(ConnectionRefusedError):
        _connected(url)


def test_a_port_in_use_is_one_line_and_the_sweep_goes_on(serving: MetricsServer) -> None:
    port = int(serving.url.rpartition(":")[2].removesuffix("/metrics"))
    other, said, went_on = SweepProgress(), list[str](), False
    with serving_metrics(other, _HERE, port, said.append):
        went_on = True
    assert went_on
    [line] = said
    assert str(port) in line
    assert "in use" in line
    assert "--prometheus-port 0" in line
    assert other.prometheus_url is None
    assert scrape(serving.url)


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 100], ids=["not-ours", "no-name"])
def test_a_host_that_is_not_ours_is_one_line_too(host: str, progress: SweepProgress) -> None:
    said: list[str] = []
    with serving_metrics(progress, host, 0, said.append):
        pass
    [line] = said
    assert "prometheus_host" in line
    assert progress.prometheus_url is None
