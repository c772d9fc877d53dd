"""The command line: one file per command group, no logic.

Importing this package imports nothing heavy, and Typer only once interrupts are handled; each command
imports what it needs when it runs.
"""

from __future__ import annotations

from evalray.cli.entry import main

__all__ = ["main"]
