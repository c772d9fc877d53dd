"""The response cache on disk: replies of earlier sweeps, by the identity of their requests.

A folder of append-only journals, one per sweep, so that each has one writer and a kill costs at most
its last line; all of them are read.  A hit is compared with the whole of what it answers.  Whatever
goes wrong with the cache is said once and costs the cache, never the sweep.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalray.engines.base import EngineConfig
from evalray.engines.cache import (
    cache_key,
    cached_generation,
    model_identity,
    reply_to_keep,
    request_identity,
)
from evalray.errors import StoreError
from evalray.runtime.actor import find_engine
from evalray.store import is_disk_full
from evalray.store.journal import VERSION, Journal, LineReader, read_lines, seal
from evalray.types import Generation, GenerationRequest

_HEAD = re.compile(rb'\{"v":1,"key":"([0-9a-f]{64})",')


class ModelCache:
    """The cache as one deployment sees it."""

    def __init__(self, cache: ResponseCache, model: dict[str, Any]) -> None:
        self._cache = cache
        self._model = model

    @classmethod
    def of(cls, config: EngineConfig, cache: ResponseCache, say: Callable[[str], None]) -> ModelCache | None:
        """``None``, and said, where it cannot be told which model this is.  Looks at the model's files."""
        model = model_identity(config, find_engine(config.engine).answer_args(config.engine_args))
        if model is None:
            say(
                f"{config.model}: its file or revision is not known on this machine, so its replies are not "
                "cached (engine_args.revision with a full commit names one)"
            )
            return None
        return cls(cache, model)

    def get(self, request: GenerationRequest, epoch: int, record_id: str) -> Generation | None:
        return self._cache.get(self._model, request, epoch, record_id)

    def add(self, request: GenerationRequest, epoch: int, record_id: str, generation: Generation) -> None:
        self._cache.add(self._model, request, epoch, record_id, generation)

    def flush(self) -> None:
        self._cache.flush()


class ResponseCache:
    """Look up and add.  Blocks for a moment; :meth:`close` it."""

    def __init__(self, directory: Path, sweep: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.hits = 0
        self._say = say
        self._beside_sweep = False
        self._index: dict[bytes, tuple[int, int]] = {}
        self._readers: list[LineReader] = []
        self._journal: Journal | None = None
        name = hashlib.sha256(str(sweep.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        own = directory / f"{sweep.name}-{name}.jsonl"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._beside_sweep = _on_one_disk(directory, sweep)
            self._journal = Journal(own)
            for path in sorted(directory.glob("*.jsonl")):
                if path.is_file():
                    self._read(path)
        except (OSError, StoreError) as error:
            self._give_up(error)

    def get(
        self, model: dict[str, Any], request: GenerationRequest, epoch: int, record_id: str
    ) -> Generation | None:
        """The reply to this very request, if there is one."""
        if not self._index:
            return None
        identity = request_identity(model, request, epoch=epoch, record_id=record_id)
        place = self._index.get(bytes.fromhex(cache_key(identity)))
        if place is None:
            return None
        try:
            line = self._readers[place[0]].read(place[1])
        except StoreError as error:
            self._give_up(error)
            return None
        reply = line.get("reply")
        if line.get("request") != identity or not isinstance(reply, dict):
            return None
        self.hits += 1
        return cached_generation(reply)

    def add(
        self,
        model: dict[str, Any],
        request: GenerationRequest,
        epoch: int,
        record_id: str,
        generation: Generation,
    ) -> None:
        """Keep a reply, if it is one to be kept."""
        reply = reply_to_keep(request, generation)
        if reply is None or self._journal is None:
            return
        identity = request_identity(model, request, epoch=epoch, record_id=record_id)
        key = cache_key(identity)
        if bytes.fromhex(key) in self._index:
            return
        try:
            self._journal.append(seal({"v": VERSION, "key": key, "request": identity, "reply": reply}))
        except StoreError as error:
            self._give_up(error)

    def flush(self) -> None:
        if self._journal is not None:
            try:
                self._journal.flush()
            except StoreError as error:
                self._give_up(error)

    def close(self) -> None:
        """Safe to call twice."""
        journal, self._journal = self._journal, None
        for reader in self._readers:
            reader.close()
        self._readers, self._index = [], {}
        if journal is not None:
            try:
                journal.close()
            except StoreError as error:
                self._tell(error)

    def _read(self, path: Path) -> None:
        number = len(self._readers)
        self._readers.append(LineReader(path))
        for offset, line in read_lines(path):
            if (match := _HEAD.match(line)) is not None:
                self._index.setdefault(bytes.fromhex(match.group(1).decode("ascii")), (number, offset))

    def _give_up(self, error: Exception) -> None:
        self._tell(error, "; going on without it")
        self.close()

    def _tell(self, error: Exception, consequence: str = "") -> None:
        # A disk that is full stops the sweep on it, which says so.
        if not (self._beside_sweep and is_disk_full(error)):
            self._say(f"response cache: {error}{consequence}")


def _on_one_disk(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False
