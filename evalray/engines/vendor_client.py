"""One model at a vendor's API, through the vendor's SDK: connect, ask, learn from refusals, close.

What the engines ``openai`` and ``anthropic`` have in common is here.  What differs, how a request is
written and how a reply is read, is a :class:`Dialect`, one for each API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from evalray.engines.arguments import check_args
from evalray.engines.base import Chunk, Engine, EngineConfig, EngineInfo
from evalray.engines.capabilities import ParameterFilter, find_capabilities
from evalray.engines.failures import one_line
from evalray.engines.figures import count_of
from evalray.engines.masking import shown_url, url_secrets
from evalray.engines.pricing import PRICE_ARGS, Price, price_for
from evalray.engines.vendor_sdk import (
    CONNECT_SECONDS,
    check_effort,
    import_sdk,
    probe,
    read_key,
    request_error,
)
from evalray.errors import RequestError
from evalray.types import GenerationRequest

#: ``engine_args`` that every vendor's engine takes.
SHARED_ARGS = ("extra_body", "reasoning", "reasoning_effort", "stream", *PRICE_ARGS)
#: Those of them that cannot change an answer.
NEUTRAL_ARGS = frozenset({"stream", *PRICE_ARGS})


@dataclass(frozen=True, slots=True)
class Vendor:
    """``name`` is that of the SDK's package and in the data files, ``client`` the SDK's class."""

    name: str
    client: str
    host: str
    key_variable: str
    unpriced: frozenset[str] = frozenset()
    """Fields of ``extra_body`` with which a request costs something else than the listed price."""


class Dialect(Protocol):
    """One API of a vendor."""

    def wanted(self, request: GenerationRequest) -> dict[str, Any]:
        """The parameters by the server's names, dotted within tables; messages and model apart.

        Raises :class:`RequestError` for a request that makes no sense to send.
        """

    async def ask(self, client: Any, request: GenerationRequest, sent: dict[str, Any]) -> Any:
        """The SDK's reply, or stream, to ``request`` with the parameters ``sent``."""

    def read(self, stream: Any) -> AsyncIterator[Chunk]:
        """The chunks of a stream.  Raises :func:`cut_short` where it ends before the reply does."""

    def whole(self, reply: Any) -> Chunk:
        """A reply that came in one piece."""


class VendorClient:
    """Owns the key, the SDK's client, and what was learnt of the model.  For a single event loop."""

    def __init__(self, vendor: Vendor, config: EngineConfig) -> None:
        self.model = config.model
        self.stream = True
        self.effort: str | None = None
        self.price: Price | None = None
        self.secrets: tuple[str, ...] = ()
        self.capabilities = find_capabilities(vendor.name, config.model)
        self.filter = ParameterFilter(self.capabilities)
        self._vendor = vendor
        self._config = config
        self._variable = config.api_key_env or vendor.key_variable
        self._extra_body: dict[str, Any] = {}
        self._client: Any = None

    def read_settings(self, own_args: tuple[str, ...]) -> dict[str, Any]:
        """Check what all vendors' engines take; the ``engine_args``.  Raises :class:`EngineStartError`."""
        config, arguments = self._config, self._config.engine_args
        check_args(config, tuple(sorted((*SHARED_ARGS, *own_args))))
        self.stream = arguments.get("stream", True)
        self.effort = check_effort(config.model, arguments.get("reasoning_effort"), self.capabilities.efforts)
        self.filter = ParameterFilter(self.capabilities, effort=self.effort)
        self._extra_body = arguments.get("extra_body", {})
        self.price = price_for(self._vendor.name, config.model, arguments)
        if self._vendor.unpriced & self._extra_body.keys() and "price_input_per_mtok" not in arguments:
            self.price = None
        return arguments

    async def connect(self, engine: Engine, base_url: str | None, **details: Any) -> tuple[EngineInfo, Any]:
        """Check the key and the model; what to say of the engine, and what the vendor says of the model.

        Raises :class:`EngineStartError`, the key's before any request.
        """
        key, _ = read_key(self._config, self._vendor.key_variable)
        sdk = import_sdk(self._vendor.name)
        self._client = client = getattr(sdk, self._vendor.client)(
            api_key=key,
            base_url=base_url,
            max_retries=0,
            timeout=sdk.Timeout(None, connect=CONNECT_SECONDS),
            http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        self.secrets = (key, *url_secrets(str(client.base_url)))
        try:
            known = await probe(
                lambda: client.models.retrieve(self.model),
                secrets=self.secrets,
                variable=self._variable,
                model=self.model,
                own_server=client.base_url.host != self._vendor.host,
            )
        except BaseException:
            await self.close()
            raise
        price = self.price
        info = EngineInfo(
            engine=engine.name,
            model=self.model,
            version=f"{self._vendor.name} {sdk.__version__}",
            max_concurrency=self._config.max_concurrency or engine.default_concurrency,
            details={
                "base_url": shown_url(str(client.base_url)),
                **details,
                "stream": self.stream,
                "listed": known is not None,
                "price": None if price is None else {"as_of": price.as_of, "source": price.source},
            },
        )
        return info, known

    async def answer(self, request: GenerationRequest, dialect: Dialect) -> AsyncIterator[Chunk]:
        """The reply to one request, as :meth:`~evalray.engines.base.Engine.generate` gives it.

        The first chunk says what was sent.  What the model refuses is left out, and it is asked again.
        """
        client = self._client
        if client is None:
            raise RequestError("connection", "the engine is closed")
        wanted = dialect.wanted(request)
        reply = None
        while reply is None:
            sent, left_out = self.filter.select(wanted)
            try:
                reply = await dialect.ask(client, request, _in_tables(sent))
            except Exception as error:
                failure = self.failure(error)
                status, parameter = getattr(error, "status_code", None), getattr(error, "param", None)
                if not self.filter.learn(status, str(failure), parameter, sent):
                    raise failure from error
        yield Chunk(request_params=_in_tables(sent) | ({"not_sent": left_out} if left_out else {}))
        if not self.stream:
            yield dialect.whole(reply)
            return
        try:
            async for chunk in dialect.read(reply):
                yield chunk
        except RequestError:
            raise
        except Exception as error:
            raise self.failure(error, streaming=True) from error
        finally:
            await reply.close()

    def fields(self, sent: dict[str, Any], unnamed: frozenset[str]) -> dict[str, Any]:
        """``sent`` as the SDK's method takes it: what it does not name, and the user's, in ``extra_body``."""
        named = {name: value for name, value in sent.items() if name not in unnamed}
        extra = {name: value for name, value in sent.items() if name in unnamed} | self._extra_body
        for name in named.keys() & extra.keys():
            ours, theirs = named.pop(name), extra[name]
            if isinstance(ours, dict) and isinstance(theirs, dict):
                extra[name] = ours | theirs
        return named | {"model": self.model, "stream": self.stream, "extra_body": extra}

    def failure(self, error: BaseException, *, streaming: bool = False) -> RequestError:
        """What the SDK raised, classified, without the key."""
        return request_error(error, self.secrets, self._variable, streaming=streaming)

    def not_the_protocol(self, reply: Any) -> RequestError:
        shown = one_line(str(reply), self.secrets, limit=300)
        return RequestError("bad_response", f"not a reply of the API: {shown}", retryable=True)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def cut_short() -> RequestError:
    return RequestError("bad_response", "the stream ended before the reply did", retryable=True)


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    """Those that are not ``None``."""
    return {name: value for name, value in parameters.items() if value is not None}


def sendable_messages(request: GenerationRequest) -> list[dict[str, str]]:
    """The messages without lone surrogates, which the SDKs do not send."""
    return [
        {key: value.encode("utf-8", "replace").decode() for key, value in message.items()}
        for message in request.messages
    ]


def count(value: Any, *names: str) -> int | None:
    """The first count that ``value`` has under one of ``names``."""
    numbers = (count_of(getattr(value, name, None)) for name in names)
    return next((number for number in numbers if number is not None), None)


def _in_tables(sent: dict[str, Any]) -> dict[str, Any]:
    """``{"text.format": x}`` as ``{"text": {"format": x}}``."""
    body: dict[str, Any] = {}
    for name, value in sent.items():
        table, _, key = name.partition(".")
        if key:
            body.setdefault(table, {})[key] = value
        else:
            body[table] = value
    return body
