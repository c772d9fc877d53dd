from __future__ import annotations

from pathlib import Path

import pytest

from evalray.files import replacing


def test_a_file_is_replaced_only_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text("old")
    with replacing(file) as beside:
        beside.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text("old")

    def write_half() -> None:
        with replacing(file) as beside:
            beside.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
