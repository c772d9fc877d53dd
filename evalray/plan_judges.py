"""Who judges which run: a model of the suite, or ``[judge]``'s engine, on actors of its own.

A judge whose name is one of ``[[models]]`` is run as that entry says, unless ``[judge]`` itself says
how the model it names is run.  Every other one runs on ``[judge]``'s engine: ``cloud`` where it
gives neither an engine nor an address nor a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from evalray.deployments import Deployment, JudgeDeployment, PlannedRun, deploy_judge
from evalray.errors import ConfigError
from evalray.scorers import Scorer
from evalray.suite.engine_choice import CLOUD, choose_engine
from evalray.suite.models import EngineSettings, Judge, ModelEntry, Suite
from evalray.suite.overrides import Overrides
from evalray.suite.registry import Registry

#: Tokens allowed for what a judge reads: a question, a reference and an answer, shortened where they are long.
JUDGE_PROMPT_TOKENS = 16_384
_PLACES = ("engine", "provider", "path", "base_url")
_NO_JUDGE = (
    "no judge model is given: answers that no rule decides stay unjudged ([judge] model or --judge-model)"
)


@dataclass
class JudgeFinder:
    """Makes one :class:`JudgeDeployment` per judge model."""

    section: Judge
    models: list[ModelEntry]
    registry: Registry
    folder: Path
    joins_cluster: bool
    engine: str | None = None
    base_url: str | None = None

    def __post_init__(self) -> None:
        self._made: dict[tuple[str, str | None, str | None], JudgeDeployment] = {}
        self.found: list[JudgeDeployment] = []

    def find(self, name: str, engine: str | None = None, base_url: str | None = None) -> JudgeDeployment:
        """The judge of that name; ``engine`` and ``base_url`` say where a run asked it before."""
        judge = self._judge(name, self.engine, self.base_url)
        usual = judge.deployment.engine_config
        other_engine = engine if engine not in (None, usual.engine) else None
        other_url = base_url if base_url not in (None, usual.base_url) else None
        if other_engine is not None or other_url is not None:
            judge = self._judge(name, other_engine or self.engine, base_url)
        if not any(judge is one for one in self.found):
            self.found.append(judge)
        return judge

    def _judge(self, name: str, engine: str | None, base_url: str | None) -> JudgeDeployment:
        key = (name, engine, base_url)
        if key not in self._made:
            finder = replace(self, engine=engine, base_url=base_url)
            self._made[key] = finder._make(name)
        return self._made[key]

    def _make(self, name: str) -> JudgeDeployment:
        entry = self._entry(name)
        choice = choose_engine(entry, self.registry, self.folder)
        deployment, notes = deploy_judge(
            entry,
            choice,
            max_tokens=self.section.max_tokens,
            prompt_tokens=JUDGE_PROMPT_TOKENS,
            joins_cluster=self.joins_cluster,
        )
        notes = [f"judge {name}: {note}" for note in (*self._unused(entry), *choice.notes, *notes)]
        if choice.unsupported:
            notes.append(f"judge {name} cannot be asked: {choice.unsupported}")
        return JudgeDeployment(
            deployment, self.section.temperature, self.section.max_tokens, notes, choice.unsupported
        )

    def _unused(self, entry: ModelEntry) -> list[str]:
        """The keys of ``[judge]`` that do not apply to this judge, where there are any."""
        given = self.section.model_fields_set & EngineSettings.model_fields.keys()
        if any(entry is model for model in self.models):
            unused, why = given, f"{entry.name} is run as [[models]] says"
        else:
            unused, why = given - entry.model_fields_set, f"the engine is {entry.engine}"
            if self.engine is not None:
                unused |= {key for key in given & {"engine"} if self.section.engine != self.engine}
        names = ", ".join(sorted(unused))
        return [f"[judge] {names}: not used, as {why}"] if names else []

    def _entry(self, name: str) -> ModelEntry:
        section = self.section
        says_where = name == section.model and any(getattr(section, key) is not None for key in _PLACES)
        listed = next((model for model in self.models if model.name == name), None)
        if listed is not None and not says_where and self.engine is None and self.base_url is None:
            return listed
        settings = section.model_dump(include=set(EngineSettings.model_fields), exclude_unset=True)
        if self.engine is not None:
            # Another engine: where the first one was, and its arguments, do not concern it.
            for key in (*_PLACES, "engine_args", "api_key_env"):
                settings.pop(key, None)
            settings["engine"] = self.engine
        if self.base_url is not None:
            settings["base_url"] = self.base_url
        if not any(settings.get(key) is not None for key in _PLACES):
            settings["engine"] = CLOUD
        return ModelEntry(name=name, **settings)


def assign_judges(
    suite: Suite,
    overrides: Overrides,
    registry: Registry,
    deployments: Iterable[Deployment],
    *,
    joins_cluster: bool,
) -> list[JudgeDeployment]:
    """Give every run whose scorer asks a judge its judge; returns the judges, each once."""
    finder = JudgeFinder(
        suite.judge,
        suite.models,
        registry,
        suite.folder,
        joins_cluster,
        overrides.judge_engine,
        overrides.judge_base_url,
    )
    for deployment in deployments:
        for run in deployment.runs:
            assign_judge(run, finder)
    return finder.found


def assign_judge(run: PlannedRun, finder: JudgeFinder) -> None:
    """Find the judge of one run, if its scorer asks one, and note what is missing."""
    scorer = run.scorer or _scorer_of(run, finder.registry)
    if scorer is None or not scorer.uses_judge or _brings_its_own(run):
        return
    name = run.config.judge_model
    if not name:
        if scorer.needs_judge:
            run.notes.append(_NO_JUDGE)
        return
    run.judge = finder.find(name, run.config.judge_engine, run.config.judge_base_url)
    engine = run.judge.deployment.engine_config
    run.config.judge_engine, run.config.judge_base_url = engine.engine, engine.base_url
    run.notes += run.judge.notes


def _brings_its_own(run: PlannedRun) -> bool:
    """A scorer that was built in Python has its backend already."""
    return run.scorer is not None and run.scorer.needs_backend


def _scorer_of(run: PlannedRun, registry: Registry) -> Scorer | None:
    """The run's scorer; ``None`` where it cannot be built, which is said where it is built for use."""
    if registry.build_scorer is None:
        return None
    try:
        built = registry.build_scorer(run.config.scorer, run.config.scorer_args)
    except ConfigError:
        return None
    return built if isinstance(built, Scorer) else None
