"""The power timeline as a picture: watts of each device above, the requests in flight below, on one time axis.

The same timeline gives the same bytes, whatever the user's Matplotlib is set to: no date, no random ids, our
own style.  Texts are drawn as shapes and never read as markup, and no setting of Matplotlib is left changed.
Thread-safe; Matplotlib is imported by the first plot.
"""

from __future__ import annotations

import contextlib
import io
import logging
import textwrap
import threading
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evalray.reports.escape import plain
from evalray.reports.format import moment, seconds
from evalray.telemetry import DevicePower, PowerTimeline

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotFormat = Literal["svg", "png"]

#: More lines than this are no picture; the data of all devices is in the timeline's file.
MAX_DEVICES = 16
#: Bands of lowest to highest hide one another beyond this many devices.
_MAX_BANDS = 4
#: More pauses are marked and not named.
_MAX_NAMED_PAUSES = 6
#: Okabe and Ito's colours, which colour-blind readers tell apart; their yellow, faint on white, made olive.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
_DASHES = ("solid", (0, (4, 1.5)))
_INK, _SOFT, _LINE = "#1c2430", "#5d6878", "#dfe4ea"
_OWN, _OTHERS = "#5d6878", "#c3cad3"
_FONT = "DejaVu Sans"
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "evalray",
    "svg.fonttype": "path",
    "font.family": [_FONT],
    "font.size": 9.0,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
}
#: ``None`` leaves out what would differ from one moment or version to another.
_METADATA: dict[PlotFormat, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
#: Sharp on screens of twice the usual resolution; of no meaning for SVG.
_PNG_DPI = 150
_drawing = threading.Lock()


def draw_power(timeline: PowerTimeline, title: str, form: PlotFormat) -> bytes:
    """The plot as the content of an SVG or PNG file.  ``title`` and all names are taken as untrusted."""
    with _drawing, _own_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.0, 5.0), dpi=100, layout="constrained", facecolor="white")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        factor, unit = _time_unit(float(timeline.edges[-1]))
        edges = timeline.edges / factor
        figure.suptitle(_line(title, 110), x=0.01, ha="left", fontsize=11, fontweight="bold")
        if any(device.measured for device in timeline.devices):
            _draw_watts(figure, upper, timeline, edges)
        else:
            _say_why(upper, timeline.reason)
        _draw_in_flight(lower, timeline, edges)
        lower.set_xlim(float(edges[0]), float(edges[-1]))
        _mark_pauses(upper, lower, timeline, factor)
        without = ", pauses left out" if timeline.pauses else ""
        label = f"{unit} since the first request ({moment(timeline.started_at)}){without}"
        lower.set_xlabel(label, color=_SOFT)
        file = io.BytesIO()
        figure.savefig(file, format=form, dpi=_PNG_DPI, metadata=_METADATA[form])
        return file.getvalue()


@contextlib.contextmanager
def _own_style() -> Iterator[None]:
    """Our settings alone, whatever the user's are; theirs afterwards."""
    log = logging.getLogger("matplotlib")
    if log.level == logging.NOTSET:
        # Its notes on building a font cache or on a home that is not writable are no business of a sweep.
        log.setLevel(logging.ERROR)
    from matplotlib import style

    with style.context(["default", _STYLE]):
        yield


def _draw_watts(figure: Figure, axes: Axes, timeline: PowerTimeline, edges: Any) -> None:
    shown = timeline.devices[:MAX_DEVICES]
    banded = len(shown) <= _MAX_BANDS and any(_varies(device) for device in shown)
    handles: list[Artist] = []
    colours = cycle(_COLOURS)
    for number, device in enumerate(shown):
        colour, dashes = next(colours), _DASHES[number // len(_COLOURS) % len(_DASHES)]
        if banded:
            axes.stairs(
                device.highest_watts, edges, baseline=device.lowest_watts, fill=True, color=colour, alpha=0.2
            )
        line = axes.stairs(
            device.mean_watts,
            edges,
            baseline=None,
            color=colour,
            linewidth=1.3,
            linestyle=dashes,
            joinstyle="round",
        )
        handles.append(line)
    tops = [device.highest_watts if banded else device.mean_watts for device in shown if device.measured]
    top = max(float(np.nanmax(watts)) for watts in tops)
    axes.set_ylim(0.0, top * 1.06 if top > 0 else 1.0)
    axes.set_ylabel("power (W)")
    band = ", band: lowest to highest" if banded else ""
    left_out = len(timeline.devices) - len(shown)
    more = f"; {left_out} more devices are in the data" if left_out else ""
    note = f"mean of each {timeline.bin_seconds:g} s{band}; a gap was not measured{more}"
    axes.set_title(note, loc="right", fontsize=7.5, color=_SOFT)
    labels, common = _labels(shown)
    axes.set_title(common, loc="left", fontsize=8.0, color=_SOFT)
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=_columns(labels),
        handlelength=1.6,
        columnspacing=1.6,
    )


def _varies(device: DevicePower) -> bool:
    return bool(np.nanmax(device.highest_watts - device.lowest_watts) > 0) if device.measured else False


def _labels(devices: Sequence[DevicePower]) -> tuple[list[str], str]:
    """A label for each device, and their number and name where they share one."""
    names = {device.name for device in devices}
    shared = len(devices) > 1 and len(names) == 1
    nodes = {device.node_id for device in devices}
    labels = []
    for device in devices:
        node = f"{_line(device.node_id, 8)} " if len(nodes) > 1 else ""
        name = "" if shared else f" · {_line(device.name, 40)}"
        unmeasured = "" if device.measured else " (not measured)"
        labels.append(f"{node}{device.kind.upper()} {device.index}{name}{unmeasured}")
    return labels, f"{len(devices)} × {_line(devices[0].name, 60)}" if shared else ""


def _columns(labels: Sequence[str]) -> int:
    """As many as fit beside one another on the figure's width."""
    return max(1, min(len(labels), 8, 150 // (max(map(len, labels)) + 7)))


def _say_why(axes: Axes, reason: str) -> None:
    text = "\n".join(textwrap.wrap(f"no power was measured: {_line(reason, 500)}", 95, max_lines=6))
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=_SOFT)
    axes.set_yticks([])
    axes.set_ylabel("power (W)")


def _draw_in_flight(axes: Axes, timeline: PowerTimeline, edges: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    own, others = timeline.in_flight, timeline.others_in_flight
    drawn = axes.stairs(own, edges, fill=True, color=_OWN)
    if others.max(initial=0.0) > 0:
        rest = axes.stairs(own + others, edges, baseline=own, fill=True, color=_OTHERS)
        axes.legend(
            [drawn, rest],
            ["this run", "others on its engines and devices"],
            loc="lower right",
            bbox_to_anchor=(1.0, 0.98),
            ncols=2,
            borderaxespad=0.0,
            handlelength=1.0,
        )
    axes.set_ylim(0.0, max(1.0, float((own + others).max(initial=0.0))) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.set_ylabel("requests\nin flight")


def _mark_pauses(upper: Axes, lower: Axes, timeline: PowerTimeline, factor: float) -> None:
    """A line where time was cut out, with how long it was where there is room for it."""
    for pause in timeline.pauses:
        for axes in (upper, lower):
            axes.axvline(pause.at / factor, color=_SOFT, linewidth=0.9, linestyle=(0, (2, 2)))
        if len(timeline.pauses) <= _MAX_NAMED_PAUSES:
            upper.annotate(
                f"pause of {seconds(pause.seconds)}",
                (pause.at / factor, 0.98),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                rotation=90,
                va="top",
                fontsize=7.5,
                color=_SOFT,
            )


def _time_unit(span: float) -> tuple[float, str]:
    if span < 300:
        return 1.0, "seconds"
    return (60.0, "minutes") if span < 3 * 3600 else (3600.0, "hours")


def _line(text: str, limit: int) -> str:
    """One line that the font can show."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont(_FONT))
    line = " ".join(plain(text, limit).split())
    return "".join(letter if font.get_char_index(ord(letter)) else "\ufffd" for letter in line)
