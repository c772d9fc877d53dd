"""Python's log and warnings, put where the progress display can show them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalray.cli.display import Display


class _DisplayHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._display.message(self.format(record))
        except Exception:  # noqa: BLE001 - logging reports its own failures this way
            self.handleError(record)


@contextmanager
def logs_to(display: Display, *, verbose: bool) -> Iterator[None]:
    """Within it, log records (ours from DEBUG with ``verbose``, others' from WARNING) go to ``display``."""
    root, ours = logging.getLogger(), logging.getLogger("evalray")
    level = ours.level
    handler = _DisplayHandler(display)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        ours.setLevel(level)
        root.removeHandler(handler)
