"""Driver memory: peak RSS with 200,000 records against 2,000.

python scripts/bench/memory.py [--large 200000] [--small 2000]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import mock_server, mock_suite, report, run_evalray, write_benchmark


def peak(count: int) -> int:
    with tempfile.TemporaryDirectory() as temporary, mock_server(0) as port:
        folder = Path(temporary)
        write_benchmark(folder / "benchmarks", count)
        run = run_evalray(mock_suite(port, in_flight=64), folder)
        assert run.report["runs"][0]["accuracy"] == 1.0, run.report
        return run.driver_peak_rss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=200_000)
    parser.add_argument("--small", type=int, default=2_000)
    options = parser.parse_args()
    small, large = peak(options.small), peak(options.large)
    report(
        "memory",
        {
            f"peak_rss_mib_{options.small}": small / 2**20,
            f"peak_rss_mib_{options.large}": large / 2**20,
            "growth_mib": (large - small) / 2**20,
            "target": {"growth_mib": "<= 30"},
        },
    )


if __name__ == "__main__":
    main()
