"""The few things EvalRay asks of MLflow, by explicit run id only.

MLflow's *active run* belongs to a thread and its import takes seconds, so neither is used here: a
:class:`Store` is opened lazily, every call names its run, every failure is a one-line
:class:`~evalray.errors.TrackingError`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import textwrap
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalray.errors import TrackingError
from evalray.tracking.limits import MAX_TAG_VALUE, batches, fit, legal_keys, split_metrics, storable
from evalray.tracking.redact import redact_text
from evalray.tracking.uri import artifact_root, mask_uri, store_problem

if TYPE_CHECKING:
    from mlflow.entities import Run

KEY_TAG = "evalray.key"
SYNCED_TAG = "evalray.synced"
NOTE_TAG = "mlflow.note.content"
PARENT_TAG = "mlflow.parentRunId"
TABLES_TAG = "mlflow.loggedArtifacts"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+")

_QUIET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


@contextlib.contextmanager
def tracking_errors(uri: str) -> Iterator[None]:
    """Whatever MLflow, its database or its transport raises becomes one line without secrets."""
    try:
        yield
    except (TrackingError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except Exception as error:
        if unreachable := _unreachable(error):
            raise TrackingError(f"MLflow at {mask_uri(uri)} cannot be reached: {unreachable}") from error
        text = redact_text(" ".join(str(error).split()))
        said = textwrap.shorten(text, 300, placeholder=" …") if " " in text[:250] else text[:300]
        raise TrackingError(f"MLflow at {mask_uri(uri)}: {type(error).__name__}: {said}") from error


#: What a transport's exceptions say where there was no server to talk to, and what it means.
_NO_SERVER = (
    ("Connection refused", "nothing listens there"),
    ("Name or service not known", "its name is unknown"),
    ("Temporary failure in name resolution", "its name is unknown"),
    ("nodename nor servname", "its name is unknown"),
    ("timed out", "it did not answer in time"),
    ("No route to host", "there is no route to it"),
    ("Network is unreachable", "there is no network"),
)
_NO_SERVER_ERRORS = {"ConnectionError", "ConnectTimeout", "ReadTimeout", "ConnectionRefusedError"}


def _unreachable(error: BaseException) -> str:
    """Why no server answered; empty where one did.  MLflow wraps what its transport raises."""
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            break
        if type(cause).__name__ in _NO_SERVER_ERRORS:
            return next((what for sign, what in _NO_SERVER if sign in str(error)), "the connection failed")
        cause = cause.__cause__ or cause.__context__
    if "HTTPConnectionPool" in str(error) or "HTTPSConnectionPool" in str(error):
        return next((what for sign, what in _NO_SERVER if sign in str(error)), "the connection failed")
    return ""


class Store:
    """One tracking store, server or database."""

    def __init__(self, uri: str) -> None:
        """Imports MLflow and connects.  Raises :class:`~evalray.errors.TrackingError`."""
        self.uri = uri
        if (problem := store_problem(uri)) is not None:
            raise TrackingError(f"MLflow at {mask_uri(uri)}: {problem}")
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise TrackingError(f"MLflow cannot be imported ({error}); pip install mlflow") from error
        for name in ("mlflow", "alembic", "urllib3.connectionpool"):
            logging.getLogger(name).setLevel(logging.ERROR)
        with tracking_errors(uri):
            if (root := artifact_root(uri)) is not None:
                root.parent.mkdir(parents=True, exist_ok=True)
            self._client = MlflowClient(tracking_uri=uri)

    def experiment(self, name: str) -> str:
        """The id of the experiment of this name, made where there is none."""
        with tracking_errors(self.uri):
            found = self._client.get_experiment_by_name(name)
            if found is None:
                root = artifact_root(self.uri)
                location = (root / _folder(name)).as_uri() if root is not None else None
                try:
                    return str(self._client.create_experiment(name, artifact_location=location))
                except Exception:
                    # Another sweep made it in this very moment.
                    found = self._client.get_experiment_by_name(name)
                    if found is None:
                        raise
            if found.lifecycle_stage == "deleted":
                raise TrackingError(
                    f"MLflow's experiment {name!r} is deleted; restore it with `mlflow experiments restore -x "
                    f"{found.experiment_id}` or set [tracking] experiment to another name"
                )
            return str(found.experiment_id)

    def find_run(self, experiment_id: str, key: str) -> Run | None:
        """The run tagged with this key, the oldest where there are several."""
        found = self._search(experiment_id, f"tags.`{KEY_TAG}` = '{_quoted(key)}'")
        return found[0] if found else None

    def children(self, experiment_id: str, parent_id: str) -> dict[str, Run]:
        """The parent's runs by their key."""
        found = self._search(experiment_id, f"tags.`{PARENT_TAG}` = '{_quoted(parent_id)}'")
        by_key: dict[str, Run] = {}
        for run in found:
            by_key.setdefault(run.data.tags.get(KEY_TAG, ""), run)
        return by_key

    def create_run(
        self, experiment_id: str, name: str, tags: Mapping[str, str], started_at: float | None
    ) -> Run:
        """A new run, ``RUNNING`` since ``started_at`` (Unix seconds; now where unknown)."""
        fitting = {key: fit(value, MAX_TAG_VALUE) for key, value in tags.items()}
        with tracking_errors(self.uri):
            start = int((time.time() if started_at is None else started_at) * 1000)
            return self._client.create_run(
                experiment_id, start_time=start, tags=fitting, run_name=fit(redact_text(name), 200)
            )

    def log(
        self,
        run_id: str,
        *,
        metrics: Mapping[str, float | int | None] | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        at: float | None = None,
        step: int = 0,
    ) -> None:
        """Metrics, parameters and tags in as few requests as the limits allow."""
        from mlflow.entities import Metric, Param, RunTag

        finite, nonfinite = split_metrics(metrics or {})
        all_tags = {**(tags or {}), **nonfinite}
        renamed = legal_keys(params or {})
        legal_params = {renamed[key]: value for key, value in (params or {}).items()}
        milliseconds = int((time.time() if at is None else at) * 1000)
        with tracking_errors(self.uri):
            for batch in batches(finite, legal_params, all_tags):
                self._client.log_batch(
                    run_id,
                    metrics=[Metric(key, value, milliseconds, step) for key, value in batch.metrics.items()],
                    params=[Param(key, value) for key, value in batch.params.items()],
                    tags=[RunTag(key, value) for key, value in batch.tags.items()],
                    synchronous=True,
                )

    def log_dataset(self, run_id: str, *, name: str, digest: str, source: Mapping[str, Any]) -> None:
        """What the run was measured on, in MLflow's own place for it."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=fit(name, 500),
            digest=storable(digest)[:36],
            source_type="evalray",
            source=json.dumps(source, default=str)[:60_000],
        )
        with tracking_errors(self.uri):
            self._client.log_inputs(
                run_id, datasets=[DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "eval")])]
            )

    def log_artifact(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Upload one file under its own name, in the place of an earlier one."""
        with tracking_errors(self.uri):
            self._client.log_artifact(run_id, str(path), folder)

    def resume(self, run_id: str) -> None:
        """Back to ``RUNNING``."""
        with tracking_errors(self.uri):
            self._client.update_run(run_id, status="RUNNING")

    def end(self, run_id: str, status: str, ended_at: float | None) -> None:
        """Set the final status, with the time it ended (Unix seconds; now where unknown)."""
        with tracking_errors(self.uri):
            end_time = None if ended_at is None else int(ended_at * 1000)
            self._client.set_terminated(run_id, status=status, end_time=end_time)

    def run_url(self, experiment_id: str, run_id: str) -> str | None:
        """The run's page, where the store is a server."""
        if not self.uri.startswith(("http://", "https://")):
            return None
        return f"{mask_uri(self.uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"

    def _search(self, experiment_id: str, condition: str) -> list[Run]:
        found: list[Run] = []
        token: str | None = None
        with tracking_errors(self.uri):
            while True:
                page = self._client.search_runs(
                    [experiment_id],
                    filter_string=condition,
                    max_results=1000,
                    order_by=["attributes.start_time ASC"],
                    page_token=token,
                )
                found += page
                token = page.token
                if not token:
                    return found


def _quoted(value: str) -> str:
    return value.replace("\\", "").replace("'", "")


def _folder(experiment: str) -> str:
    """A directory name for an experiment, whatever it is called."""
    digest = hashlib.sha256(experiment.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_UNSAFE.sub('-', experiment)[:60].strip('.-') or 'experiment'}-{digest}"
