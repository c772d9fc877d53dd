from __future__ import annotations

from pathlib import Path

import pytest

from evalray.engines.gpu_memory import GpuMemory, require_free_memory, visible_gpu_memory
from evalray.errors import EngineStartError

FREE = GpuMemory("GPU 0", 79_000.0, 80_000.0)
TAKEN = GpuMemory("GPU 3", 8_192.0, 81_920.0, ("pid 41 (VLLM::EngineCore) holds 70000 MiB",))


async def test_free_memory_lets_a_model_load() -> None:
    await require_free_memory(0.9, lambda: [FREE], within_seconds=0.0)


async def test_a_node_that_cannot_say_lets_a_model_load() -> None:
    await require_free_memory(0.9, lambda: [], within_seconds=0.0)


async def test_taken_memory_is_an_error_that_names_the_gpu_its_holder_and_the_sizes() -> None:
    with pytest.raises(EngineStartError) as raised:
        await require_free_memory(0.9, lambda: [FREE, TAKEN], within_seconds=0.0)
    message = str(raised.value)
    assert "GPU 3 has 8.0 of 80.0 GiB free" in message
    assert "needs 72.0 GiB" in message
    assert "pid 41 (VLLM::EngineCore)" in message
    assert "GPU 0" not in message


async def test_memory_that_is_just_being_released_is_waited_for() -> None:
    answers = iter([[TAKEN], [FREE]])
    await require_free_memory(0.9, lambda: next(answers), within_seconds=5.0)


SMI = """#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
  --query-gpu=*) printf 'GPU-aa, 0, 100, 1000\\nGPU-bb, 1, [N/A], [N/A]\\n' ;;
  *) printf 'GPU-aa, 77, python, 900\\n' ;;
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in on the PATH; returns the file it writes its arguments to."""
    log = tmp_path / "log"
    script = tmp_path / "nvidia-smi"
    script.write_text(SMI.format(log=log))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return log


def test_what_nvidia_smi_says_is_read_and_gpus_that_do_not_say_are_left_out(nvidia_smi: Path) -> None:
    assert visible_gpu_memory() == [GpuMemory("GPU 0", 100.0, 1000.0, ("pid 77 (python) holds 900 MiB",))]


def test_only_the_gpus_this_process_may_use_are_asked_about(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-cc")
    visible_gpu_memory()
    assert all(line.endswith("--id=2,GPU-cc") for line in nvidia_smi.read_text().splitlines())


def test_no_nvidia_smi_means_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpu_memory() == []
