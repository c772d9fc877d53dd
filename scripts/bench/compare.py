"""Time and memory of ``evalray compare`` on two large runs.  Prints one line, writes JSON with ``--out``.

    python scripts/bench/compare.py [--records 100000] [--epochs 1] [--form parquet|jsonl]

Rows are written by the store's own writer, with prompts and answers of ordinary length.  The target for
100,000 rows is 10 s and 1 GiB, interpreter and imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from evalray.store.rows import RowWriter
from evalray.types import EvalResult, Outcome

SUBJECTS = [f"subject {number}" for number in range(72)]


def write_run(folder: Path, name: str, records: int, epochs: int, accuracy: float, seed: int) -> None:
    draw = random.Random(seed)
    with (folder / f"{name}.jsonl").open("wb") as jsonl, (folder / f"{name}.parquet").open("wb") as parquet:
        writer = RowWriter(jsonl, parquet)
        for position in range(records):
            for epoch in range(epochs):
                right = draw.random() < accuracy
                tokens = draw.randrange(50, 400)
                writer.write(
                    EvalResult(
                        record_id=f"record-{position}",
                        benchmark="bench",
                        model=name,
                        model_answer="word " * tokens,
                        is_correct=right,
                        score=float(right),
                        outcome=Outcome.CORRECT if right else Outcome.INCORRECT,
                        latency_seconds=draw.random(),
                        ttft=draw.random() / 10,
                        prompt_tokens=200,
                        completion_tokens=tokens,
                        throughput_tok_per_sec=draw.random() * 100,
                        cost_usd=tokens * 1e-6,
                        energy_joules=draw.random() * 50,
                        prompt="question " * 100,
                        reference=str(position),
                        subject=SUBJECTS[position % len(SUBJECTS)],
                        epoch=epoch,
                        position=position,
                    )
                )
        writer.close()


def measure(*arguments: str) -> tuple[float, float, int, int]:
    """Wall seconds, CPU seconds, peak resident bytes and exit code of one command."""
    command = [sys.executable, "-m", "evalray", *arguments]
    started = time.perf_counter()
    process = os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - started
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--form", choices=("parquet", "jsonl"), default="parquet")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(("a", "b")):
            write_run(Path(folder), name, options.records, options.epochs, 0.6 + 0.01 * number, number)
        files = [str(Path(folder) / f"{name}.{options.form}") for name in ("a", "b")]
        seconds, cpu_seconds, peak, code = measure("compare", *files, "--json")
    result = {
        "records": options.records,
        "epochs": options.epochs,
        "form": options.form,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_mib": round(peak / 2**20, 1),
        "exit_code": code,
        "met": code == 0 and seconds <= 10 and peak <= 2**30,
    }
    print(json.dumps(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
