from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evalray.errors import StoreError
from evalray.store import (
    SweepStore,
    iter_results,
    list_runs,
    read_run,
    read_sweep,
    run_fingerprint,
    scan_runs,
)
from evalray.types import RunConfig

HOLDER = """
import sys, time, os
from pathlib import Path
from evalray.store import SweepStore
sweep = SweepStore.open(Path(sys.argv[1]))
if len(sys.argv) > 2:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
else:
    print("held", flush=True)
time.sleep(60)
"""


def _hold(directory: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), *arguments], stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_a_second_process_is_told_who_holds_the_sweep(tmp_path):
    process, _ = _hold(tmp_path / "s")
    try:
        with pytest.raises(StoreError, match=rf"locked by \S+ pid {process.pid} since \d{{4}}-"):
            SweepStore.open(tmp_path / "s")
        with pytest.raises(StoreError, match="locked by"):
            SweepStore.open(tmp_path / "s", fresh=True)
    finally:
        process.kill()
        process.wait()
    SweepStore.open(tmp_path / "s").close()


def test_a_child_that_outlives_a_killed_driver_holds_no_lock(tmp_path):
    process, child = _hold(tmp_path / "s", "fork")
    process.kill()
    process.wait()
    try:
        SweepStore.open(tmp_path / "s").close()
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_the_same_process_cannot_open_a_sweep_twice(tmp_path):
    with SweepStore.open(tmp_path), pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        SweepStore.open(tmp_path)


def test_a_file_system_without_locks_warns_and_works(tmp_path, monkeypatch):
    import errno
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.warns(RuntimeWarning, match="no file locks"),
        SweepStore.open(tmp_path),
        pytest.raises(StoreError, match="locked by"),
    ):
        SweepStore.open(tmp_path)
    with pytest.warns(RuntimeWarning):
        SweepStore.open(tmp_path).close()


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "s").write_text("x")
    with pytest.raises(StoreError, match=r"a file stands where a directory should be"):
        SweepStore.open(tmp_path / "s")


def test_a_directory_that_takes_no_files_says_so():
    with pytest.raises(StoreError, match="/sys/evalray"):
        SweepStore.open(Path("/sys/evalray"))


def test_fresh_moves_the_old_sweep_aside_and_loses_nothing(driver):
    driver.execute()
    before = (driver.directory / "b_m.jsonl").read_bytes()
    with SweepStore.open(driver.directory, fresh=True) as sweep:
        assert not sweep.resumed
        assert list_runs(driver.directory) == []
    driver.execute()
    with SweepStore.open(driver.directory, fresh=True):
        pass
    aside = sorted(driver.directory.parent.glob("sweep.*"))
    assert len(aside) == 2
    assert (aside[0] / "b_m.jsonl").read_bytes() == before


def test_fresh_of_nothing_moves_nothing(tmp_path):
    SweepStore.open(tmp_path / "s", fresh=True).close()
    SweepStore.open(tmp_path / "s", fresh=True).close()
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_a_sweep_keeps_its_first_start(tmp_path):
    with SweepStore.open(tmp_path) as sweep:
        sweep.write_sweep({"started_at": 1.0, "name": "first"})
        sweep.write_sweep({"started_at": 2.0, "name": "second"})
    assert read_sweep(tmp_path) == {"started_at": 1.0, "name": "second"}


def test_no_key_reaches_the_disk(tmp_path, driver):
    secret = "sk-very-secret"
    with SweepStore.open(driver.directory) as sweep:
        sweep.write_sweep({"models": [{"api_key": secret, "base_url": f"http://u:{secret}@host/v1"}]})
        driver.open(sweep, info={"engine_args": {"headers": {"Authorization": f"Bearer {secret}"}}})
    written = b"".join(p.read_bytes() for p in driver.directory.rglob("*") if p.is_file())
    assert secret.encode() not in written
    assert b"http://host/v1" in written


def test_models_whose_names_slug_alike_keep_their_own_results(driver):
    with SweepStore.open(driver.directory) as sweep:
        runs = [
            driver.open(sweep, model=model, fingerprint=fingerprint * 32)
            for model, fingerprint in (("org/m:1", "a"), ("org:m/1", "b"), ("org-m-1", "c"))
        ]
        assert [run.name for run in runs] == ["b_org-m-1", "b_org-m-1-bbbbbbbb", "b_org-m-1-cccccccc"]
    with SweepStore.open(driver.directory) as sweep:
        assert driver.open(sweep, model="org-m-1", fingerprint="c" * 32).name == "b_org-m-1-cccccccc"
        assert driver.open(sweep, model="org-m-1", fingerprint="a" * 32).name == "b_org-m-1"


def test_fingerprints_that_begin_alike_do_not_collide(driver):
    with SweepStore.open(driver.directory) as sweep:
        names = [driver.open(sweep, fingerprint="a" * 9 + str(n) * 23).name for n in range(3)]
    assert len(set(names)) == 3


def test_results_without_a_run_directory_are_not_overwritten(driver):
    driver.directory.mkdir()
    foreign = driver.directory / "b_m.jsonl"
    foreign.write_text("{}")
    driver.execute()
    assert foreign.read_text() == "{}"
    assert (driver.directory / "b_m-ffffffff.jsonl").exists()


def test_the_same_run_twice_in_a_sweep_is_refused(driver):
    with SweepStore.open(driver.directory) as sweep:
        driver.open(sweep)
        with pytest.raises(StoreError, match="stands twice"):
            driver.open(sweep)


def test_a_directory_left_by_a_crash_before_its_manifest_is_used(driver):
    (driver.directory / "b_m").mkdir(parents=True)
    driver.execute()
    assert [run.name for run in list_runs(driver.directory)] == ["b_m"]


@pytest.mark.parametrize("model", ["a\x00b", "x" * 500, "界" * 200, "../../etc", "a b", "c:\\d", "..", "m."])
def test_any_model_name_makes_a_file_name(driver, model):
    driver.execute(model=model)
    (run,) = list_runs(driver.directory)
    assert run.directory.parent == driver.directory
    assert run.config.model == model
    assert len(list(iter_results(run.results_path))) == 12


def test_a_run_of_a_later_version_is_refused(driver):
    driver.execute()
    manifest = driver.directory / "b_m" / "run.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(StoreError, match="later version of evalray"):
        read_run(driver.directory / "b_m")


def test_a_journal_of_a_later_version_is_refused(driver):
    driver.execute()
    with (driver.directory / "b_m" / "generations.jsonl").open("ab") as file:
        file.write(b'{"v":2,"position":0,"epoch":0}\n')
    with pytest.raises(StoreError, match="later version of evalray"):
        driver.execute()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperature": 0.5, "max_samples": 3}, "temperature was 0.0, now 0.5"),
        ({"system_prompt": "Be brief. " * 50}, "system_prompt was None, now 'Be brief. Be"),
        ({"max_samples": 3, "max_workers": 2}, None),
    ],
)
def test_a_changed_setting_that_begins_a_run_from_the_start_is_named_once(tmp_path, changes, said):
    heard: list[str] = []

    def go(**settings):
        with SweepStore.open(tmp_path / "s") as sweep:
            sweep.on_begun_beside = heard.append
            return _begin(sweep, **settings)

    first = go()
    assert heard == []
    again = go(**changes)
    if said is None:
        assert (again, heard) == (first, [])
        return
    assert again != first
    assert len(heard) == 1
    assert said in heard[0]
    assert heard[0].startswith(f"{first} has answers at other settings (")
    assert heard[0].endswith(f"): they stay, {again} begins from the start")
    assert len(heard[0]) < 300
    go(**changes)
    assert len(heard) == 1


def test_two_runs_of_one_suite_that_differ_are_no_surprise(tmp_path):
    heard: list[str] = []
    with SweepStore.open(tmp_path / "s") as sweep:
        sweep.on_begun_beside = heard.append
        assert _begin(sweep) != _begin(sweep, temperature=1.0)
    assert heard == []


def _begin(sweep, **settings):
    config = RunConfig(benchmark="b", backend="direct", model="m", **settings)
    key = run_fingerprint(config, engine="e", engine_args={}, prompt_hash="p", data_digest="d")
    return sweep.open_run(config, fingerprint=key, scorer_fingerprint="s", num_records=1, info={}).name


DAMAGED = [b"", b"[1, 2]", b"{}", b'{"format": "x", "config": 1}', b'{"format": 99}', b"\xff\xfe"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_run_hides_no_other_and_is_named_when_its_samples_begin_anew(driver, content):
    driver.execute()
    manifest = driver.directory / "b_m" / "run.json"
    manifest.write_bytes(content)
    runs, damaged = scan_runs(driver.directory)
    assert (runs, list(damaged)) == ([], ["b_m"])
    said: list[str] = []
    with SweepStore.open(driver.directory) as sweep:
        sweep.on_begun_beside = said.append
        again = driver.open(sweep).name
    assert len(said) == 1
    assert str(manifest) in said[0]
    assert again in said[0]
    assert [run.name for run in list_runs(driver.directory)] == [again]
