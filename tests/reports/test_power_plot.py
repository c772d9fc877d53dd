"""The plot of a power timeline: the same data gives the same file, and no text of a stranger is read as markup."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from evalray.reports.power_plot import MAX_DEVICES, PlotFormat, draw_power
from evalray.telemetry import Pause, PowerTimeline

MakeTimeline = Callable[..., PowerTimeline]

HOSTILE = r"$\frac{1}$ --> <script>alert(1)</script> \x1b[31m ]]> _ 模型 %s {0}"


def _texts(svg: bytes) -> str:
    """Each text of the plot: Matplotlib leaves it in a comment beside its shapes."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.fromstring(svg, parser)
    return "\n".join(each.text or "" for each in root.iter(ElementTree.Comment))


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_same_timeline_gives_the_same_file_whatever_the_users_style(
    make_timeline: MakeTimeline, form: PlotFormat
) -> None:
    import matplotlib

    first = draw_power(make_timeline(2), "b · m", form)
    with matplotlib.rc_context({"font.size": 20.0, "svg.hashsalt": None, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams.copy())
        assert draw_power(make_timeline(2), "b · m", form) == first
        assert dict(matplotlib.rcParams.copy()) == before


def test_plots_drawn_in_threads_are_those_drawn_one_by_one(make_timeline: MakeTimeline) -> None:
    alone = draw_power(make_timeline(1), "b · m", "png")
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: draw_power(make_timeline(1), "b · m", "png"), range(4)))
    assert drawn == [alone] * 4


def test_the_file_names_no_date_and_no_version(make_timeline: MakeTimeline) -> None:
    content = draw_power(make_timeline(1), "b · m", "svg") + draw_power(make_timeline(1), "b · m", "png")
    assert b"matplotlib.org" not in content
    assert b"Matplotlib" not in content
    assert b"<dc:date>" not in content


def test_a_strangers_text_is_drawn_as_text(make_timeline: MakeTimeline) -> None:
    timeline = make_timeline(2, name=HOSTILE)
    named = replace(timeline, devices=(replace(timeline.devices[0], name="_" + HOSTILE), timeline.devices[1]))
    for each in (timeline, named, replace(make_timeline(0), reason=HOSTILE)):
        svg = draw_power(each, HOSTILE, "svg")
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
        assert not tags & {"script", "foreignObject", "a", "text", "image"}
        assert r"$\frac{1}$" in _texts(svg)


def test_letters_that_the_font_lacks_warn_nobody(
    make_timeline: MakeTimeline, recwarn: pytest.WarningsRecorder
) -> None:
    draw_power(make_timeline(1, name="GPU 模型 \U0001f525"), "模型", "png")
    assert [str(each.message) for each in recwarn] == []


def test_without_power_the_reason_is_in_the_plot(make_timeline: MakeTimeline) -> None:
    texts = _texts(draw_power(make_timeline(0), "b · m", "svg"))
    assert "no power was measured: no meter was found" in texts
    assert "in flight" in texts


@pytest.mark.parametrize("devices", [1, 2, 8, MAX_DEVICES])
def test_every_device_is_in_the_legend(make_timeline: MakeTimeline, devices: int) -> None:
    texts = _texts(draw_power(make_timeline(devices), "b · m", "svg"))
    assert all(f"GPU {number}" in texts for number in range(devices))
    assert "NVIDIA H200" in texts


def test_devices_beyond_what_a_picture_holds_are_counted(make_timeline: MakeTimeline) -> None:
    texts = _texts(draw_power(make_timeline(MAX_DEVICES + 3), "b · m", "svg"))
    assert "3 more devices are in the data" in texts


def test_a_device_that_was_not_measured_says_so(make_timeline: MakeTimeline) -> None:
    timeline = make_timeline(2)
    unknown = np.full(len(timeline.in_flight), np.nan)
    blind = replace(timeline.devices[1], mean_watts=unknown, lowest_watts=unknown, highest_watts=unknown)
    texts = _texts(draw_power(replace(timeline, devices=(timeline.devices[0], blind)), "b · m", "svg"))
    assert "GPU 1 (not measured)" in texts


def test_reports_import_no_matplotlib_and_a_plot_imports_no_pyplot() -> None:
    code = """
import sys
import numpy as np
import evalray.reports
from evalray.reports.power_plot import draw_power
from evalray.telemetry import Pause, PowerTimeline
print("matplotlib" in sys.modules)
draw_power(PowerTimeline(0.0, 1.0, 0, (), np.ones(3), np.zeros(3)), "t", "svg")
draw_power(PowerTimeline(0.0, 1.0, 0, (), np.ones(3), np.zeros(3)), "t", "png")
print("matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("pauses", [1, 7])
def test_a_pause_that_was_cut_out_is_marked(make_timeline: MakeTimeline, pauses: int) -> None:
    whole = make_timeline()
    broken = replace(
        whole, pauses=tuple(Pause(5.0 * number, 3600.0, 3598.0) for number in range(1, pauses + 1))
    )
    assert draw_power(broken, "t", "svg") != draw_power(whole, "t", "svg")
