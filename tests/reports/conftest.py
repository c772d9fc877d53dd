"""A sweep directory as the real store writes it, for any outcomes and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from evalray.store import SweepStore, run_fingerprint
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


@pytest.fixture
def make_sweep(tmp_path: Path) -> MakeSweep:
    """``make_sweep(name="sweep", **how)`` writes ``<tmp_path>/results/<name>`` and returns it."""

    def make(name: str = "sweep", **how: Any) -> Path:
        return write_sweep(tmp_path / "results" / name, **how)

    return make
