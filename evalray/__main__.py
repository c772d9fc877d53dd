"""``python -m evalray``."""

from __future__ import annotations

from evalray.cli import main

if __name__ == "__main__":
    main()
