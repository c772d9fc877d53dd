from __future__ import annotations

from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalray.suite import slug
from evalray.suite.names import folder_name_problem


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3:8b", "qwen3-8b"),
        ("Qwen/Qwen3.5-35B-A3B", "Qwen-Qwen3.5-35B-A3B"),
        ("hf.co/unsloth/Qwen3.5-4B:Q4_K_M", "hf.co-unsloth-Qwen3.5-4B-Q4_K_M"),
        ("a b\nc", "a-b-c"),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
    ],
)
def test_a_slug_keeps_what_is_safe(name: str, expected: str) -> None:
    assert slug(name) == expected


@given(st.text())
def test_a_slug_is_one_safe_path_component(name: str) -> None:
    result = slug(name)
    assert result
    assert PurePath(result).name == result
    assert not result.startswith((".", "-"))
    assert len(result.encode()) <= 120
    assert slug(result) == result


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    assert slug("x" * 300 + "a") != slug("x" * 300 + "b")


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", "..", ".", "", "  ", "a\nb", "a\x00b"])
def test_a_path_is_no_folder_name(name: str) -> None:
    assert folder_name_problem(name)


@pytest.mark.parametrize("name", ["smoke-nvidia", "Gruppe Ä", "v1.2", "a..b"])
def test_a_plain_name_is_a_folder_name(name: str) -> None:
    assert folder_name_problem(name) is None


@pytest.mark.parametrize("name", ["mlflow.db", "mlartifacts", ".cache", "MLflow.db", "mlflow.db-wal"])
def test_what_lies_beside_the_sweeps_names_none_of_them(name: str) -> None:
    assert "taken" in str(folder_name_problem(name))
