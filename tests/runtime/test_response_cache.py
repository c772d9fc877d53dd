from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evalray.engines.base import EngineConfig
from evalray.errors import StoreError
from evalray.runtime.response_cache import ModelCache, ResponseCache
from evalray.store.journal import Journal, seal
from evalray.types import Generation, GenerationRequest, SamplingParams

_CONFIG = EngineConfig("m", "openai-compatible", base_url="http://a/v1")


def request(prompt: str) -> GenerationRequest:
    return GenerationRequest("0:0:0", ({"role": "user", "content": prompt},), SamplingParams())


def opened(
    folder: Path, sweep: str = "s", config: EngineConfig = _CONFIG
) -> tuple[ModelCache, ResponseCache]:
    cache = ResponseCache(folder / ".cache", folder / sweep)
    model = ModelCache.of(config, cache, print)
    assert model is not None
    return model, cache


def answered(text: str) -> Generation:
    return Generation(raw_text=text, model_answer=text, finish_reason="stop")


def fill(folder: Path, sweep: str = "s") -> None:
    model, cache = opened(folder, sweep)
    for prompt in ("one", "two"):
        model.add(request(prompt), 0, "r", answered(f"{prompt}!"))
    cache.close()


def test_another_sweep_finds_what_an_earlier_one_kept(tmp_path: Path) -> None:
    fill(tmp_path)
    model, cache = opened(tmp_path, "other")
    found = model.get(request("two"), 0, "r")
    assert found is not None
    assert (found.model_answer, found.cached) == ("two!", True)
    assert model.get(request("three"), 0, "r") is None
    assert model.get(request("two"), 1, "r") is None
    assert cache.hits == 1
    cache.close()


def test_another_model_finds_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    model, cache = opened(tmp_path, config=EngineConfig("m2", "openai-compatible", base_url="http://a/v1"))
    assert model.get(request("two"), 0, "r") is None
    cache.close()


def test_a_line_whose_request_is_another_is_no_hit(tmp_path: Path) -> None:
    fill(tmp_path)
    [path] = (tmp_path / ".cache").glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["request"]["messages"][0]["content"] = "a collision"
    for line in lines:
        del line["crc"]
    path.write_bytes(b"".join(map(seal, lines)))
    model, cache = opened(tmp_path)
    assert model.get(request("one"), 0, "r") is not None
    assert model.get(request("two"), 0, "r") is None
    cache.close()


def test_a_torn_and_a_damaged_line_cost_only_themselves(tmp_path: Path) -> None:
    fill(tmp_path)
    [path] = (tmp_path / ".cache").glob("*.jsonl")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"one!", b"0ne!") + data[:50])
    model, cache = opened(tmp_path)
    assert model.get(request("one"), 0, "r") is None
    assert model.get(request("two"), 0, "r") is not None
    cache.close()


def test_what_is_no_file_in_the_folder_costs_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / ".cache" / "a-folder.jsonl").mkdir()
    os.mkfifo(tmp_path / ".cache" / "a-pipe.jsonl")
    model, cache = opened(tmp_path, "other")
    assert model.get(request("two"), 0, "r") is not None
    cache.close()


def test_sweeps_of_one_name_in_two_folders_write_two_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        ResponseCache(tmp_path / ".cache", tmp_path / folder / "s").close()
    assert len(list((tmp_path / ".cache").iterdir())) == 2


def test_a_full_disk_costs_the_cache_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cache = ResponseCache(tmp_path / ".cache", tmp_path / "s", said.append)
    model = ModelCache.of(_CONFIG, cache, print)
    assert model is not None

    def full(self: Journal, data: bytes) -> None:
        raise StoreError("no space left on device")

    model.add(request("one"), 0, "r", answered("1"))
    monkeypatch.setattr(Journal, "_write", full)
    model.flush()
    model.add(request("two"), 0, "r", answered("2"))
    assert model.get(request("one"), 0, "r") is None
    assert "no space left" in said[0]
    assert "going on without it" in said[0]


def test_a_model_that_cannot_be_told_is_said_and_not_cached(tmp_path: Path) -> None:
    said: list[str] = []
    cache = ResponseCache(tmp_path / ".cache", tmp_path / "s")
    assert ModelCache.of(EngineConfig("m", "llamacpp", path="/no/such.gguf"), cache, said.append) is None
    assert "not cached" in said[0]
    cache.close()
