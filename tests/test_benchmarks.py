from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evalray.benchmarks import find_benchmark, list_benchmarks, load_benchmark
from evalray.catalog import known_benchmarks
from evalray.errors import ConfigError

Make = Callable[..., Path]

TOML = '[fields]\nreference = "answer"\n'


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a benchmark's folder; ``None`` leaves a file out."""

    def write(
        toml: str | bytes = TOML,
        prompt: str | None = "{{ question }}",
        sample: str | None = '{"question": "1 + 1?", "answer": "2"}\n',
        *,
        name: str = "sums",
        place: str = "benchmarks",
        fewshot: str | None = None,
    ) -> Path:
        folder = tmp_path / place / name
        folder.mkdir(parents=True)
        content = toml if isinstance(toml, bytes) else toml.encode()
        (folder / "benchmark.toml").write_bytes(content)
        for file, text in (("prompt.jinja", prompt), ("sample.jsonl", sample), ("fewshot.jsonl", fewshot)):
            if text is not None:
                (folder / file).write_text(text)
        return folder

    return write


def keys_wrong_in(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_benchmark(folder)
    return [problem.key for problem in caught.value.problems]


def test_a_folder_with_a_reference_column_and_a_prompt_is_a_benchmark(make: Make) -> None:
    benchmark = load_benchmark(make())
    assert (benchmark.name, benchmark.scorer, benchmark.split) == ("sums", "exact", "test")
    assert benchmark.prompt_template == "{{ question }}"


def test_everything_a_folder_declares_is_read(make: Make) -> None:
    toml = """
title = "Sums"
description = "Adding up."
category = "reasoning"
[data]
path = "org/sums"
subset = "main"
split = "validation"
streaming = true
gated = true
[fields]
id = "id"
reference = "{{ answer | trim }}"
subject = "topic"
choices = "options"
metadata = ["level"]
fewshot_answer = "answer"
[scorer]
name = "number"
args = { tolerance = 0.1 }
[defaults]
max_tokens = 64
stop = "END"
"""
    benchmark = load_benchmark(make(toml, sample=None, fewshot='{"question": "q", "answer": "a"}\n\n'))
    assert (benchmark.data_path, benchmark.subset, benchmark.split) == ("org/sums", "main", "validation")
    assert benchmark.streaming
    assert benchmark.gated
    assert benchmark.fields == {
        "id": "id",
        "reference": "{{ answer | trim }}",
        "subject": "topic",
        "fewshot_answer": "answer",
    }
    assert (benchmark.choices, benchmark.metadata_columns) == ("options", ("level",))
    assert (benchmark.scorer, benchmark.scorer_args) == ("number", {"tolerance": 0.1})
    assert benchmark.defaults == {"max_tokens": 64, "stop": ["END"]}
    assert benchmark.fewshot == ({"question": "q", "answer": "a"},)


def test_keys_beside_the_scorers_name_are_its_arguments(make: Make) -> None:
    toml = TOML + '[scorer]\nname = "number"\ntolerance = 0.5\n'
    assert load_benchmark(make(toml)).scorer_args == {"tolerance": 0.5}


def test_a_problem_column_stands_in_for_a_prompt_file(make: Make) -> None:
    folder = make(TOML + 'problem = "question"\n', prompt=None)
    assert load_benchmark(folder).prompt_template == "{{ question }}"


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ('titel = "x"\n' + TOML, "titel"),
        (TOML + '[data]\nsplt = "x"\n', "data.splt"),
        (TOML + '[data]\nstreaming = "yes"\n', "data.streaming"),
        (TOML + "[defaults]\nmax_tokens = 0\n", "defaults.max_tokens"),
        (TOML + "[defaults]\nreplicas = 2\n", "defaults.replicas"),
        ('name = "other"\n' + TOML, "name"),
        ('provider = "no colon"\n' + TOML, "provider"),
        ('title = "x"\n', "fields.reference"),
        ('[fields]\nreference = "{{ answer"\n', "fields.reference"),
        (b"\xff\xfe", ""),
        ("[fields\n", ""),
    ],
)
def test_a_mistake_in_a_definition_names_its_key(make: Make, toml: str | bytes, key: str) -> None:
    assert key in keys_wrong_in(make(toml))


def test_a_template_with_a_syntax_error_is_found_on_loading(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"prompt\.jinja.*line 2"):
        load_benchmark(make(prompt="{{ question }}\n{% for x %}"))


def test_a_prompt_is_needed(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"prompt\.jinja: no such file"):
        load_benchmark(make(prompt=None))


def test_data_is_needed(make: Make) -> None:
    assert keys_wrong_in(make(sample=None)) == ["data.path"]


def test_a_worked_example_that_is_no_row_is_named_by_its_line(make: Make) -> None:
    assert keys_wrong_in(make(fewshot='{"question": "q"}\n{torn\n[1]\n')) == ["line 2", "line 3"]


def test_a_provider_of_its_own_needs_neither_fields_nor_prompt(make: Make) -> None:
    folder = make('provider = "package.module:Provider"\n', prompt=None, sample=None)
    assert load_benchmark(folder).provider == "package.module:Provider"


# -- the search path ----------------------------------------------------------------------------


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALRAY_BENCHMARKS", raising=False)
    return tmp_path


def test_the_working_directory_comes_first_then_the_environment(
    make: Make, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = os.pathsep.join([str(in_folder / "one"), "", str(in_folder / "missing"), str(in_folder / "two")])
    monkeypatch.setenv("EVALRAY_BENCHMARKS", paths)
    second = make(place="two")
    assert find_benchmark("sums").folder == second
    first = make(place="one")
    assert find_benchmark("sums").folder == first
    here = make()
    assert find_benchmark("sums").folder == here
    listing = next(listing for listing in list_benchmarks() if listing.name == "sums")
    assert (listing.origin, listing.folder, listing.shadows) == ("./benchmarks", here, (first, second))


def test_the_packaged_benchmarks_are_found_from_anywhere(in_folder: Path) -> None:
    assert find_benchmark("gsm8k").name == "gsm8k"
    origins = {listing.name: listing.origin for listing in list_benchmarks()}
    assert origins["quickstart"] == "packaged"


def test_a_user_may_replace_a_packaged_benchmark(make: Make, in_folder: Path) -> None:
    own = make(name="gsm8k")
    listing = next(listing for listing in list_benchmarks() if listing.name == "gsm8k")
    assert listing.folder == own
    assert len(listing.shadows) == 1


def test_a_broken_folder_is_listed_and_stops_no_other(make: Make, in_folder: Path) -> None:
    make("nonsense = 1\n", name="broken")
    make()
    listings = {listing.name: listing for listing in list_benchmarks()}
    assert listings["broken"].benchmark is None
    assert listings["broken"].problems[0].key == "nonsense"
    assert listings["sums"].benchmark is not None
    with pytest.raises(ConfigError, match="nonsense"):
        find_benchmark("broken")


def test_an_unknown_name_suggests_the_nearest(make: Make, in_folder: Path) -> None:
    make()
    with pytest.raises(ConfigError, match="did you mean 'sums'"):
        find_benchmark("sum")


def test_folders_without_a_definition_are_no_benchmarks(make: Make, in_folder: Path) -> None:
    make(name=".hidden")
    (in_folder / "benchmarks" / "empty").mkdir()
    assert not {"empty", ".hidden"} & {listing.name for listing in list_benchmarks()}


def test_every_packaged_benchmark_loads(in_folder: Path) -> None:
    packaged = [listing for listing in list_benchmarks() if listing.origin == "packaged"]
    assert packaged
    assert [listing.problems for listing in packaged if listing.problems] == []


def test_the_list_says_which_folder_hides_which(
    make: Make, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALRAY_BENCHMARKS", str(in_folder / "one"))
    make(name="gsm8k")
    make(name="gsm8k", place="one")
    make("nonsense = 1\n", name="quickstart")
    where = {name: place for name, _, _, place, _ in known_benchmarks()}
    assert where["gsm8k"] == "./benchmarks, hides EVALRAY_BENCHMARKS and packaged"
    assert where["quickstart"] == "./benchmarks, hides packaged"
    assert where["gpqa"] == "packaged"


def test_the_list_names_every_mistake_of_a_broken_folder(make: Make, in_folder: Path) -> None:
    make("nonsense = 1\n[data]\nsplitt = 'x'\n", name="broken")
    titles = {name: title for name, _, _, _, title in known_benchmarks()}
    assert titles["broken"].startswith("broken: ")
    assert "nonsense" in titles["broken"]
    assert "splitt" in titles["broken"]
