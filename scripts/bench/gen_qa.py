"""Writes qa2000.jsonl: {"id","question","answer"} x 2,000, seeded."""

import json
import random
import sys

n = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
rng = random.Random(7)
with open(f"qa{n}.jsonl", "w") as f:
    for i in range(n):
        a, b = rng.randint(100, 9999), rng.randint(100, 9999)
        ctx = " ".join(
            rng.choice(["apples", "boxes", "counts", "ships", "river", "stone", "market"]) for _ in range(40)
        )
        f.write(
            json.dumps(
                {
                    "id": f"q{i}",
                    "question": f"Read this context: {ctx}. What is {a} plus {b}? End with 'ANSWER: <number>'.",
                    "answer": str(a + b),
                }
            )
            + "\n"
        )
