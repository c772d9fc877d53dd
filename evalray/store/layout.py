"""Names of the files of a run, and what ``run.json`` says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from evalray.errors import StoreError
from evalray.store.jsonlines import read_json, redact, write_json
from evalray.types import RunConfig

RUN_FORMAT = 1


@dataclass(slots=True, frozen=True)
class RunFiles:
    """Where everything of one run is.  ``directory`` need not exist."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def manifest(self) -> Path:
        return self.directory / "run.json"

    @property
    def generations(self) -> Path:
        return self.directory / "generations.jsonl"

    @property
    def scores(self) -> Path:
        return self.directory / "scores.jsonl"

    @property
    def activity(self) -> Path:
        return self.directory / "activity.jsonl"

    @property
    def skipped(self) -> Path:
        return self.directory / "skipped.jsonl"

    @property
    def results(self) -> Path:
        return self.directory.with_name(f"{self.name}.jsonl")

    @property
    def parquet(self) -> Path:
        return self.directory.with_name(f"{self.name}.parquet")

    @property
    def summary(self) -> Path:
        return self.directory.with_name(f"{self.name}.summary.json")


@dataclass(slots=True)
class RunManifest:
    """What ``run.json`` holds: the resolved configuration and what was planned last.

    ``info`` is the caller's; the summary reads ``engine``, ``category``, ``bad_rows``, ``warnings``
    and ``summary_rates`` (name of a rate to the scoring metadata's key) from it where they are there.
    """

    config: RunConfig
    fingerprint: str
    scorer_fingerprint: str
    num_records: int
    epochs: int
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        return str(self.info.get("engine") or self.config.engine_key or "")

    @property
    def scorer(self) -> str:
        return self.config.scorer or str(self.info.get("scorer") or "")

    @property
    def planned(self) -> int:
        """Samples: records times epochs."""
        return self.num_records * self.epochs

    def write(self, path: Path) -> None:
        """Raises :class:`StoreError`.  Secrets are left out."""
        write_json(path, {"format": RUN_FORMAT, **redact(asdict(self))})

    @classmethod
    def read(cls, path: Path) -> RunManifest:
        """Raises :class:`StoreError` where the file is missing, damaged or of a later version."""
        value = read_json(path)
        version = value.get("format", 0)
        if isinstance(version, int) and version > RUN_FORMAT:
            raise StoreError(f"{path}: written by a later version of evalray; upgrade evalray")
        known = {f.name for f in fields(RunConfig)}
        try:
            config = RunConfig(**{k: v for k, v in value["config"].items() if k in known})
            return cls(
                config=config,
                fingerprint=str(value["fingerprint"]),
                scorer_fingerprint=str(value["scorer_fingerprint"]),
                num_records=int(value["num_records"]),
                epochs=int(value["epochs"]),
                info=dict(value.get("info") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"{path}: incomplete ({error!r}); restore it or start anew with --fresh"
            ) from error
