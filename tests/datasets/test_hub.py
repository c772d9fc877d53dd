"""Who may read what on the hub, against a server that answers as the hub does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalray.benchmarks import load_benchmark
from evalray.datasets import hub, open_dataset, preflight
from evalray.datasets.hub import HubDataset, reach
from evalray.errors import DatasetError
from evalray.types import RunConfig

datasets = pytest.importorskip("datasets")
huggingface_hub = pytest.importorskip("huggingface_hub")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
Answer = Callable[..., None]


@pytest.fixture(autouse=True)
def _nobody_in_particular(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No account, no cache, and a hub that refuses connections until a test answers for it."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """Makes the hub answer every request with a status and an error code."""
    reply: dict[str, Any] = {"seen": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply["seen"].append((self.path, self.headers.get("authorization")))
            self.send_response(reply["status"])
            if reply["code"]:
                self.send_header("X-Error-Code", reply["code"])
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")

    def set_reply(status: int, code: str = "") -> list[tuple[str, str | None]]:
        reply.update(status=status, code=code)
        return reply["seen"]

    yield set_reply
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_open_data_is_read_from_the_hub(answer: Answer) -> None:
    seen = answer(200)
    assert reach(HubDataset("a/b")).place == "hub"
    assert "/api/datasets/a/b/auth-check" in [path for path, _ in seen]


@pytest.mark.parametrize("status", [401, 403])
def test_gated_data_says_which_terms_and_which_token(
    answer: Answer, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(status, "GatedRepo")
    with pytest.raises(DatasetError) as caught:
        reach(HubDataset("a/b"))
    assert caught.value.gated
    assert str(caught.value) == (
        "a/b is gated: accept its terms at https://huggingface.co/datasets/a/b "
        "and set HF_TOKEN to a token of that account (HF_TOKEN is not set)"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(DatasetError, match="the token that is set has no access") as caught:
        reach(HubDataset("a/b"))
    assert "hf_secret" not in str(caught.value)


def test_a_token_that_has_access_reads_gated_data(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answer(200)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert reach(HubDataset("a/b", gated=True)).place == "hub"
    assert ("/api/datasets/a/b/auth-check", "Bearer hf_good") in seen


@pytest.mark.parametrize("gated", [False, True])
def test_data_that_is_not_there_or_hidden(
    answer: Answer, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    answer(404, "RepoNotFound")
    with pytest.raises(DatasetError, match="is gated" if gated else "no dataset 'a/b' on the hub") as caught:
        reach(HubDataset("a/b", gated=gated))
    assert caught.value.gated is gated


def test_a_hub_in_trouble_is_left_to_the_download(answer: Answer) -> None:
    answer(500)
    assert reach(HubDataset("a/b")).place == "hub"


def test_declared_gated_without_a_token_asks_no_network(answer: Answer) -> None:
    seen = answer(200)
    assert reach(HubDataset("a/b", gated=True)).place == "cache"
    assert seen == []


def test_a_hub_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr(hub, "REACH_SECONDS", 0.05)
    monkeypatch.setattr(huggingface_hub.HfApi, "auth_check", lambda *_, **__: held.wait(30))
    found = reach(HubDataset("a/b"))
    held.set()
    assert (found.place, found.reason) == ("cache", "no answer within 0.05 s")


@pytest.mark.parametrize("name", ["math500", "wildchat"])
def test_a_hub_out_of_reach_is_one_line_and_never_retried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("tried to download"))
    benchmark, config = load_benchmark(BENCHMARKS / name), RunConfig(name, "llamacpp", "m")
    with pytest.raises(
        DatasetError, match=r"the hub cannot be reached and .* is not in the local cache"
    ) as caught:
        open_dataset(benchmark, config).load(max_samples=3)
    assert not caught.value.gated
    assert "\n" not in str(caught.value)
    assert preflight(benchmark, config) == str(caught.value)


@pytest.mark.parametrize("name", ["gaia", "gpqa", "hle"])
def test_gated_benchmarks_are_told_before_anything_is_downloaded(name: str) -> None:
    benchmark, config = load_benchmark(BENCHMARKS / name), RunConfig(name, "llamacpp", "m")
    with pytest.raises(DatasetError) as caught:
        open_dataset(benchmark, config).load(max_samples=3)
    assert caught.value.gated
    page = f"https://huggingface.co/datasets/{benchmark.data_path}"
    assert page in str(caught.value)
    assert "HF_TOKEN is not set" in str(caught.value)
    assert preflight(benchmark, config) == str(caught.value)


@pytest.mark.parametrize("name", ["gaia", "gpqa", "hle"])
def test_local_data_of_a_gated_benchmark_needs_no_token(name: str) -> None:
    config = RunConfig(name, "llamacpp", "m", data="sample")
    assert preflight(load_benchmark(BENCHMARKS / name), config) is None


def test_preflight_tells_of_local_data_that_is_not_there() -> None:
    config = RunConfig("math500", "llamacpp", "m", data="/nowhere/x.jsonl")
    told = preflight(load_benchmark(BENCHMARKS / "math500"), config)
    assert told is not None
    assert told.startswith("no such data: /nowhere/x.jsonl")


def test_another_data_set_of_a_gated_benchmark_is_not_taken_for_gated(answer: Answer) -> None:
    answer(404, "RepoNotFound")
    config = RunConfig("hle", "llamacpp", "m", data="somebody/hle-text-only")
    told = preflight(load_benchmark(BENCHMARKS / "hle"), config)
    assert told is not None
    assert "no dataset 'somebody/hle-text-only' on the hub" in told


@pytest.mark.parametrize("streaming", [False, True])
def test_revision_and_subset_reach_the_hub(
    make_benchmark: Any, answer: Answer, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    answer(200)
    asked: dict[str, Any] = {}

    def load_dataset(name: str, subset: str | None, **given: Any) -> Any:
        asked.update(given, name=name, subset=subset)
        table = datasets.Dataset.from_list([{"question": "q", "answer": "a"}])
        return table.to_iterable_dataset() if streaming else table

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    benchmark = make_benchmark(data_path="a/b", subset="main", revision="abc123", streaming=streaming)
    open_dataset(benchmark, RunConfig("questions", "x", "m")).load(max_samples=1)
    assert (asked["name"], asked["subset"], asked["revision"], asked["split"]) == (
        "a/b", "main", "abc123", "test",
    )  # fmt: skip


def test_the_cache_is_used_where_the_hub_is_out_of_reach(
    make_benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub" / "datasets--a--b").mkdir(parents=True)
    switches: list[bool] = []

    def load_dataset(*_: Any, **__: Any) -> Any:
        switches.extend((datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE))
        return datasets.Dataset.from_list([{"question": "q", "answer": "a"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    provider = open_dataset(make_benchmark(data_path="a/b"), RunConfig("questions", "x", "m"))
    provider.load()
    assert provider.size() == 1
    assert switches == [True, True]
    assert not datasets.config.HF_HUB_OFFLINE
    assert not huggingface_hub.constants.HF_HUB_OFFLINE
