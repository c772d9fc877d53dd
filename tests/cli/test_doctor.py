from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from evalray import doctor
from evalray.doctor import Check, examine
from evalray.engines import ENGINES


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "no-ray"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def _named(output_dir: Path) -> dict[str, Check]:
    return {check.name: check for check in examine(output_dir)}


def test_every_gap_comes_with_what_to_do(tmp_path: Path) -> None:
    assert all(check.advice for check in examine(tmp_path) if check.status != "ok")


def test_a_missing_package_is_a_problem_and_a_missing_engine_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    checks = _named(tmp_path)
    assert (checks["ray"].status, checks["ray"].advice) == ("problem", "pip install ray")
    assert checks["llamacpp"].status == "note"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write anywhere")
def test_a_folder_without_write_permission_is_a_problem(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert _named(tmp_path / "results")["output folder"].status == "problem"


def test_an_output_folder_below_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert _named(tmp_path / "file" / "results")["output folder"].status == "problem"


def test_looking_leaves_no_trace_in_the_output_folder(tmp_path: Path) -> None:
    examine(tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_does_not_answer_is_told_from_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert _named(tmp_path)["cluster"].status == "ok"
    gone = _named(tmp_path)["cluster"]
    assert gone.status == "note"
    assert address in gone.detail


def test_a_token_is_found_and_not_read_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret-token")
    token = _named(tmp_path)["token"]
    assert token.status == "ok"
    assert "secret" not in token.detail


@pytest.mark.parametrize(
    ("script", "status", "detail"),
    [
        ("echo '0, NVIDIA H200, 143771 MiB, 570.86'", "ok", "NVIDIA H200, 143771 MiB, 570.86"),
        ("echo 'driver mismatch' >&2; exit 18", "note", "driver mismatch"),
        ("exit 0", "note", "exit code 0"),
    ],
)
def test_gpus_are_listed_and_a_broken_driver_is_named(
    script: str, status: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    [gpu] = [check for check in examine(tmp_path) if check.name.startswith("GPU")]
    assert gpu.status == status
    assert detail in gpu.detail


def test_every_engine_has_a_check(tmp_path: Path) -> None:
    named = {check.name for check in examine(tmp_path) if check.group == "engines"}
    assert set(ENGINES) <= named


def test_a_vendor_without_its_key_is_a_note_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "2.0")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    checks = _named(tmp_path)
    assert (checks["openai"].status, checks["openai"].advice) == ("note", "export OPENAI_API_KEY=…")
    assert checks["anthropic"].status == "ok"
    assert "secret" not in checks["anthropic"].detail


@pytest.mark.parametrize(
    ("installed", "listens", "status", "advice"),
    [
        (True, True, "ok", ""),
        (True, False, "note", "ollama serve"),
        (False, False, "note", "install Ollama"),
        (False, True, "ok", ""),
    ],
)
def test_a_local_server_is_told_from_a_program_that_is_not_started(
    installed: bool,
    listens: bool,
    status: str,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        [row] = [row for row in doctor._SERVERS if row[0] == "ollama"]
        monkeypatch.setattr(doctor, "_SERVERS", ((*row[:2], (port,), *row[3:]),))
        if installed:
            program = tmp_path / "ollama"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        check = _named(tmp_path)["ollama"]
    assert check.status == status
    assert advice in check.advice
