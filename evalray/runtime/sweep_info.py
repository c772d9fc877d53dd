"""What ``sweep.json`` says of where and with what a sweep ran."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from typing import Any

from evalray.plan import Plan, plan_to_dict

_PACKAGES = ("evalray", "ray", "datasets", "aiohttp", "xllamacpp", "vllm", "math-verify", "pyarrow")


def sweep_info(plan: Plan) -> dict[str, Any]:
    """Plain data; the store leaves secrets out."""
    return {
        "sweep_id": plan.sweep_id,
        "name": plan.name,
        "description": plan.description,
        "experiment": plan.experiment,
        "started_at": time.time(),
        "suite": plan.suite,
        "plan": plan_to_dict(plan),
        "versions": versions(),
        "git_commit": git_commit(),
        "host": host_facts(),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter and are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def git_commit() -> str | None:
    """Of the folder the sweep was started in; with ``-dirty`` where tracked files were changed."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            timeout=3.0,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        dirty = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if dirty else commit


def host_facts() -> dict[str, Any]:
    memory = None
    with contextlib.suppress(ValueError, OSError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "hostname": platform.node(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": memory,
        "executable": sys.executable,
    }
