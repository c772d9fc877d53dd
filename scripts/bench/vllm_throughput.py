"""Output tokens per second through the ``vllm`` engine, against ``LLM.chat`` called directly.

    python scripts/bench/vllm_throughput.py CHECKPOINT [--pairs 3] [--questions 48] [--at-once 16]
        [--max-tokens 64] [--device cpu|gpu] [--data FILE]

Both answer the same GSM8K questions with the same checkpoint, batch, context and sampling, each in a
process of its own, in turn.  Both are timed from the first request to the last answer; loading the
model is in neither.  ``LLM.chat`` has all questions waiting in vLLM, so that a sequence that ends is
followed in the very next step; to compare like with like, EvalRay keeps an eighth more in flight than
the batch holds (which a run that measures the time to first token would not).  CHECKPOINT is a Hugging Face folder, such as smollm2_checkpoint.py writes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import report, run_evalray, summary

TARGET = 0.95

DIRECT = """
import json, sys, time
from vllm import LLM, SamplingParams

def main():
    prompts, arguments, max_tokens = json.load(sys.stdin)
    llm = LLM(use_tqdm_on_load=False, **arguments)
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    started = time.perf_counter()
    outputs = llm.chat(conversations, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    print(json.dumps({"tokens": tokens, "seconds": seconds}))

if __name__ == "__main__":
    main()
"""


def engine_arguments(options: argparse.Namespace) -> dict:
    arguments = {"max_model_len": options.max_tokens + 2048, "max_num_seqs": options.at_once}
    if options.device == "cpu":
        arguments |= {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
    return arguments


def direct(prompts: list[str], options: argparse.Namespace, folder: Path) -> dict:
    script = folder / "direct.py"
    script.write_text(DIRECT)
    arguments = {"model": str(options.checkpoint), **engine_arguments(options)}
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps([prompts, arguments, options.max_tokens]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{")))


def through_evalray(options: argparse.Namespace, sweep: str, folder: Path) -> tuple[dict, list[str]]:
    data = options.data.resolve() if options.data else "sample.jsonl"
    arguments = engine_arguments(options) | ({"device": "cpu"} if options.device == "cpu" else {})
    settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in arguments.items())
    suite = (
        f'[meta]\nname = "bench"\n[[models]]\nname = "bench-model"\nengine = "vllm"\n'
        f'path = "{options.checkpoint}"\nmax_concurrency = {options.at_once + max(1, options.at_once // 8)}\nengine_args = {{ {settings} }}\n'
        f'[[benchmarks]]\nname = "gsm8k"\ndata = "{data}"\nmax_samples = {options.questions}\n'
        f"max_tokens = {options.max_tokens}\nstop = []\n"
    )
    run = run_evalray(suite, folder, "--sweep-id", sweep)
    rows = [json.loads(line) for line in Path(run.report["runs"][0]["results"]).read_text().splitlines()]
    assert all(row["error"] is None for row in rows), [row["error"] for row in rows if row["error"]][:1]
    seconds = max(row["completed_at"] for row in rows) - min(row["sent_at"] for row in rows)
    tokens = sum(row["completion_tokens"] for row in rows)
    return {"tokens": tokens, "seconds": seconds}, [row["prompt"] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--questions", type=int, default=48)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    options.checkpoint = options.checkpoint.resolve()

    ratios, ours_rates, direct_rates = [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for pair in range(options.pairs):
            ours, prompts = through_evalray(options, f"pair-{pair}", folder)
            bare = direct(prompts, options, folder)
            ours_rates.append(ours["tokens"] / ours["seconds"])
            direct_rates.append(bare["tokens"] / bare["seconds"])
            ratios.append(ours_rates[-1] / direct_rates[-1])
            print(
                f"pair {pair}: evalray {ours_rates[-1]:.1f} tok/s ({ours['tokens']} tokens), "
                f"LLM.chat {direct_rates[-1]:.1f} tok/s ({bare['tokens']} tokens), {ratios[-1]:.3f}",
                flush=True,
            )
    report(
        "vllm_throughput",
        {
            "ratio_to_direct": statistics.median(ratios),
            "ratios": summary(ratios),
            "evalray_tokens_per_second": summary(ours_rates),
            "direct_tokens_per_second": summary(direct_rates),
            "target": {"ratio_to_direct": f">= {TARGET}"},
        },
    )


if __name__ == "__main__":
    main()
