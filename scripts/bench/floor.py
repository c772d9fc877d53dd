"""The floor: what 2,000 samples cost with nothing but aiohttp, one regex and one JSON line each.

    python floor.py PORT CONCURRENCY [plain|stream|openai]

`stream` reads server-sent events and takes the time to first token, as an engine must;
`openai` uses the OpenAI SDK. Reads qa2000.jsonl (gen_qa.py) in the current folder.
"""

import asyncio
import json
import re
import sys
import time

port, concurrency = int(sys.argv[1]), int(sys.argv[2])
client = sys.argv[3] if len(sys.argv) > 3 else "plain"
BASE = f"http://127.0.0.1:{port}/v1"
ANSWER = re.compile(r"ANSWER:\s*(\d+)")
rows = [json.loads(line) for line in open("qa2000.jsonl")]


async def plain(session, body):
    async with session.post(f"{BASE}/chat/completions", json=body) as response:
        reply = await response.json()
    return reply["choices"][0]["message"]["content"], None, reply["usage"]


async def stream(session, body):
    start, first, text, usage = time.perf_counter(), None, "", None
    async with session.post(f"{BASE}/chat/completions", json={**body, "stream": True}) as response:
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line[6:])
            first = first or time.perf_counter() - start
            if chunk["choices"]:
                text += chunk["choices"][0]["delta"].get("content") or ""
            usage = chunk.get("usage") or usage
    return text, first, usage


async def sdk(api, body):
    reply = await api.chat.completions.create(**body)
    return reply.choices[0].message.content, None, reply.usage.model_dump()


async def main() -> None:
    limit, right = asyncio.Semaphore(concurrency), 0
    out = open(f"floor-{client}.jsonl", "w")

    async def one(ask, session, row):
        nonlocal right
        body = {
            "model": "mock",
            "messages": [{"role": "user", "content": row["question"]}],
            "max_tokens": 256,
        }
        async with limit:
            start = time.perf_counter()
            text, first, usage = await ask(session, body)
        hits = ANSWER.findall(text)
        correct = bool(hits) and hits[-1] == row["answer"]
        right += correct
        out.write(
            json.dumps(
                {
                    **row,
                    "output": text,
                    "correct": correct,
                    "ttft": first,
                    "latency": time.perf_counter() - start,
                    "usage": usage,
                }
            )
            + "\n"
        )

    if client == "openai":
        import openai

        api = openai.AsyncOpenAI(base_url=BASE, api_key="x")
        await asyncio.gather(*(one(sdk, api, row) for row in rows))
    else:
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:
            await asyncio.gather(
                *(one({"plain": plain, "stream": stream}[client], session, row) for row in rows)
            )
    out.close()
    print(f"accuracy {right / len(rows):.3f}")


asyncio.run(main())
