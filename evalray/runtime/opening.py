"""Before a cell runs: its data loaded, its journal opened, and what ``run.json`` says of both.  Blocks."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import Any

from evalray.datasets import DatasetProvider, open_dataset
from evalray.engines.base import EngineConfig
from evalray.plan import PlannedRun
from evalray.prompts import fewshot_messages, prompt_hash
from evalray.runtime.actor import find_engine
from evalray.runtime.scoring import RunScorer
from evalray.store import RunStore, SweepStore, run_fingerprint
from evalray.types import RunConfig
from evalray.wording import bad_rows_left_out, counted

#: Directories are chosen by name, one run at a time.
_opening = threading.Lock()


@dataclass(slots=True, frozen=True)
class OpenedRun:
    """What a cell works with.  ``provider`` is ``None`` for a stored run, which has nothing to generate."""

    store: RunStore
    provider: DatasetProvider | None = None
    head: tuple[dict[str, str], ...] = ()
    """Messages before each record's own: system prompt and worked examples."""


def open_planned_run(
    planned: PlannedRun, engine: EngineConfig, scorer: RunScorer, sweep: SweepStore
) -> OpenedRun:
    """Raises :class:`DatasetError`, :class:`ConfigError` or :class:`StoreError`."""
    config, benchmark = planned.config, planned.benchmark
    if planned.stored is not None:
        with _opening:
            return OpenedRun(planned.stored.reopen(sweep, config, scorer.fingerprint, _scoring_info(scorer)))
    assert benchmark is not None
    provider = planned.provider or open_dataset(benchmark, config)
    digest = _digest(provider, config) if planned.provider is not None else ""
    provider.load(max_samples=config.max_samples, split=config.dataset_split, seed=config.seed)
    head = [{"role": "system", "content": config.system_prompt}] if config.system_prompt else []
    digest, prompt = digest or provider.digest(), prompt_hash(benchmark, config)
    fingerprint = run_fingerprint(
        config,
        engine=engine.engine,
        engine_args=find_engine(engine.engine).answer_args(engine.engine_args),
        prompt_hash=prompt,
        data_digest=digest,
    )
    info = {
        "engine": engine.engine,
        "category": benchmark.category,
        "data": config.data or benchmark.data_path,
        "data_digest": digest,
        "prompt_hash": prompt,
        **data_info(provider, config),
        **_scoring_info(scorer),
    }
    with _opening:
        store = sweep.open_run(
            config,
            fingerprint=fingerprint,
            scorer_fingerprint=scorer.fingerprint,
            num_records=provider.size(),
            info=info,
        )
    return OpenedRun(store, provider, (*head, *fewshot_messages(benchmark, config.num_fewshot)))


def data_info(provider: DatasetProvider, config: RunConfig) -> dict[str, Any]:
    """What ``run.json`` says of rows that were left out, so far, and of fewer records than were asked for."""
    count = provider.bad_row_count
    bad = bad_rows_left_out(count, [f"{row.where}: {row.reason}" for row in provider.bad_rows])
    usable, wanted = provider.size(), config.max_samples
    fewer = []
    if wanted is not None and usable < wanted and config.record_ids is None:
        have = counted(usable, "record that can be used is", "records that can be used are")
        fewer = [f"{have} in the data, fewer than max_samples = {wanted:,}"]
    return {"bad_rows": count, "warnings": [*provider.warnings, *bad, *fewer]}


def _scoring_info(scorer: RunScorer) -> dict[str, Any]:
    """What ``run.json`` says of how answers are scored."""
    judge = scorer.judge
    return {
        "summary_rates": dict(scorer.scorer.summary_rates),
        "judge": judge.identity() if judge is not None else None,
    }


def _digest(provider: DatasetProvider, config: RunConfig) -> str:
    """Hash of all the data of a provider made in Python: its own, else that of its records.

    Of all, not of those selected: more samples of the same data are the same run.
    """
    provider.load(max_samples=None, split=config.dataset_split, seed=config.seed)
    if own := provider.digest():
        return own
    digest = hashlib.sha256()
    for record in provider.iter_records():
        line = json.dumps([record.record_id, record.problem, record.reference])
        digest.update(line.encode("ascii") + b"\n")
    return digest.hexdigest()
