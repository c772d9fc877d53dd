"""Reports say what the run directory says, whoever wrote the texts in it."""

from __future__ import annotations

import csv
import errno
import json
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evalray.api import summarize_path
from evalray.errors import DiskFullError, StoreError
from evalray.reports import (
    collect,
    plot_uri,
    render_csv,
    render_html,
    render_markdown,
    table,
    tag_legend,
    write_power,
    write_reports,
)
from evalray.reports.collect import EXCERPT_CHARACTERS, EXCERPTS_PER_OUTCOME
from evalray.store import finalize_run
from evalray.telemetry import PowerTimeline
from evalray.types import Outcome

MakeSweep = Callable[..., Path]

HOSTILE = "</pre></td><script>alert(1)</script><img src=x onerror=alert(1)> |` =1+1 {{ 7*7 }} \x1b[31m \u202e"


class Tags(HTMLParser):
    """Every tag with its attributes, and the text outside tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_sweep(make_sweep: MakeSweep) -> Path:
    return make_sweep(
        cells=[(f"bench{HOSTILE}", f"=model{HOSTILE}"), ("gsm8k", "other")],
        outcomes=[Outcome.CORRECT, Outcome.INCORRECT, Outcome.UNPARSED, Outcome.ENGINE_ERROR],
        answer=HOSTILE,
        prompt=HOSTILE,
        subjects=(HOSTILE, "physics"),
        sweep={"description": HOSTILE, "git_commit": HOSTILE, "versions": {"evalray": HOSTILE}},
        info={"warnings": [HOSTILE]},
    )


def test_all_three_reports_are_written_and_nothing_else_is_left(make_sweep: MakeSweep) -> None:
    sweep = make_sweep()
    before = set(sweep.iterdir())
    paths = write_reports(sweep)
    assert [path.name for path in paths] == ["report.md", "report.html", "report.csv"]
    assert set(sweep.iterdir()) - before == set(paths)


def test_hostile_text_adds_no_tag_and_no_attribute_to_the_html(make_sweep: MakeSweep) -> None:
    write_reports(sweep := hostile_sweep(make_sweep))
    page = Tags((sweep / "report.html").read_text())
    assert {"table", "pre", "style"} <= {tag for tag, _ in page.tags}
    assert not {"script", "img", "iframe", "link", "a"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text


def test_the_html_loads_nothing_and_allows_no_script(make_sweep: MakeSweep) -> None:
    write_reports(sweep := hostile_sweep(make_sweep))
    page = Tags((sweep / "report.html").read_text())
    assert not [
        value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")
    ]
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_a_runs_plot_is_an_image_in_the_page(
    make_sweep: MakeSweep, make_timeline: Callable[..., PowerTimeline]
) -> None:
    sweep = make_sweep(cells=[(f"bench{HOSTILE}", f"model{HOSTILE}"), ("gsm8k", "other")])
    first, other = [run.name for run in collect(sweep).runs]
    write_power(sweep / first, make_timeline(2, name=HOSTILE))
    write_reports(sweep)
    page = Tags((sweep / "report.html").read_text())
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    assert set(image) == {"class", "src", "alt"}
    assert (image["src"] or "").startswith(("data:image/png;base64,", "data:image/svg+xml;base64,"))
    assert other not in page.text


def test_plots_that_would_make_the_page_too_large_are_named(
    make_sweep: MakeSweep, make_timeline: Callable[..., PowerTimeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep(cells=[("quickstart", "one"), ("quickstart", "two")])
    for name in ("quickstart_one", "quickstart_two"):
        write_power(sweep / name, make_timeline(1))
    size = len(plot_uri(sweep / "quickstart_one", 10**9) or "")
    # The package has a function of the module's name.
    monkeypatch.setattr(sys.modules["evalray.reports.render_html"], "MAX_PLOT_BYTES", int(size * 1.5))
    write_reports(sweep)
    page = Tags((sweep / "report.html").read_text())
    assert sum(tag == "img" for tag, _ in page.tags) == 1
    assert "two: its power over time is in quickstart_two/telemetry." in page.text


def test_hostile_text_breaks_no_markdown_table(make_sweep: MakeSweep) -> None:
    write_reports(sweep := hostile_sweep(make_sweep))
    text = (sweep / "report.md").read_text()
    assert "<script" not in text
    assert "<img" not in text
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    widths = {line.count("|") for line in rows}
    assert rows
    assert widths == {3 + 1, 8, 10, 12, 6}


def test_hostile_names_are_no_formula_in_the_csv(make_sweep: MakeSweep) -> None:
    write_reports(sweep := hostile_sweep(make_sweep))
    with (sweep / "report.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"][:2] for row in rows if row["benchmark"] != "gsm8k"] == ["'="]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "@", "+", "\t"))]


def test_the_csv_holds_the_summary_figures(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(outcomes=[Outcome.CORRECT, Outcome.TRUNCATED, Outcome.ENGINE_ERROR])
    write_reports(sweep)
    with (sweep / "report.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    summary = json.loads((sweep / "quickstart_smol.summary.json").read_text())
    assert float(row["accuracy"]) == summary["accuracy"] == 0.5
    assert float(row["accuracy_ci95_low"]) == summary["accuracy_ci95"][0]
    assert float(row["latency_stats.p90"]) == summary["latency_stats"]["p90"]
    assert [row[f"outcomes.{name}"] for name in ("correct", "truncated", "engine_error", "skipped")] == [
        "1",
        "1",
        "1",
        "0",
    ]
    assert row["total_energy_joules"] == ""


def test_emissions_have_a_column_where_the_grid_is_known(make_sweep: MakeSweep) -> None:
    sweep = make_sweep()
    path = sweep / "quickstart_smol.summary.json"
    shown = []
    for gco2e in (None, 12.5):
        figures = {"total_energy_joules": 100.0, "gco2e": gco2e}
        path.write_text(json.dumps(json.loads(path.read_text()) | figures))
        write_reports(sweep)
        text = (sweep / "report.md").read_text()
        shown.append(("CO2e" in text, "12.5 g" in text))
    assert shown == [(False, False), (True, True)]


def test_a_report_says_how_energy_was_measured_and_of_what_peak_mfu_is(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=[("gsm8k", "smol"), ("gsm8k", "big")])
    measured = {
        "energy_method": "estimate",
        "energy_scope": "gpu",
        "energy_reason": "guessed <b>",
        "total_energy_joules": 8907.6,
        "utilization_peak": "239.5 GFLOP/s (fp32, achievable), 49.14 GB/s (achievable)",
    }
    unmeasured = {"energy_method": "none", "energy_reason": "no meter", "utilization_reason": "no peak"}
    for name, figures in (("gsm8k_smol", measured), ("gsm8k_big", unmeasured)):
        path = sweep / f"{name}.summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | figures))
    write_reports(sweep)
    for name in ("report.md", "report.html"):
        text = (sweep / name).read_text()
        assert "smol: energy by estimate, scope gpu: guessed" in text
        assert "smol: MFU and MBU are of 239.5 GFLOP/s (fp32, achievable)" in text
        assert "big: no energy meter here (null, not 0): no meter" in text
        assert "big: no peak" in text
        assert "8 908 J" in text.replace("\u202f", " ")
        assert "guessed <b>" not in text


def test_every_outcome_is_counted_in_markdown_and_html(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(outcomes=[Outcome.CORRECT] * 3 + [Outcome.UNPARSED] * 2)
    write_reports(sweep)
    for name in ("report.md", "report.html"):
        text = (sweep / name).read_text().replace("\\_", "_")
        assert all(str(outcome) in text for outcome in Outcome)
        assert "60.0 %" in text
        assert "5/5" in text


def test_runs_stand_by_accuracy_and_the_matrix_crosses_models_and_benchmarks(make_sweep: MakeSweep) -> None:
    good, bad = [Outcome.CORRECT] * 2, [Outcome.INCORRECT] * 2
    make_sweep(cells=[("gsm8k", "weak")], outcomes=bad)
    sweep = make_sweep(cells=[("gsm8k", "strong"), ("quickstart", "strong")], outcomes=good)
    report = collect(sweep)
    assert [run.summary.model for run in report.of_benchmark("gsm8k")] == ["strong", "weak"]
    write_reports(sweep)
    text = (sweep / "report.md").read_text()
    (weak,) = [line for line in text.splitlines() if line.startswith("| weak | 0.0 % (")][:1]
    assert weak.endswith("| – |")


def test_runs_of_one_cell_are_told_apart_by_tag_and_setting(make_sweep: MakeSweep) -> None:
    for temperature in (0.0, 0.7):
        sweep = make_sweep(cells=[("gsm8k", "m")], config={"temperature": temperature})
    report = collect(sweep)
    tags = [run.tag for run in report.runs]
    assert len(set(tags)) == 2
    assert tags == [f"#{run.summary.fingerprint[:4]}" for run in report.runs]
    write_reports(sweep)
    for name in ("report.md", "report.html"):
        text = (sweep / name).read_text().replace("\\", "")
        assert all(f"m {tag}" in text for tag in tags)
        assert "temperature 0.7" in text


def test_summarize_says_why_a_run_failed(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(
        outcomes=[Outcome.CORRECT, Outcome.ENGINE_ERROR, Outcome.ENGINE_ERROR], answer="no GPU"
    )
    [run] = summarize_path(sweep).runs
    assert run.status == "failed"
    assert run.reason == (
        "2 of 3 samples failed, more than 10%: 2 engine_error; "
        "engine_error, as of record 'r1': HTTP 500: no GPU"
    )


def test_a_run_alone_in_its_cell_has_no_tag(make_sweep: MakeSweep) -> None:
    assert [run.label for run in collect(make_sweep()).runs] == ["smol"]


def test_bad_rows_are_said_once(make_sweep: MakeSweep) -> None:
    warning = "1 bad row was left out: x.jsonl:3: no answer"
    sweep = make_sweep(info={"bad_rows": 1, "warnings": [warning]})
    assert table.warnings(collect(sweep)) == [f"smol on quickstart: {warning}"]


def test_what_a_scorer_says_beside_the_accuracy_is_a_column(make_sweep: MakeSweep) -> None:
    report = collect(make_sweep())
    report.runs[0].summary.scorer_rates = {"position_bias_rate": 0.25, "unknown": None}
    shown = table.leaderboard(report.runs)
    assert shown.head[-2:] == ("position bias rate", "unknown")
    assert shown.rows[0][-2:] == ("25.0 %", "–")
    assert "position bias rate" in render_markdown(report)
    assert "position bias rate" in render_html(report)
    assert "scorer_rates.position_bias_rate" in render_csv(report).splitlines()[0]


def test_a_stopped_run_says_why_in_the_report(make_sweep: MakeSweep) -> None:
    ended = {"status": "partial", "reason": "circuit breaker: 20 requests"}
    sweep = make_sweep(outcomes=[Outcome.CORRECT], info={"ended": ended})
    manifest = sweep / "quickstart_smol" / "run.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"num_records": 2}))
    finalize_run(manifest.parent)
    lines = table.warnings(collect(sweep))
    assert lines == ["smol on quickstart: partial; 1/2 samples scored: circuit breaker: 20 requests"]


def test_a_failed_run_says_in_the_report_what_its_samples_ended_in(make_sweep: MakeSweep) -> None:
    cells = [("quickstart", "one"), ("quickstart", "two")]
    sweep = make_sweep(cells=cells, outcomes=[Outcome.ENGINE_ERROR] * 2, answer="no such <model>")
    (said,) = table.warnings(collect(sweep))
    head = "one on quickstart, two on quickstart: failed: none of 2 samples could be scored: 2 engine_error; "
    assert said == f"{head}engine_error, as of record 'r0': HTTP 500: no such <model>"
    write_reports(sweep)
    assert "no such &lt;model&gt;" in (sweep / "report.html").read_text()
    assert "<model>" not in (sweep / "report.md").read_text()


@pytest.mark.parametrize(
    ("stopped", "outcome", "said"),
    [
        (True, Outcome.JUDGE_ERROR, ["smol on quickstart: partial; 1/2 samples scored: judge j: odd"]),
        (
            False,
            Outcome.JUDGE_ERROR,
            ["smol on quickstart: judge j: odd; 1 answer has no verdict: the same command asks again"],
        ),
        (False, Outcome.CORRECT, ["smol on quickstart: judge j: odd"]),
    ],
)
def test_a_judge_that_failed_is_named_in_the_report(
    stopped: bool, outcome: Outcome, said: list[str], make_sweep: MakeSweep
) -> None:
    info = {"judge_problem": "judge j: odd", "judging_stopped": stopped}
    sweep = make_sweep(outcomes=[Outcome.CORRECT, outcome], info=info, config={"max_error_rate": 1.0})
    assert table.warnings(collect(sweep)) == said


def test_answers_from_the_response_cache_are_among_the_facts(make_sweep: MakeSweep) -> None:
    report = collect(make_sweep())
    assert "answers from the response cache" not in dict(table.facts(report))
    report.runs[0].summary.cached_samples = 12
    assert dict(table.facts(report))["answers from the response cache"] == "12"


def test_a_full_disk_is_the_reports_error_as_it_is_any_files(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    sweep = make_sweep()
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFullError, match="free some space and run the same command again"):
        write_reports(sweep)


def test_the_legend_of_tags_says_in_what_the_runs_differ(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(config={"temperature": 0.0})
    make_sweep(config={"temperature": 0.5})
    runs = [(run.summary, sweep / f"{run.name}.summary.json") for run in collect(sweep).runs]
    [legend] = tag_legend(runs)
    assert legend.endswith("temperature 0.5")
    assert "temperature 0.0" in legend
    assert all(f"#{summary.fingerprint[:4]}" in legend for summary, _ in runs)
    assert tag_legend(runs[:1]) == []


def test_a_warning_that_runs_share_is_said_once(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=[("gsm8k", "a"), ("gsm8k", "b")], info={"warnings": ["no seed"]})
    assert table.warnings(collect(sweep)) == ["a on gsm8k, b on gsm8k: no seed"]


def test_an_unfinished_run_is_a_warning_not_a_failure(make_sweep: MakeSweep) -> None:
    make_sweep(cells=[("quickstart", "done")])
    sweep = make_sweep(cells=[("quickstart", "half")], finalize=False)
    report = collect(sweep)
    assert [run.summary.model for run in report.runs] == ["done"]
    assert report.unfinished == ["quickstart_half"]
    write_reports(sweep)
    assert "no summary yet" in (sweep / "report.md").read_text()


def test_a_broken_summary_hides_no_other_run(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=[("quickstart", "good"), ("quickstart", "broken")])
    (sweep / "quickstart_broken.summary.json").write_text('{"benchmark": ')
    report = collect(sweep)
    assert [run.summary.model for run in report.runs] == ["good"]
    assert any("quickstart_broken.summary.json" in warning for warning in report.warnings)


def test_excerpts_are_few_short_and_only_of_samples_that_were_not_correct(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(outcomes=[Outcome.CORRECT] * 9 + [Outcome.INCORRECT] * 9, answer="x" * 100_000)
    (run,) = collect(sweep).runs
    assert [excerpt.outcome for excerpt in run.excerpts] == ["incorrect"] * EXCERPTS_PER_OUTCOME
    assert {len(excerpt.answer) for excerpt in run.excerpts} == {EXCERPT_CHARACTERS}


def test_a_nonfinite_summary_figure_is_a_dash(make_sweep: MakeSweep) -> None:
    sweep = make_sweep()
    path = sweep / "quickstart_smol.summary.json"
    summary = json.loads(path.read_text())
    summary |= {
        "accuracy": float("nan"),
        "accuracy_ci95": [float("nan"), float("inf")],
        "wall_seconds": float("inf"),
    }
    path.write_text(json.dumps(summary))
    write_reports(sweep)
    for name in ("report.md", "report.html", "report.csv"):
        assert not {"nan", "inf"} & set((sweep / name).read_text().lower().replace(",", " ").split())


def test_a_directory_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write_reports(tmp_path)


def test_one_damaged_run_is_named_and_takes_no_other_with_it(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=[("quickstart", "a"), ("quickstart", "b")])
    (sweep / "quickstart_a" / "run.json").write_text("[1, 2]")
    report = collect(sweep)
    assert [run.name for run in report.runs] == ["quickstart_b"]
    assert any("quickstart_a is left out" in warning for warning in report.warnings)
    result = summarize_path(sweep)
    assert [run.model for run in result.runs] == ["b"]
    assert "quickstart_a" in result.errors[0]
    assert result.exit_code != 0
    assert "is left out" in (sweep / "report.md").read_text()
