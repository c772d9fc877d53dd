"""Output tokens per second through the ``llamacpp`` engine, against xllamacpp called directly.

    python scripts/bench/llamacpp.py [--pairs 5] [--questions 40] [--slots 8] [--max-tokens 128] [--data FILE]

Both answer the same GSM8K questions with the same model, slots and sampling.  Both are timed from the
first request to the last answer; loading the model is in neither.  The direct call streams too: the
plain one holds the interpreter and is many times slower.  Without ``--data`` the questions are
those that the benchmark folder carries.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import MODEL, gsm8k_suite, report, rows_of, run_evalray, summary, tokens_per_second

DIRECT = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
import xllamacpp
from evalray.engines.model_path import resolve_model_path

prompts, slots, max_tokens, context = json.load(sys.stdin)
params = xllamacpp.CommonParams()
params.model.path = str(resolve_model_path(sys.argv[1]))
params.n_parallel = slots
params.n_ctx = slots * context
params.ctx_shift = False
params.verbosity = -1
params.cache_ram_mib = 0
server = xllamacpp.Server(params)

def ask(prompt):
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "temperature": 0.0,
            "stream": True, "stream_options": {"include_usage": True}}
    pieces = []
    server.handle_chat_completions(json.dumps(body), lambda piece: pieces.append(piece) and False)
    return next(usage["completion_tokens"] for usage in map(usage_of, reversed(pieces)) if usage)

def usage_of(piece):
    if isinstance(piece, (bytes, str)):
        piece = json.loads(piece)
    return piece.get("usage")

started = time.perf_counter()
with ThreadPoolExecutor(slots) as pool:
    tokens = sum(pool.map(ask, prompts))
print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - started}))
"""


def direct(prompts: list[str], options: argparse.Namespace, context: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", DIRECT, MODEL],
        input=json.dumps([prompts, options.slots, options.max_tokens, context]),
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    return figures["tokens"] / figures["seconds"]


def through_evalray(options: argparse.Namespace, sweep: str, folder: Path) -> tuple[float, list[str], dict]:
    run = run_evalray(gsm8k_suite(options), folder, "--sweep-id", sweep)
    rows = rows_of(run)
    run_info = json.loads((folder / "results" / sweep / "gsm8k_smollm2" / "run.json").read_text())
    return tokens_per_second(rows), [row["prompt"] for row in rows], run_info


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    context = options.max_tokens + 2048

    ratios, ours_rates, direct_rates = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        for pair in range(options.pairs):
            ours, prompts, _ = through_evalray(options, f"pair-{pair}", Path(temporary))
            bare = direct(prompts, options, context)
            ratios.append(ours / bare)
            ours_rates.append(ours)
            direct_rates.append(bare)
            print(
                f"pair {pair}: evalray {ours:.1f} tok/s, direct {bare:.1f} tok/s, {ratios[-1]:.3f}",
                flush=True,
            )
    report(
        "llamacpp",
        {
            "ratio_to_direct": statistics.median(ratios),
            "ratios": summary(ratios),
            "evalray_tokens_per_second": summary(ours_rates),
            "direct_tokens_per_second": summary(direct_rates),
            "target": {"ratio_to_direct": ">= 0.97"},
        },
    )


if __name__ == "__main__":
    main()
