"""A small deterministic run: what a driver would write, without a driver."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from evalray.store import RunStore, SweepStore
from evalray.types import EvalRecord, Generation, Outcome, RunConfig, RunSummary, Score, Timeline

FINGERPRINT = "f" * 32
TIMING_FIELDS = {
    "started_at",
    "ended_at",
    "wall_seconds",
    "generation_seconds",
    "samples_per_second",
    "output_tokens_per_second",
}


def make_record(position: int) -> EvalRecord:
    return EvalRecord(
        f"r{position}",
        f"Question {position}: what is {position} + 1? é",
        str(position + 1),
        "reasoning",
        ["algebra", "biology"][position % 2],
        {"level": position},
    )


def make_generation(position: int, epoch: int = 0, **changes: Any) -> Generation:
    text = f"The answer is {position + 1} ({epoch}) \ud835"
    fields: dict[str, Any] = {
        "raw_text": f"<think>hm</think>{text}",
        "model_answer": text,
        "reasoning": "hm",
        "finish_reason": "stop",
        "prompt_tokens": 10 + position,
        "completion_tokens": 5,
        "timeline": Timeline(latency_seconds=0.5 + position / 100, ttft_seconds=0.1, itl_mean_seconds=0.02),
        "engine_id": "m/0",
    }
    return Generation(**{**fields, **changes})


def make_score(position: int, epoch: int = 0) -> Score:
    cycle = (Outcome.CORRECT, Outcome.INCORRECT, Outcome.CORRECT, Outcome.UNPARSED, Outcome.TRUNCATED)
    return Score(cycle[(position + epoch) % len(cycle)], metadata={"rule": "number"})


class Driver:
    """Does what is not done, in order, like the real one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generated: list[tuple[int, int]] = []
        self.scored: list[tuple[int, int]] = []

    def open(self, sweep: SweepStore, **changes: Any) -> RunStore:
        options: dict[str, Any] = {
            "num_records": 6,
            "epochs": 2,
            "scorer": "s1",
            "fingerprint": FINGERPRINT,
            "model": "m",
            "pass_k": [1, 2],
            **changes,
        }
        config = RunConfig("b", "jarvis-direct", options["model"], epochs=options["epochs"])
        config.pass_k = options["pass_k"]
        config.max_error_rate = options.get("max_error_rate", 0.1)
        config.grid_gco2e_per_kwh = options.get("grid")
        return sweep.open_run(
            config,
            fingerprint=options["fingerprint"],
            scorer_fingerprint=options["scorer"],
            num_records=options["num_records"],
            info=options.get("info", {"engine": "mock", "warnings": []}),
        )

    def work(self, run: RunStore, *, limit: int | None = None) -> None:
        run.begin_stretch()
        for position, epoch, record, _ in list(run.unscored()):
            self._score(run, position, epoch, record.record_id)
        for position in range(run.manifest.num_records):
            for epoch in range(run.manifest.epochs):
                if limit is not None and len(self.generated) >= limit:
                    return
                if not run.generation_done(position, epoch):
                    self.generated.append((position, epoch))
                    run.append_generation(
                        position, epoch, 1, make_record(position), make_generation(position, epoch)
                    )
                    self._score(run, position, epoch, f"r{position}")
        run.end_stretch()

    def _score(self, run: RunStore, position: int, epoch: int, record_id: str) -> None:
        self.scored.append((position, epoch))
        run.append_score(position, epoch, record_id, make_score(position, epoch))

    def execute(self, *, limit: int | None = None, **changes: Any) -> RunSummary:
        """Open, do what is missing, finalize, close."""
        with SweepStore.open(self.directory) as sweep:
            run = self.open(sweep, **changes)
            self.work(run, limit=limit)
            return run.finalize()


def without_timing(summary: RunSummary) -> dict[str, Any]:
    return {name: value for name, value in asdict(summary).items() if name not in TIMING_FIELDS}


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path / "sweep")


@pytest.fixture(scope="session")
def new_driver() -> type[Driver]:
    return Driver


@pytest.fixture(scope="session")
def comparable() -> Callable[[RunSummary], dict[str, Any]]:
    """Every field of a summary that does not depend on the clock."""
    return without_timing


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A sweep directory that ran through, never to be changed, and its summary."""
    directory = tmp_path_factory.mktemp("undisturbed") / "sweep"
    return directory, without_timing(Driver(directory).execute())


@pytest.fixture
def file_size_limit() -> Callable[[int], AbstractContextManager[None]]:
    """A context in which the kernel really refuses to let a file grow beyond so many bytes."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
