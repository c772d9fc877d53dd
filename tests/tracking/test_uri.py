"""The address of the store: who decides it, and that its password is never shown."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from evalray.tracking import artifact_root, mask_uri, resolve_tracking_uri, ui_address, ui_command


@pytest.mark.parametrize(
    ("flag", "suite", "variable", "expected"),
    [
        ("http://flag", "http://suite", "http://variable", "http://flag"),
        (None, "http://suite", "http://variable", "http://suite"),
        (None, None, "http://variable", "http://variable"),
        ("", "", "http://variable", "http://variable"),
    ],
)
def test_flag_beats_suite_beats_environment(
    flag: str | None, suite: str | None, variable: str, expected: str, tmp_path: Path
) -> None:
    environment = {"MLFLOW_TRACKING_URI": variable}
    assert resolve_tracking_uri(tmp_path, flag=flag, suite=suite, environment=environment) == expected


def test_the_default_is_sqlite_beside_the_results_with_artifacts_beside_it(tmp_path: Path) -> None:
    uri = resolve_tracking_uri(tmp_path, environment={})
    assert uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert artifact_root(uri) == tmp_path / "mlartifacts"


def test_a_relative_sqlite_address_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_tracking_uri(Path("r"), flag="sqlite:///my.db") == f"sqlite:///{tmp_path}/my.db"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://user:pa%40ss@host:5000/x", "http://***@host:5000/x"),
        ("postgresql://u:p@db/mlflow and http://t@h", "postgresql://***@db/mlflow and http://***@h"),
        ("http://user:p@ss@host/x", "http://***@host/x"),
        (
            "postgresql://db/mlflow?user=u&password=hunter2&x=1",
            "postgresql://db/mlflow?user=u&password=***&x=1",
        ),
        ("http://host/user@example", "http://host/user@example"),
        ("sqlite:////a/b@c.db", "sqlite:////a/b@c.db"),
        ("databricks", "databricks"),
    ],
)
def test_credentials_in_an_address_are_masked_and_nothing_else(uri: str, shown: str) -> None:
    assert mask_uri(uri) == shown


def test_a_server_decides_on_its_artifacts_itself() -> None:
    assert artifact_root("http://127.0.0.1:5000") is None


def test_the_ui_command_serves_the_store_on_loopback_only(tmp_path: Path) -> None:
    command = ui_command(f"sqlite:///{tmp_path}/mlflow.db", port=5123)
    assert command[1:4] == ["-m", "mlflow", "server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5123"
    assert command[command.index("--default-artifact-root") + 1] == (tmp_path / "mlartifacts").as_uri()


def test_the_address_of_the_ui_is_one_on_which_mlflows_page_shows_runs() -> None:
    found = find_spec("mlflow")
    assert found is not None
    assert found.origin is not None
    scripts = Path(found.origin).parent.glob("server/js/build/static/js/*.js")
    code = "".join(script.read_text(errors="replace") for script in scripts)
    key, _, value = ui_address(5000).rpartition("?")[2].partition("=")
    assert f'"{key}"' in code
    assert f'"{value}"' in code


def test_importing_tracking_imports_no_mlflow() -> None:
    probe = "import sys, evalray.tracking; sys.exit('mlflow' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", probe], cwd=Path(__file__).parents[2], check=False).returncode
        == 0
    )
