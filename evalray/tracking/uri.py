"""Where a sweep is tracked, how to show that address without its password, and how to open it.

The default is an SQLite file beside the results, with its artifacts beside that: no service, no
setting.  An address is settled once per sweep: flag, then suite, then ``MLFLOW_TRACKING_URI``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from evalray.settings import scheme_problem

_DATABASE = "mlflow.db"
_ARTIFACTS = "mlartifacts"
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]+@(?=[^\s])")
_QUERY_SECRET = re.compile(r"(?i)([?&](?:[a-z_]*password|[a-z_]*token|api_?key|[a-z_]*secret)=)[^&#\s]+")
_SERVERS = ("http://", "https://", "databricks", "uc:")


def resolve_tracking_uri(
    output_dir: Path,
    *,
    flag: str | None = None,
    suite: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The tracking URI: ``flag``, else ``suite``, else ``MLFLOW_TRACKING_URI``, else SQLite.

    The default is ``sqlite:///<output_dir>/mlflow.db``.  A relative SQLite path is made absolute,
    because the address is used by processes with another working directory.
    """
    environment = os.environ if environment is None else environment
    chosen = flag or suite or environment.get("MLFLOW_TRACKING_URI")
    if not chosen:
        return f"sqlite:///{(output_dir.absolute() / _DATABASE).as_posix()}"
    if (path := sqlite_path(chosen)) is not None:
        return f"sqlite:///{path.absolute().as_posix()}"
    return chosen


def sqlite_path(uri: str) -> Path | None:
    """The file of an ``sqlite:///`` URI, ``None`` for any other."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def store_problem(uri: str) -> str | None:
    """Why the address cannot be opened whatever is tried, or ``None``: MLflow itself would try for minutes."""
    path = sqlite_path(uri)
    if path is not None and path.is_dir():
        return f"{path} is a directory, not a database; move it away or name another with --tracking-uri"
    return scheme_problem(uri)


def artifact_root(uri: str) -> Path | None:
    """``mlartifacts`` beside an SQLite store; ``None`` where the server decides."""
    path = sqlite_path(uri)
    return path.absolute().parent / _ARTIFACTS if path is not None else None


def is_server(uri: str) -> bool:
    """Whether the address is a tracking server rather than a store that is opened directly."""
    return uri.startswith(_SERVERS)


def mask_uri(text: str) -> str:
    """The text with ``user:password@`` and ``?password=`` in any address replaced by ``***``."""
    return _QUERY_SECRET.sub(r"\1***", _CREDENTIALS.sub("***@", text))


def ui_address(port: int) -> str:
    """Where that server's page shows runs.

    Its front page is that of MLflow's GenAI side, on which an experiment is its traces: nothing is to be seen there.
    """
    return f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"


def ui_command(uri: str, artifacts: Path | None = None, port: int = 5000) -> list[str]:
    """The command that serves a direct store at ``http://127.0.0.1:<port>``, runs and artifacts.

    ``artifacts`` is the root for experiments made through that page; runs know where their own
    artifacts are.  One worker: the page has one user.  A server URI needs no command: open it.
    """
    root = artifacts or artifact_root(uri) or Path(_ARTIFACTS).absolute()
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", uri),
        *("--default-artifact-root", root.as_uri()),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--workers", "1"),
    ]
