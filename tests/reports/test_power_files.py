"""The files of a power timeline: read back as written, drawn again from the data alone, and never stale."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from evalray.errors import StoreError
from evalray.reports import (
    PowerFiles,
    draw_missing,
    plot_format,
    plot_uri,
    power_files,
    read_timeline,
    write_power,
    write_timeline,
)
from evalray.telemetry import Pause, PowerTimeline

MakeTimeline = Callable[..., PowerTimeline]


def _same(one: PowerTimeline, other: PowerTimeline) -> bool:
    return repr(one) == repr(other) and all(
        np.array_equal(a.mean_watts, b.mean_watts, equal_nan=True)
        for a, b in zip(one.devices, other.devices, strict=True)
    )


@pytest.mark.parametrize("devices", [0, 1, 3])
def test_a_timeline_is_read_back_as_written(
    make_timeline: MakeTimeline, tmp_path: Path, devices: int
) -> None:
    write_timeline(tmp_path / "t.parquet", make_timeline(devices))
    assert _same(read_timeline(tmp_path / "t.parquet"), make_timeline(devices))


def test_pauses_are_read_back_and_the_data_says_when_each_bin_began(
    make_timeline: MakeTimeline, tmp_path: Path
) -> None:
    timeline = replace(make_timeline(1), pauses=(Pause(20.0, 3600.0, 3598.0),))
    write_timeline(tmp_path / "t.parquet", timeline)
    assert read_timeline(tmp_path / "t.parquet").pauses == timeline.pauses
    began = pq.read_table(tmp_path / "t.parquet")["unix_seconds"].to_pylist()
    assert [began[number] - timeline.started_at for number in (0, 20, 21, 22)] == [-1, 19, 3618, 3619]


def test_the_data_has_a_row_per_bin_and_device_and_null_where_nothing_was_measured(
    make_timeline: MakeTimeline, tmp_path: Path
) -> None:
    write_timeline(tmp_path / "t.parquet", make_timeline(2))
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names[:4] == ["seconds", "node", "device", "watts"]
    assert table.num_rows == 2 * 60
    assert table["watts"].null_count == 2 * 5
    assert table["seconds"].to_pylist()[:2] == [-1.0, 0.0]
    assert set(table["device"].to_pylist()) == {"GPU-0", "GPU-1"}


def test_a_missing_plot_is_drawn_from_the_data_as_it_was(make_timeline: MakeTimeline, tmp_path: Path) -> None:
    write_power(tmp_path, make_timeline(2))
    files = PowerFiles(tmp_path)
    before = {path.name: path.read_bytes() for path in files.present()}
    assert set(before) == {"timeline.parquet", "power.svg", "power.png"}
    files.plot("svg").unlink()
    files.plot("png").unlink()
    draw_missing(tmp_path, read_timeline(files.timeline))
    assert {path.name: path.read_bytes() for path in files.present()} == before


def test_a_plot_that_cannot_be_drawn_leaves_the_data_and_no_older_plot(
    make_timeline: MakeTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_power(tmp_path, make_timeline(1))

    def broken(*_: object) -> bytes:
        raise RuntimeError("no pencil")

    monkeypatch.setattr(power_files, "draw_power", broken)
    with pytest.raises(RuntimeError, match="no pencil"):
        write_power(tmp_path, make_timeline(2))
    assert [path.name for path in PowerFiles(tmp_path).present()] == ["timeline.parquet"]
    assert len(read_timeline(PowerFiles(tmp_path).timeline).devices) == 2


@pytest.mark.parametrize("damage", ["cut", "format", "empty"])
def test_a_damaged_timeline_says_what_to_do(
    make_timeline: MakeTimeline, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    if damage == "format":
        monkeypatch.setattr(power_files, "_FORMAT", 2)
    write_timeline(path, make_timeline(1))
    monkeypatch.undo()
    if damage != "format":
        path.write_bytes(path.read_bytes()[: 200 if damage == "cut" else 0])
    with pytest.raises(StoreError, match=r"upgrade evalray|remove it and it is worked out again"):
        read_timeline(path)


@pytest.mark.parametrize("name", ["power.pdf", "power", "svg"])
def test_a_plots_file_is_svg_or_png(name: str) -> None:
    assert plot_format(Path("a.SVG")) == "svg"
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        plot_format(Path(name))


def test_the_address_of_a_plot_holds_the_smaller_one_below_the_limit(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    assert plot_uri(tmp_path, 1000) is None
    PowerFiles(tmp_path).plot("svg").write_bytes(b"s" * 100)
    PowerFiles(tmp_path).plot("png").write_bytes(b"p" * 50)
    assert plot_uri(tmp_path, 1000) == "data:image/png;base64," + base64.b64encode(b"p" * 50).decode()
    assert plot_uri(tmp_path, 49) is None


def test_the_title_names_benchmark_and_model(make_sweep: Callable[..., Path]) -> None:
    run = make_sweep(cells=[("quickstart", "org/smol")]) / "quickstart_org-smol"
    assert power_files.plot_title(run) == "quickstart · org/smol"
    (run / "run.json").write_text(json.dumps({}))
    assert power_files.plot_title(run) == "quickstart_org-smol"
