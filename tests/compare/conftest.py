"""Runs to compare: written by the store, so that their files are what users have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalray.store import SweepStore
from evalray.types import EvalRecord, Generation, Outcome, RunConfig, Score, Timeline

WriteRun = Callable[..., Path]

_OUTCOMES = {
    "+": Outcome.CORRECT,
    "-": Outcome.INCORRECT,
    "u": Outcome.UNPARSED,
    "j": Outcome.JUDGE_ERROR,
    "e": Outcome.ENGINE_ERROR,
}


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Write a run whose epochs' verdicts are given as text, a character a record; returns its directory.

    ``+`` correct, ``-`` wrong, ``u`` unparsed, ``j`` judge error, ``e`` engine error.
    """

    def write(
        sweep: str,
        *epochs: str,
        model: str = "m",
        benchmark: str = "bench",
        first: int = 0,
        scores: Sequence[float] | None = None,
        subjects: Sequence[str] = ("algebra", "biology"),
        reference: str = "gold",
        latency: float = 1.0,
        tokens: int = 10,
        scorer: str = "s1",
        info: dict[str, Any] | None = None,
        **config: Any,
    ) -> Path:
        settings = RunConfig(
            benchmark,
            "jarvis-direct",
            model,
            epochs=len(epochs),
            max_error_rate=1.0,
            scorer="number",
            **config,
        )
        facts = {"engine": "mock", "prompt_hash": "p1", "data_digest": "d1", **(info or {})}
        with SweepStore.open(tmp_path / sweep) as store:
            run = store.open_run(
                settings,
                fingerprint=f"{benchmark}-{model}".encode().hex(),
                scorer_fingerprint=scorer,
                num_records=len(epochs[0]),
                info={key: value for key, value in facts.items() if value is not None},
            )
            for epoch, verdicts in enumerate(epochs):
                for position, verdict in enumerate(verdicts):
                    record = EvalRecord(
                        f"r{first + position}",
                        "question",
                        f"{reference} {first + position}",
                        "reasoning",
                        subjects[position % len(subjects)],
                    )
                    failed = verdict == "e"
                    generation = Generation(
                        raw_text="x",
                        model_answer="x",
                        prompt_tokens=5,
                        completion_tokens=tokens,
                        cost_usd=0.001 * tokens,
                        timeline=Timeline(latency_seconds=latency + position / 1000),
                        error="boom" if failed else None,
                        error_kind="engine" if failed else None,
                    )
                    run.append_generation(position, epoch, 1, record, generation)
                    if not failed:
                        grade = None if scores is None else scores[position]
                        run.append_score(position, epoch, record.record_id, Score(_OUTCOMES[verdict], grade))
            run.finalize()
            return run.directory

    return write
