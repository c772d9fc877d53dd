"""All judges of a sweep, and the scorers that ask them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, is_dataclass
from typing import Any

from evalray.errors import ConfigError, Problem
from evalray.plan import JudgeDeployment, Plan, PlannedRun
from evalray.runtime.judge_backend import JudgeBackend
from evalray.runtime.judge_pool import JudgePool, JudgeSurroundings
from evalray.runtime.policy import RuntimePolicy
from evalray.runtime.scoring import RunScorer
from evalray.scorers import Scorer, ScorerSpec, build_scorer, scorer_fingerprint


class Judges:
    """One :class:`JudgePool` per judge of the plan; each starts when it is first asked."""

    def __init__(self, plan: Plan, policy: RuntimePolicy) -> None:
        self._pools = {id(judge): JudgePool(judge, policy) for judge in plan.judges}
        self._backends: list[JudgeBackend] = []

    def scorers_of(self, plan: Plan) -> list[list[RunScorer]]:
        """For every run of every deployment, before anything costs anything.

        Raises :class:`~evalray.errors.ConfigError` with every problem, each once.
        """
        problems: list[Problem] = []
        built: list[list[RunScorer]] = []
        for deployment in plan.deployments:
            of_deployment = []
            for planned in deployment.runs:
                try:
                    of_deployment.append(self.scorer_of(planned))
                except ConfigError as error:
                    problems += [problem for problem in error.problems if problem not in problems]
            built.append(of_deployment)
        if problems:
            raise ConfigError(problems)
        return built

    def scorer_of(self, planned: PlannedRun) -> RunScorer:
        """The run's scorer, built, with its judge.  Raises :class:`~evalray.errors.ConfigError`."""
        config, benchmark = planned.config, planned.benchmark
        name = config.scorer or (benchmark.scorer if benchmark else "")
        args = config.scorer_args
        judge = self._of(planned.judge)
        backend = None
        scorer = planned.scorer
        if scorer is None:
            backend = JudgeBackend(judge) if judge is not None else None
            scorer = build_scorer(
                name, args, judge_backend=backend, judge_model=judge.model if judge is not None else ""
            )
            if backend is not None and scorer.needs_backend:
                self._backends.append(backend)
            else:
                backend = None
        args = args if planned.scorer is None else _state(scorer)
        fingerprint = scorer_fingerprint(scorer, args, judge=judge.identity() if judge is not None else None)
        return RunScorer(
            scorer,
            ScorerSpec(name, args),
            fingerprint,
            judge,
            backend,
            from_python=planned.scorer is not None,
        )

    def _of(self, judge: JudgeDeployment | None) -> JudgePool | None:
        return self._pools[id(judge)] if judge is not None else None

    def open(self, loop: asyncio.AbstractEventLoop, around: JudgeSurroundings) -> None:
        for pool in self._pools.values():
            pool.open(around)
        for backend in self._backends:
            backend.open(loop)

    def stop(self) -> None:
        """Ask nothing more; what is not asked is judged when the sweep is continued."""
        for pool in self._pools.values():
            pool.stop()

    def kill(self) -> None:
        for pool in self._pools.values():
            pool.kill()

    async def close(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


def _state(scorer: Scorer) -> dict[str, Any]:
    """The plain values that a scorer made in Python holds: with others it is another scorer."""
    held = asdict(scorer) if is_dataclass(scorer) else dict(getattr(scorer, "__dict__", {}))
    plain = (str, int, float, bool, list, tuple, dict, type(None))
    return {name: value for name, value in held.items() if isinstance(value, plain)}
