"""The command line: one file per command group, no logic.

Importing this package imports Typer and nothing heavy; each command imports what it needs when it runs.
"""

from __future__ import annotations

from evalray.cli.app import app
from evalray.cli.entry import main

__all__ = ["app", "main"]
