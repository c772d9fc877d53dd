"""A sweep directory as the real store writes it, for any outcomes and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalray.store import SweepStore, run_fingerprint
from evalray.telemetry import DeviceKind, DevicePower, PowerTimeline
from evalray.types import EvalRecord, Generation, Outcome, RunConfig, Score, Timeline

MakeSweep = Callable[..., Path]


def write_sweep(
    directory: Path,
    *,
    cells: Iterable[tuple[str, str]] = (("quickstart", "smol"),),
    outcomes: Iterable[Outcome] = (Outcome.CORRECT, Outcome.INCORRECT),
    answer: str = "B",
    prompt: str = "Which letter?",
    subjects: tuple[str, ...] = ("",),
    sweep: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    info: dict[str, Any] | None = None,
    finalize: bool = True,
) -> Path:
    """Journal one sample per outcome in each (benchmark, model) cell and finalize; again continues."""
    outcomes = list(outcomes)
    with SweepStore.open(directory) as store:
        store.write_sweep({"sweep_id": directory.name, "name": "suite", **(sweep or {})})
        for benchmark, model in cells:
            run_config = RunConfig(benchmark=benchmark, backend="direct", model=model, **(config or {}))
            fingerprint = run_fingerprint(
                run_config, engine="llamacpp", engine_args={}, prompt_hash="p", data_digest="d"
            )
            run = store.open_run(
                run_config,
                fingerprint=fingerprint,
                scorer_fingerprint="s1",
                num_records=len(outcomes),
                info={"engine": "llamacpp", **(info or {})},
            )
            run.begin_stretch()
            for position, outcome in enumerate(outcomes):
                record = EvalRecord(
                    f"r{position}", prompt, "A", "reasoning", subjects[position % len(subjects)]
                )
                failed = outcome is Outcome.ENGINE_ERROR
                generation = Generation(
                    raw_text=answer,
                    model_answer=answer,
                    finish_reason="stop",
                    prompt_tokens=10,
                    completion_tokens=5,
                    timeline=Timeline(latency_seconds=0.5 + position / 100, ttft_seconds=0.1),
                    engine_id="smol/0",
                    error="HTTP 500: " + answer if failed else None,
                    error_kind="server_error" if failed else None,
                )
                if run.append_generation(position, 0, 1, record, generation) and not failed:
                    run.append_score(position, 0, record.record_id, Score(outcome))
            run.end_stretch()
            if finalize:
                run.finalize()
    return directory


def sample_timeline(devices: int = 1, *, bins: int = 60, name: str = "NVIDIA H200") -> PowerTimeline:
    """A run of ``bins`` seconds whose devices draw 100 W and up, with a gap of 5 s in the middle."""
    second = np.arange(bins, dtype=np.float64)
    watts = 100.0 + 50.0 * np.sin(second / 5)
    watts[bins // 2 : bins // 2 + 5] = np.nan
    powers = tuple(
        DevicePower(
            "node",
            f"GPU-{n}",
            name,
            DeviceKind.GPU,
            n,
            watts + 10 * n,
            watts + 10 * n - 5,
            watts + 10 * n + 20,
        )
        for n in range(devices)
    )
    in_flight = np.minimum(second + 1, 8.0)
    others = np.where(second > bins - 20, 3.0, 0.0)
    reason = "" if devices else "no meter was found"
    return PowerTimeline(1_700_000_000.0, 1.0, -1, powers, in_flight, others, reason)


@pytest.fixture
def make_timeline() -> Callable[..., PowerTimeline]:
    return sample_timeline


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """``make_sweep(name="sweep", **how)`` writes ``<tmp_path>/results/<name>`` and returns it."""

    def make(name: str = "sweep", **how: Any) -> Path:
        return write_sweep(tmp_path / "results" / name, **how)

    return make
