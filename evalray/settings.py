"""The settings that several layers of configuration may give: how to sample, and how much to run.

A suite's ``[defaults]``, its models and benchmarks, and a benchmark's own ``[defaults]`` share
these fields and their limits, so that a value that is impossible in one place is impossible in all.
Everything is strict: a string is not a number, and an unknown key is an error.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

_SECRET_KEY = re.compile(
    r"^(x-)?(.*[-_])?(api[-_]?key|(access|auth|bearer|hf)[-_]?token|token|secret|passw(or)?d|authorization)$",
    re.I,
)
_TRACKING_SCHEMES = frozenset(
    {"databricks", "databricks-uc", "file", "http", "https", "mssql", "mysql", "postgresql", "sqlite", "uc"}
)
_ENVIRONMENT_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def is_secret_key(key: str) -> bool:
    """Whether a key's name says that its value is a secret."""
    return _SECRET_KEY.match(key) is not None


def secret_paths(value: object, prefix: str = "") -> Iterator[str]:
    """Dotted paths, inside nested tables, of non-empty strings under a key that names a secret."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            if isinstance(inner, str) and inner and is_secret_key(str(key)):
                yield path
            else:
                yield from secret_paths(inner, path)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from secret_paths(inner, f"{prefix}[{index}]")


def url_secret(url: str) -> str | None:
    """Which part of an address carries a secret: ``password``, a query key, or ``None``."""
    try:
        parts = urlsplit(url)
        if parts.password:
            return "password"
    except ValueError:
        return None
    return next((key for key, value in parse_qsl(parts.query) if value and is_secret_key(key)), None)


def without_url_secret(url: str) -> str:
    """``url`` as it may be stored: user, password and query are dropped where they carry a secret."""
    if url_secret(url) is None:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str | int) and not isinstance(value, bool) else value


def _http_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise PydanticCustomError("address", "must be an address such as http://127.0.0.1:8000/v1")
    if (part := url_secret(value)) is not None:
        raise PydanticCustomError(
            "secret", "carries a secret ({part}): put it in an environment variable", {"part": part}
        )
    return value


def scheme_problem(uri: str) -> str | None:
    """Why no MLflow store has this address by its scheme, or ``None``.  Plugins bring schemes of their own."""
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme.lower().partition("+")[0] in _TRACKING_SCHEMES:
        return None
    if scheme in {entry.name for entry in entry_points(group="mlflow.tracking_store")}:
        return None
    return (
        f"has a scheme that MLflow does not know ({scheme[:40]}); use sqlite:///FILE, http(s):// or a folder"
    )


def _known_scheme(value: str) -> str:
    if (problem := scheme_problem(value)) is not None:
        raise PydanticCustomError("address", "{problem}", {"problem": problem})
    return value


def _tracking_address(value: str) -> str:
    if (part := url_secret(value)) is not None:
        raise PydanticCustomError(
            "secret", "carries a secret ({part}): set MLFLOW_TRACKING_URI instead", {"part": part}
        )
    return _known_scheme(value)


def _environment_name(value: str) -> str:
    if not _ENVIRONMENT_NAME.match(value):
        raise PydanticCustomError(
            "secret", "must be the name of an environment variable, such as OPENAI_API_KEY"
        )
    return value


def _host(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not _HOST_NAME.fullmatch(value):
            message = "must be a host name or an IP address alone, such as 127.0.0.1 or 0.0.0.0"
            raise PydanticCustomError("address", message) from None
    return value


def _is_finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _no_secrets(value: dict[str, Any]) -> dict[str, Any]:
    if not _is_finite(value):
        raise PydanticCustomError("finite", "holds inf or nan, which is no JSON number")
    if (path := next(secret_paths(value), None)) is not None:
        raise PydanticCustomError("secret", "{path} is a secret: use api_key_env", {"path": path})
    return value


def _gpus(value: float) -> float:
    if value.is_integer():
        return int(value)
    if value > 1:
        raise PydanticCustomError("gpus", "must be a whole number, or a part of one GPU such as 0.5")
    return value


def _printable(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise PydanticCustomError("name", "must be a name of printable characters")
    return value


Name = Annotated[str, AfterValidator(_printable)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
"""Of records, tokens and the like: a larger number is a slip, and would be held in memory."""
Few = Annotated[int, Field(ge=1, le=10_000)]
"""Of passes over the data, replicas, devices."""
Gpus = Annotated[float, Field(ge=0, le=10_000), AfterValidator(_gpus)]
"""Whole ones, or a part of one that several engines share."""
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
"""What fits the 64 bits of a generator's seed."""
NonNegative = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Stops = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_one_or_many)]
Counts = Annotated[list[Few], BeforeValidator(_one_or_many)]
HttpAddress = Annotated[str, AfterValidator(_http_address)]
Host = Annotated[str, AfterValidator(_host)]
Port = Annotated[int, Field(ge=0, le=65535)]
"""To listen on; 0 is any that is free."""
TrackingFlag = Annotated[Name, AfterValidator(_known_scheme)]
TrackingAddress = Annotated[str, AfterValidator(_tracking_address)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]
Arguments = Annotated[dict[str, Any], AfterValidator(_no_secrets)]


class SamplingSettings(BaseModel):
    """How to sample; ``seed`` is the sampling seed that is sent to the engine."""

    model_config = STRICT

    temperature: NonNegative | None = None
    max_tokens: Count | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    stop: Stops | None = None
    seed: Seed | None = None
    system_prompt: str | None = None


class RunDefaults(SamplingSettings):
    """What a suite's or a benchmark's ``[defaults]`` may set for its runs."""

    max_samples: Count | None = None
    epochs: Few | None = None
    pass_k: Counts | None = None
    num_fewshot: Annotated[int, Field(ge=0)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


#: What applies where no layer says anything.  The seed's values.
BUILT_IN: dict[str, Any] = {
    "temperature": 0.0,
    "max_tokens": 2048,
    "stop": [],
    "epochs": 1,
    "pass_k": [],
    "num_fewshot": 0,
}


def settings_given(model: BaseModel) -> dict[str, Any]:
    """The fields a user wrote, as plain data; what was left out is not there."""
    return model.model_dump(exclude_unset=True, exclude_none=True)
