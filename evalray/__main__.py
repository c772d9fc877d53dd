"""``python -m evalray``."""

from __future__ import annotations

from evalray.cli.entry import main

if __name__ == "__main__":
    main()
