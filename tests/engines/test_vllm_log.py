from __future__ import annotations

import json
import logging
import logging.config
from pathlib import Path

import pytest

from evalray.engines.vllm_log import VllmLog, cause_in

TRACE = """2026-01-01 ERROR vllm.v1.executor: WorkerProc failed to start.
Traceback (most recent call last):
  File "worker.py", line 1, in load
ValueError: Free memory on device (3.1/79.2 GiB) is less than desired
2026-01-01 ERROR vllm.v1.engine.core: EngineCore failed to start.
Traceback (most recent call last):
  File "core.py", line 2, in run
Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ""),
        ("WARNING nothing went wrong: no Error here\n", ""),
        (TRACE, "ValueError: Free memory on device (3.1/79.2 GiB) is less than desired"),
        ("torch.OutOfMemoryError: CUDA out of memory\n", "torch.OutOfMemoryError: CUDA out of memory"),
        ("KeyError: 'a'\nRuntimeError: b\nOSError: c\n", "KeyError: 'a'; OSError: c"),
        ("OSError: c\nOSError: c\n", "OSError: c"),
    ],
)
def test_the_cause_is_the_innermost_exception_and_not_a_pointer_to_it(text: str, cause: str) -> None:
    assert cause_in(text) == cause


def test_vllms_messages_go_to_a_file_that_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_LEVEL", "VLLM_CONFIGURE_LOGGING"):
        monkeypatch.delenv(name, raising=False)
    log = VllmLog()
    settings = Path(log.environment()["VLLM_LOGGING_CONFIG_PATH"])
    logging.config.dictConfig(json.loads(settings.read_text()))
    logger = logging.getLogger("vllm.engine")
    try:
        raise ValueError("no such dtype")
    except ValueError:
        logger.exception("failed")
    assert log.cause() == "ValueError: no such dtype"
    assert capfd.readouterr() == ("", "")
    for handler in list(logging.getLogger("vllm").handlers):
        logging.getLogger("vllm").removeHandler(handler)
        handler.close()
    log.close()
    assert not log.file.exists()
    assert log.cause() == ""


def test_a_users_own_logging_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    log = VllmLog()
    assert log.environment() == {}
    log.close()
