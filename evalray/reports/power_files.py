"""The files of a run's power timeline, in its ``telemetry/`` folder: the data as Parquet, the plot as SVG and PNG.

The data holds all that the plot shows, so a plot that is missing is drawn again from it.  Every file is
written beside and renamed into place.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from evalray.errors import EvalRayError, StoreError
from evalray.files import replacing
from evalray.reports.power_plot import PlotFormat, draw_power
from evalray.store import read_run
from evalray.telemetry import DeviceKind, DevicePower, Pause, PowerTimeline

_META = b"evalray"
_FORMAT = 1
_MIME: dict[PlotFormat, str] = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(slots=True, frozen=True)
class PowerFiles:
    """Where they are, whether or not they are there."""

    run_directory: Path

    @property
    def timeline(self) -> Path:
        return self.run_directory / "telemetry" / "timeline.parquet"

    def plot(self, form: PlotFormat) -> Path:
        return self.run_directory / "telemetry" / f"power.{form}"

    def all(self) -> list[Path]:
        """The data, then the plots."""
        return [self.timeline, *(self.plot(form) for form in get_args(PlotFormat))]

    def present(self) -> list[Path]:
        """Those that are there."""
        return [path for path in self.all() if path.is_file()]


def write_power(run_directory: Path, timeline: PowerTimeline) -> None:
    """Write the data and the plots.  Raises ``OSError``, and whatever Matplotlib does.

    A plot that cannot be drawn leaves the data and no earlier plot, so that none shows other data.
    """
    files = PowerFiles(run_directory)
    files.timeline.parent.mkdir(exist_ok=True)
    write_timeline(files.timeline, timeline)
    try:
        for form in get_args(PlotFormat):
            write_plot(files.plot(form), timeline, plot_title(run_directory))
    except Exception:
        for form in get_args(PlotFormat):
            files.plot(form).unlink(missing_ok=True)
        raise


def draw_missing(run_directory: Path, timeline: PowerTimeline) -> None:
    """Draw the plots that are not there.  Raises ``OSError``, and whatever Matplotlib does."""
    files = PowerFiles(run_directory)
    for form in get_args(PlotFormat):
        if not (path := files.plot(form)).is_file():
            write_plot(path, timeline, plot_title(run_directory))


def write_plot(path: Path, timeline: PowerTimeline, title: str) -> None:
    """Draw one plot; the format is that of the file's name.

    Raises ``OSError``, and ``ValueError`` for a name that ends in neither ``.svg`` nor ``.png``.
    """
    content = draw_power(timeline, title, plot_format(path))
    with replacing(path) as beside:
        beside.write_bytes(content)


def plot_format(path: Path) -> PlotFormat:
    """By the end of the file's name.  Raises ``ValueError``."""
    for form in get_args(PlotFormat):
        if path.suffix.lower() == f".{form}":
            known: PlotFormat = form
            return known
    raise ValueError("a plot's file ends in .svg or .png")


def plot_title(run_directory: Path) -> str:
    """Benchmark and model; the folder's name where ``run.json`` cannot be read."""
    try:
        config = read_run(run_directory).config
    except (EvalRayError, OSError):
        return run_directory.name
    return f"{config.benchmark} · {config.model}"


def write_timeline(path: Path, timeline: PowerTimeline) -> None:
    """One row per bin and device; without a device one row per bin.  Raises ``OSError``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {
        "format": _FORMAT,
        "started_at": timeline.started_at,
        "bin_seconds": timeline.bin_seconds,
        "first_bin": timeline.first_bin,
        "bins": len(timeline.in_flight),
        "reason": timeline.reason,
        "pauses": [asdict(pause) for pause in timeline.pauses],
        "devices": [_device_facts(device) for device in timeline.devices],
    }
    devices: list[DevicePower | None] = [*timeline.devices] or [None]
    bins = len(timeline.in_flight)
    unknown = np.full(bins, np.nan)
    columns = {
        "seconds": np.tile(timeline.edges[:-1], len(devices)),
        "node": [device.node_id if device else None for device in devices for _ in range(bins)],
        "device": [device.device_id if device else None for device in devices for _ in range(bins)],
        "watts": np.concatenate([device.mean_watts if device else unknown for device in devices]),
        "watts_lowest": np.concatenate([device.lowest_watts if device else unknown for device in devices]),
        "watts_highest": np.concatenate([device.highest_watts if device else unknown for device in devices]),
        "requests_in_flight": np.tile(timeline.in_flight, len(devices)),
        "other_requests_in_flight": np.tile(timeline.others_in_flight, len(devices)),
        "unix_seconds": np.tile(timeline.begins_at, len(devices)),
    }
    texts = {"node", "device"}
    arrays = {
        name: pa.array(values, pa.string() if name in texts else pa.float64(), from_pandas=True)
        for name, values in columns.items()
    }
    table = pa.table(arrays).replace_schema_metadata({_META: json.dumps(about)})
    with replacing(path) as beside:
        pq.write_table(table, beside, compression="zstd")


def read_timeline(path: Path) -> PowerTimeline:
    """The inverse of :func:`write_timeline`.  Raises :class:`StoreError` where that is impossible."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[_META])
        if about["format"] > _FORMAT:
            raise StoreError(f"{path}: written by a later version of evalray; upgrade evalray")
        bins = int(about["bins"])
        values = {
            name: table[name].to_numpy(zero_copy_only=False).reshape(-1, bins)
            for name in table.column_names
            if name not in ("node", "device")
        }
        devices = tuple(
            DevicePower(
                **{**facts, "kind": DeviceKind(facts["kind"])},
                mean_watts=values["watts"][number],
                lowest_watts=values["watts_lowest"][number],
                highest_watts=values["watts_highest"][number],
            )
            for number, facts in enumerate(about["devices"])
        )
        return PowerTimeline(
            float(about["started_at"]),
            float(about["bin_seconds"]),
            int(about["first_bin"]),
            devices,
            values["requests_in_flight"][0],
            values["other_requests_in_flight"][0],
            str(about["reason"]),
            tuple(Pause(**pause) for pause in about.get("pauses", ())),
        )
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f"{path} cannot be read: {error}; remove it and it is worked out again") from error


def _device_facts(device: DevicePower) -> dict[str, Any]:
    names = ("node_id", "device_id", "name", "kind", "index")
    return {name: getattr(device, name) for name in names}


def plot_uri(run_directory: Path, limit_bytes: int) -> str | None:
    """The smaller of the run's plots as a ``data:`` address; ``None`` where there is none below the limit."""
    contents: dict[PlotFormat, bytes] = {}
    for form in get_args(PlotFormat):
        path = PowerFiles(run_directory).plot(form)
        with contextlib.suppress(OSError):
            if path.stat().st_size <= limit_bytes:
                contents[form] = path.read_bytes()
    if not contents:
        return None
    form = min(contents, key=lambda each: len(contents[each]))
    return f"data:{_MIME[form]};base64,{base64.b64encode(contents[form]).decode('ascii')}"
