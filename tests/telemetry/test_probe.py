from __future__ import annotations

import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from evalray.telemetry import ProbeError, ProbeResult, cached_probe, load_probe
from evalray.telemetry import probe as probe_module
from evalray.telemetry.machine import (
    available_memory_bytes,
    cpu_model,
    last_level_cache_bytes,
    usable_threads,
)
from evalray.telemetry.probe import cache_folder, probe, probe_file

RESULT = ProbeResult(
    cpu_model(), "cpu", 1, "fp32", 5e11, 1.0, 9, 4e10, 2.0, 9, 1 << 28, 1 << 25, "2026-01-01"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALRAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cpu_is_really_measured_and_the_figures_are_kept(cache: Path) -> None:
    first = cached_probe(threads=1, budget_seconds=0.2)
    assert first.kind == "cpu"
    assert first.dtype == "fp32"
    assert first.label == "achievable"
    assert 1e8 < first.flops_per_second < 1e14
    assert 1e8 < first.read_bytes_per_second < 1e13
    assert min(first.flops_repeats, first.read_repeats) >= 3
    assert min(first.flops_spread_pct, first.read_spread_pct) >= 0
    assert first.array_bytes >= 4 * (first.cache_bytes or 0)
    assert load_probe(threads=1) == first
    assert [file.suffix for file in cache.iterdir()] == [".json"]


def test_a_refresh_measures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([RESULT, replace(RESULT, flops_per_second=6e11)])
    monkeypatch.setattr(probe_module, "probe", lambda *_: next(found))
    assert cached_probe(threads=1).flops_per_second == 5e11
    assert cached_probe(threads=1).flops_per_second == 5e11
    assert cached_probe(threads=1, refresh=True).flops_per_second == 6e11
    assert cached_probe(threads=1).flops_per_second == 6e11


def test_what_a_busy_machine_gave_is_measured_again_and_the_better_of_each_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = replace(RESULT, flops_per_second=3e11, read_bytes_per_second=9e10, flops_spread_pct=80.0)
    found = iter([busy, RESULT, replace(RESULT, flops_per_second=9e11)])
    monkeypatch.setattr(probe_module, "probe", lambda *_: next(found))
    assert cached_probe(threads=1) == busy
    better = replace(RESULT, read_bytes_per_second=9e10)
    assert cached_probe(threads=1) == better
    assert cached_probe(threads=1) == better
    assert load_probe(threads=1) == better


def test_probes_at_once_wait_for_one_another_and_the_later_takes_what_the_first_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most, begun = 0, 0, threading.Event()

    def measured(*_: object) -> ProbeResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        time.sleep(0.3)
        running -= 1
        return RESULT

    monkeypatch.setattr(probe_module, "probe", measured)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(cached_probe, threads=1)
        begun.wait(10)
        again = pool.submit(cached_probe, threads=1, refresh=True)
        same = pool.submit(cached_probe, threads=1)
        assert first.result() == again.result() == same.result() == RESULT
    assert most == 1


def test_a_lock_that_cannot_be_had_keeps_no_probe_from_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    monkeypatch.setattr(probe_module, "probe", lambda *_: RESULT)
    assert cached_probe(threads=1) == RESULT


def test_threads_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        probe_module, "probe", lambda device, threads, budget: replace(RESULT, threads=threads)
    )
    assert cached_probe(threads=1).threads == 1
    assert cached_probe(threads=2).threads == 2
    assert load_probe(threads=3) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(asdict(replace(RESULT, version=0))),
        json.dumps(asdict(RESULT) | {"more": 1}),
        json.dumps(asdict(RESULT) | {"flops_per_second": "fast"}),
        json.dumps(asdict(RESULT) | {"read_bytes_per_second": 0}),
        json.dumps(asdict(RESULT) | {"flops_per_second": float("nan")}),
        json.dumps(asdict(RESULT) | {"flops_per_second": True}),
        json.dumps(asdict(RESULT) | {"flops_per_second": 10**400}),
        json.dumps(asdict(RESULT) | {"flops_spread_pct": "a"}),
        json.dumps(asdict(RESULT) | {"read_spread_pct": float("nan")}),
        json.dumps(asdict(RESULT) | {"cache_bytes": "large"}),
        json.dumps(asdict(RESULT) | {"array_bytes": None}),
        json.dumps(asdict(RESULT) | {"threads": 64}),
        json.dumps(asdict(RESULT) | {"device": "the processor that was there before"}),
        "[" * 100_000,
    ],
)
def test_a_kept_file_that_is_odd_or_old_counts_as_none(content: str) -> None:
    file = probe_file("cpu", 1)
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert load_probe(threads=1) is None


def test_a_cache_that_cannot_be_written_does_not_hide_the_result(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    cache.write_text("a file, where a folder should be")
    monkeypatch.setattr(probe_module, "probe", lambda *_: RESULT)
    assert cached_probe(threads=1) == RESULT


def test_the_cache_follows_the_users_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("EVALRAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "evalray"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "evalray"


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:", "cuda:x", "cpu ", ""])
def test_a_device_that_is_none_is_refused(device: str) -> None:
    with pytest.raises(ProbeError, match="neither cpu nor cuda"):
        probe(device)


def test_a_probe_that_fails_says_why_in_one_line() -> None:
    with pytest.raises(ProbeError) as caught:
        probe("cuda:99", 1, 0.1)
    assert "\n" not in str(caught.value)
    assert "failed on cuda:99: " in str(caught.value)


def test_too_little_memory_is_said_before_any_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "available_memory_bytes", lambda: 1 << 20)
    with pytest.raises(ProbeError, match="more memory is free"):
        probe("cpu", 1, 0.1)


def test_widely_differing_repeats_are_noise() -> None:
    assert not RESULT.is_noisy
    assert replace(RESULT, read_spread_pct=60.0).is_noisy


# -- the machine ------------------------------------------------------------------------------------


def _cache(root: Path, cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> None:
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(text + "\n")


def test_each_last_level_cache_counts_once(tmp_path: Path) -> None:
    for cpu in range(4):
        _cache(tmp_path, cpu, 0, 1, "Data", "48K", str(cpu))
        _cache(tmp_path, cpu, 1, 1, "Instruction", "32K", str(cpu))
        _cache(tmp_path, cpu, 3, 3, "Unified", "32768K", "0-1" if cpu < 2 else "2-3")
    assert last_level_cache_bytes(tmp_path) == 2 * 32 * 2**20


def test_a_system_that_says_nothing_of_caches_is_none(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) is None


def test_a_containers_limits_are_respected(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert usable_threads(tmp_path) == min(2, usable_threads(tmp_path / "absent"))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_threads(tmp_path) == usable_threads(tmp_path / "absent")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1000 kB\n")
    (tmp_path / "memory.max").write_text("500000\n")
    (tmp_path / "memory.current").write_text("100000\n")
    assert available_memory_bytes(tmp_path / "meminfo", tmp_path) == 400_000
    assert available_memory_bytes(tmp_path / "meminfo", tmp_path / "absent") == 1_024_000
    assert available_memory_bytes(tmp_path / "absent", tmp_path / "absent") is None


def test_the_processors_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some  CPU @ 3 GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 3 GHz"
    assert cpu_model(tmp_path / "absent")
