from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.errors import DiskFullError, StoreError
from evalray.store import SweepStore
from evalray.store.journal import Damage, Journal, is_whole, parse, read_lines, seal


def _lines(path: Path) -> list[dict]:
    return [parse(line) for _, line in read_lines(path)]


@given(st.integers(0), st.integers(0, 255))
def test_no_changed_byte_passes_for_what_was_written(place, byte):
    value = {"v": 1, "position": 3, "text": "é" * 20}
    line = bytearray(seal(value))
    line[place % (len(line) - 1)] = byte
    if is_whole(bytes(line)):
        # Where only the checksum's own key was hit, the content is whole.
        assert value.items() <= parse(bytes(line)).items()


def test_a_line_of_another_writer_needs_only_be_json():
    assert is_whole(b'{"v":1,"position":0}\n')
    assert not is_whole(b'{"v":1,"position":\n')
    assert not is_whole(b"[1]\n")


@pytest.mark.parametrize("tail", [b'{"v":1,"posit', b"\x00" * 5000, b"{", seal({"n": 3})[:-1]])
def test_a_torn_last_line_is_cut_off_on_opening(tmp_path, tail):
    path = tmp_path / "j"
    whole = seal({"n": 1}) + seal({"n": 2})
    path.write_bytes(whole + tail)
    assert [line["n"] for line in _lines(path)] == [1, 2]
    journal = Journal(path)
    assert path.read_bytes() == whole
    assert journal.append(seal({"n": 3})) == len(whole)
    journal.close()
    assert [line["n"] for line in _lines(path)] == [1, 2, 3]


def test_a_torn_line_longer_than_any_buffer_is_cut_off(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(seal({"n": 1}) + b"x" * (3 << 20))
    Journal(path).close()
    assert path.read_bytes() == seal({"n": 1})


def test_damaged_lines_are_counted_and_the_first_are_named(tmp_path):
    path = tmp_path / "j"
    path.write_bytes(b"".join([seal({"n": 0}), *[b"garbage\n"] * 7, seal({"n": 8})]))
    damage = Damage(path)
    assert [parse(line)["n"] for _, line in read_lines(path, damage)] == [0, 8]
    assert str(damage) == "j: 7 damaged lines passed over (lines 2, 3, 4, 5, 6, ...)"


def test_lines_reach_the_file_only_when_flushed(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.append(seal({"n": 1}))
    assert _lines(tmp_path / "j") == []
    journal.flush()
    assert len(_lines(tmp_path / "j")) == 1
    journal.close()


def test_a_full_device_is_named_and_stops_the_writer():
    journal = Journal(Path("/dev/full"))
    journal.append(seal({"n": 1}))
    with pytest.raises(DiskFullError, match=r"/dev/full: No space left on device; free some space"):
        journal.flush()
    with pytest.raises(DiskFullError, match="/dev/full: No space left on device; free some space"):
        journal.append(seal({"n": 2}))
    journal.close()


def test_a_write_cut_short_by_the_kernel_leaves_whole_lines(tmp_path, file_size_limit):
    path = tmp_path / "j"
    journal = Journal(path)
    line = seal({"text": "x" * 70})
    for _ in range(5):
        journal.append(line)
    with file_size_limit(2 * len(line) + 50), pytest.raises(StoreError, match=str(path)):
        journal.flush()
    assert path.read_bytes() == line * 2
    journal.close()
    assert path.read_bytes() == line * 2


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.EIO, "check the disk"), (errno.EDQUOT, "free some space")]
)
def test_a_failing_disk_says_what_to_do(tmp_path, monkeypatch, code, advice):
    journal = Journal(tmp_path / "j")
    journal.append(seal({"n": 1}))
    real, calls = os.write, iter(range(2))

    def write_ten_bytes_then_fail(descriptor: int, data: bytes) -> int:
        if next(calls) == 0:
            return real(descriptor, data[:10])
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_ten_bytes_then_fail)
        with pytest.raises(StoreError, match=advice):
            journal.flush()
    assert (tmp_path / "j").read_bytes() == b""
    journal.close()


def test_a_sweep_on_a_full_disk_stops_and_continues_later(driver, comparable, file_size_limit, undisturbed):
    with SweepStore.open(driver.directory) as sweep:
        run = driver.open(sweep)
        driver.work(run)
        with file_size_limit(3000), pytest.raises(StoreError, match=r"generations\.jsonl"):
            run.flush()
    assert comparable(driver.execute()) == undisturbed[1]


WRITER = """
import sys
from pathlib import Path
from evalray.store import SweepStore
sys.path.insert(0, sys.argv[2])
from conftest import Driver, make_record, make_generation, make_score
driver = Driver(Path(sys.argv[1]))
with SweepStore.open(driver.directory) as sweep:
    run = driver.open(sweep, num_records=4000, epochs=1, pass_k=[])
    run.begin_stretch()
    print("ready", flush=True)
    for position in range(4000):
        if not run.generation_done(position, 0):
            run.append_generation(position, 0, 1, make_record(position), make_generation(position))
        if not run.score_done(position, 0):
            run.append_score(position, 0, f"r{position}", make_score(position))
        run.flush()
    run.end_stretch()
    run.finalize()
"""


def test_a_killed_writer_loses_nothing_that_it_flushed(tmp_path, driver, comparable, new_driver):
    def start() -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-c", WRITER, str(driver.directory), str(Path(__file__).parent)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        return process

    generations = driver.directory / "b_m" / "generations.jsonl"
    seen = 0
    for kill in range(3):
        process = start()
        target, deadline = (kill + 1) * 900, time.monotonic() + 60
        while generations.read_bytes().count(b"\n") < target and time.monotonic() < deadline:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        count = generations.read_bytes().count(b"\n")
        assert count >= max(seen, target)
        seen = count
    process = start()
    assert process.wait(timeout=60) == 0
    positions = [line["position"] for line in _lines(generations)]
    assert positions == list(range(4000))
    summary = driver.execute(num_records=4000, epochs=1, pass_k=[])
    clean = new_driver(tmp_path / "clean").execute(num_records=4000, epochs=1, pass_k=[])
    assert comparable(summary) == comparable(clean)
