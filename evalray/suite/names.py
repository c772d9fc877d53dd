"""Names that become files and folders: never empty, never outside the folder they belong in."""

from __future__ import annotations

import hashlib
import re

#: Leaves room for a benchmark's name and a suffix within a file system's 255 bytes.
_MOST_BYTES = 120

#: What else lies beside the sweeps: MLflow's store with its artifacts, and the response cache.
_TAKEN = ("mlflow.db", "mlartifacts", ".cache", "mlflow.db-journal", "mlflow.db-shm", "mlflow.db-wal")

_UNSAFE = re.compile(r"[^\w.+=@,-]+")


def slug(name: str) -> str:
    """``name`` as part of a file name: ``/`` and ``:`` become ``-``, as does all that is unsafe.

    A name that is too long, or of which nothing is left, ends in a short hash of the whole.
    """
    safe = _UNSAFE.sub("-", name.replace("/", "-").replace(":", "-").strip()).lstrip(".-").rstrip(".")
    encoded = safe.encode("utf-8", "replace")
    if safe and len(encoded) <= _MOST_BYTES:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = encoded[: _MOST_BYTES - 9].decode("utf-8", "ignore")
    return f"{kept}-{digest}" if kept else digest


def folder_name_problem(name: str) -> str | None:
    """Why ``name`` cannot name a folder of results, or ``None``."""
    if not name.strip() or not name.isprintable():
        return "must have printable characters"
    if any(character in name for character in "/\\") or name.strip(". ") == "":
        return "must be a plain name, not a path"
    if name.strip().lower() in _TAKEN or slug(name).lower() in _TAKEN:
        return "is taken: the tracking store and the cache lie beside the results"
    return None
