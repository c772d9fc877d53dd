"""Files of OpenJarvis become runs that everything else reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalray.api import summarize_path
from evalray.compare import compare_paths
from evalray.errors import ConfigError
from evalray.importing import import_path
from evalray.store import iter_results, list_runs, read_sweep

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "openjarvis" / "results"
UNDECIDED = {"is_correct": None, "score": None, "scoring_metadata": {"reason": "no_choice_letter_extracted"}}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def journals(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in snapshot(folder).items() if "/" in name}


def test_rows_arrive_with_outcomes_and_telemetry(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(
        make_row(
            0, energy_joules=80.0, power_watts=100.0, energy_method="hw_counter", gpu_energy_joules=70.0
        ),
        make_row(1, is_correct=False, score=0.0),
        make_row(2, **UNDECIDED),
        make_row(3, error="connection refused", is_correct=None, score=None, model_answer=""),
    )
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    rows = list(iter_results(run.results))
    assert [row.outcome for row in rows] == ["correct", "incorrect", "unparsed", "engine_error"]
    assert [row.record_id for row in rows] == [f"supergpqa-{number}" for number in range(4)]
    assert (rows[0].energy_joules, rows[0].power_watts, rows[0].energy_method) == (80.0, 100.0, "hw_counter")
    assert rows[1].energy_joules is None
    assert rows[0].throughput_tok_per_sec == pytest.approx(20.0)
    assert rows[0].scoring_metadata["candidate_letter"] == "B"
    assert rows[2].scoring_metadata["imported"] == {"is_correct": None, "score": None}
    assert rows[3].error == "connection refused"
    assert (run.summary.scored_samples, run.summary.correct, run.summary.total_energy_joules) == (3, 1, 80.0)
    assert run.summary.accuracy_parsed == 0.5  # what OpenJarvis reports
    assert run.summary.status == "complete"


def test_the_original_summary_gives_times_category_and_is_kept(make_row, write_rows, tmp_path: Path) -> None:
    summary = {
        "benchmark": "supergpqa", "category": "reasoning", "total_samples": 2, "scored_samples": 2, "errors": 0,
        "accuracy": 1.0, "started_at": 1000.0, "ended_at": 1010.0,
    }  # fmt: skip
    path = write_rows(make_row(0), make_row(1), summary=summary)
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    assert (run.summary.category, run.summary.started_at, run.summary.wall_seconds) == (
        "reasoning",
        1000.0,
        10.0,
    )
    assert json.loads((run.directory / "openjarvis.summary.json").read_text()) == summary
    [entry] = list_runs(tmp_path / "out" / "imported")
    assert entry.manifest.info["imported"]["reported"]["accuracy"] == 1.0


@pytest.mark.parametrize("target", ["file", "summary", "folder"])
def test_a_file_its_summary_and_its_folder_mean_the_same(
    make_row, write_rows, tmp_path: Path, target: str
) -> None:
    summary = {"benchmark": "supergpqa", "total_samples": 1}
    file = write_rows(make_row(0), summary=summary)
    (file.parent / "traces").mkdir()
    (file.parent / "traces" / "traces.jsonl").write_text("{}\n")
    named = {"file": file, "summary": file.with_name(file.stem + ".summary.json"), "folder": file.parent}
    report = import_path(named[target], output_dir=tmp_path / "out")
    assert [run.source.name for run in report.runs] == [file.name]
    assert report.skipped == []


def test_importing_again_changes_nothing(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(
        make_row(0), make_row(1, error="boom", model_answer="", is_correct=None), make_row(2, **UNDECIDED)
    )
    import_path(path, output_dir=tmp_path / "out")
    before = snapshot(tmp_path / "out")
    [again] = import_path(path, output_dir=tmp_path / "out").runs
    assert again.unchanged
    assert {name for name, data in snapshot(tmp_path / "out").items() if before.get(name) != data} <= {
        "imported/report.md", "imported/report.html", "imported/report.csv",
    }  # fmt: skip


def test_a_file_that_grew_continues_its_run(make_row, write_rows, tmp_path: Path) -> None:
    import_path(write_rows(make_row(0)), output_dir=tmp_path / "out")
    [run] = import_path(write_rows(make_row(0), make_row(1)), output_dir=tmp_path / "out").runs
    assert not run.unchanged
    assert run.summary.planned_samples == run.summary.scored_samples == 2
    assert len((run.directory / "generations.jsonl").read_bytes().splitlines()) == 2
    assert len(list_runs(tmp_path / "out" / "imported")) == 1


def test_verdicts_that_changed_are_taken_anew_without_new_generations(
    make_row, write_rows, tmp_path: Path
) -> None:
    import_path(write_rows(make_row(0), make_row(1)), output_dir=tmp_path / "out")
    reparsed = write_rows(make_row(0, is_correct=False, score=0.0), make_row(1))
    [run] = import_path(reparsed, output_dir=tmp_path / "out").runs
    assert run.summary.correct == 1
    assert len((run.directory / "generations.jsonl").read_bytes().splitlines()) == 2


def test_an_import_cut_short_is_completed(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(*(make_row(number) for number in range(5)))
    [whole] = import_path(path, output_dir=tmp_path / "whole").runs
    [cut] = import_path(path, output_dir=tmp_path / "cut").runs
    (cut.directory / "imported.json").unlink()
    for name in ("generations.jsonl", "scores.jsonl"):
        journal = cut.directory / name
        journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    [cut] = import_path(path, output_dir=tmp_path / "cut").runs
    assert cut.results.read_bytes() == whole.results.read_bytes()


def test_two_runs_of_one_model_stay_apart(make_row, write_rows, tmp_path: Path) -> None:
    write_rows(make_row(0, model_answer="A"), name="one.jsonl")
    folder = write_rows(make_row(0, model_answer="C"), name="two.jsonl").parent
    report = import_path(folder, output_dir=tmp_path / "out")
    assert len({run.directory for run in report.runs}) == 2


def test_runs_within_one_file_become_runs_of_their_own(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(make_row(0), make_row(0, model="other"), make_row(1))
    report = import_path(path, output_dir=tmp_path / "out")
    assert {(run.summary.model, run.summary.planned_samples) for run in report.runs} == {
        ("org/model:7b", 2),
        ("other", 1),
    }


def test_bad_rows_are_named_counted_and_left_out(make_row, write_rows, tmp_path: Path) -> None:
    torn = json.dumps(make_row(9)).encode()[:-30]
    path = write_rows(make_row(0), b"\n", b"[1]\n", b"\xff\xfe\n", make_row(1), make_row(0), torn)
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    assert (run.summary.scored_samples, run.summary.bad_rows) == (2, 3)
    [bad] = [warning for warning in run.summary.warnings if "bad rows" in warning and "left out: " in warning]
    for part in (
        "jsonl:3: not a JSON object",
        "jsonl:4: not JSON",
        "jsonl:7: not JSON (the line is cut short)",
    ):
        assert part in bad
    assert any("1 row repeats a record id" in warning for warning in run.summary.warnings)


def test_positional_ids_are_warned_of_here_and_when_compared(make_row, write_rows, tmp_path: Path) -> None:
    rows = [make_row(number) for number in range(4)]
    [run] = import_path(write_rows(*rows), output_dir=tmp_path / "out").runs
    assert any("positions" in warning for warning in run.summary.warnings)
    [comparison] = compare_paths(run.directory, [run.directory]).comparisons
    assert any("positions" in warning for warning in comparison.warnings)
    named = [make_row(number, record_id=f"gaia-c61d22de-{number}x") for number in range(4)]
    [other] = import_path(write_rows(*named), output_dir=tmp_path / "other").runs
    assert not any("positions" in warning for warning in other.summary.warnings)


def test_the_same_positions_under_another_seed_are_refused(make_row, write_rows, tmp_path: Path) -> None:
    def letters(text: str) -> list[dict[str, object]]:
        return [make_row(n, scoring_metadata={"reference_letter": letter}) for n, letter in enumerate(text)]

    [a] = import_path(write_rows(*letters("ABCD")), output_dir=tmp_path / "a").runs
    [b] = import_path(write_rows(*letters("ABDC")), output_dir=tmp_path / "b").runs
    with pytest.raises(ConfigError, match="2 of 4 common records have another reference answer"):
        compare_paths(a.directory, [b.directory])


def test_a_summary_that_does_not_fit_its_rows_is_said(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(make_row(0), summary={"benchmark": "supergpqa", "total_samples": 9})
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    assert any("counts 9 samples" in warning for warning in run.summary.warnings)


@pytest.mark.parametrize("number", [10**400, 1e300, float("inf"), float("nan"), -1])
def test_a_summary_of_impossible_numbers_is_imported_without_them(
    make_row, write_rows, tmp_path: Path, number: float
) -> None:
    names = ("accuracy", "started_at", "ended_at", "total_energy_joules")
    counts = {"benchmark": "supergpqa", "total_samples": 3, "scored_samples": 1, "errors": 1}
    path = write_rows(make_row(0), summary={**counts, **dict.fromkeys(names, number)})
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    assert (run.status, run.summary.accuracy) == ("complete", 1.0)


@pytest.mark.parametrize("depth", [100, 300, 900])
def test_a_row_nested_beyond_all_sense_is_imported(make_row, write_rows, tmp_path: Path, depth: int) -> None:
    line = json.dumps(make_row(0)).encode()[:-1]
    nested = line + b', "record_metadata": {"a": ' + b"[" * depth + b"]" * depth + b"}}\n"
    [run] = import_path(write_rows(nested), output_dir=tmp_path / "out").runs
    assert run.summary.accuracy == 1.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b"", "it is empty"),
        ("rows.jsonl", b'{"question": "x", "answer": "y"}\n', r"rows\.jsonl:1: no 'record_id'"),
        ("rows.jsonl", b"PK\x03\x04\0\0", "a binary file"),
        ("rows.csv", b"a,b\n", r"not a \.jsonl"),
        ("rows.summary.json", b"{}", r"no rows\.jsonl beside it"),
    ],
)
def test_a_foreign_file_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        import_path(file, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_foreign_files_of_a_folder_are_named_and_the_rest_imported(
    make_row, write_rows, tmp_path: Path
) -> None:
    path = write_rows(make_row(0))
    path.with_name("notes.jsonl").write_text('{"note": 1}\n')
    report = import_path(path.parent, output_dir=tmp_path / "out")
    assert len(report.runs) == 1
    assert "notes.jsonl" in report.skipped[0]


def test_rows_of_evalrays_own_in_a_folder_are_named_and_left_where_they_are(
    make_row, write_rows, tmp_path: Path
) -> None:
    write_rows(make_row(0))
    own = write_rows(make_row(0, schema_version=1), name="supergpqa_own.jsonl")
    report = import_path(own.parent, output_dir=tmp_path / "out")
    assert len(report.runs) == 1
    assert "supergpqa_own.jsonl" in report.skipped[0]
    assert "`evalray summarize` reads their sweep" in report.skipped[0]
    assert len(import_path(own, output_dir=tmp_path / "named").runs) == 1


def test_rows_of_a_sweep_near_by_are_skipped_with_its_name(make_row, write_rows, tmp_path: Path) -> None:
    report = import_path(write_rows(make_row(0)), output_dir=tmp_path / "results")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(report.runs[0].results.read_bytes())
    with pytest.raises(ConfigError, match="holds rows of EvalRay's own") as caught:
        import_path(tmp_path, output_dir=tmp_path / "out")
    assert f"`evalray summarize {report.directory}` reads their sweep" in str(caught.value)
    assert f"they are of run {report.runs[0].name}" in str(caught.value)


def test_evalrays_own_directories_are_not_imported(make_row, write_rows, tmp_path: Path) -> None:
    report = import_path(write_rows(make_row(0)), output_dir=tmp_path / "out")
    for path in (report.directory, report.runs[0].directory):
        with pytest.raises(ConfigError, match="EvalRay's own"):
            import_path(path, output_dir=tmp_path / "out")
    with pytest.raises(ConfigError, match="choose another --sweep-id"):
        import_path(report.runs[0].results, output_dir=tmp_path / "out")


def test_rows_that_evalray_exported_come_back_as_they_were(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(
        make_row(0), make_row(1, **UNDECIDED), make_row(2, error="e", is_correct=None, model_answer="")
    )
    [first] = import_path(path, output_dir=tmp_path / "out").runs
    [again] = import_path(first.results, output_dir=tmp_path / "again").runs
    before, after = list(iter_results(first.results)), list(iter_results(again.results))
    assert [(r.record_id, r.outcome, r.score, r.latency_seconds) for r in before] == [
        (r.record_id, r.outcome, r.score, r.latency_seconds) for r in after
    ]


def test_a_sweep_that_ran_keeps_its_description(make_row, write_rows, tmp_path: Path) -> None:
    target = tmp_path / "out" / "mine"
    target.mkdir(parents=True)
    (target / "sweep.json").write_text('{"sweep_id": "mine", "name": "full", "started_at": 5.0}')
    import_path(write_rows(make_row(0)), output_dir=tmp_path / "out", sweep_id="mine")
    assert read_sweep(target)["name"] == "full"


def test_lone_surrogates_and_strange_names_survive(make_row, write_rows, tmp_path: Path) -> None:
    path = write_rows(make_row(0, model_answer="\ud835 B", model="../../evil\n[bold]"))
    [run] = import_path(path, output_dir=tmp_path / "out").runs
    assert run.directory.parent == tmp_path / "out" / "imported"
    assert run.summary.model == "../../evil\n[bold]"


@pytest.mark.skipif(not SHARED.is_dir(), reason="no files of a real OpenJarvis run here")
def test_a_real_run_of_openjarvis_is_imported_summarized_and_compared(tmp_path: Path) -> None:
    [run] = import_path(SHARED, output_dir=tmp_path / "out").runs
    assert run.summary.outcomes["correct"] == 4
    assert run.summary.outcomes["unparsed"] == 1
    assert run.summary.accuracy_parsed == pytest.approx(0.5714, abs=1e-4)
    assert run.summary.total_energy_joules == pytest.approx(865.1337)
    assert run.summary.wall_seconds == pytest.approx(9.7397, abs=1e-3)
    result = summarize_path(tmp_path / "out" / "imported")
    assert (result.exit_code, result.runs[0].status) == (0, "complete")
    [comparison] = compare_paths(run.directory, [next(SHARED.glob("*.jsonl"))]).comparisons
    assert comparison.accuracy is not None
    assert (comparison.accuracy.difference, comparison.accuracy.n) == (0.0, 7)
