"""Keep secrets out of what leaves for a tracking server.

Three nets, because a key may arrive by any road: a setting whose *name* says it is a secret, a
text that *looks* like one, and a text that holds the *value* of a secret environment variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from evalray.tracking.uri import mask_uri

REDACTED = "***"

_SECRET_NAME = re.compile(
    r"(?i)(^|[_\-. ])(x?api_?key|apikey|secret|secret_?key|password|passwd|passphrase|authorization|"
    r"proxy_authorization|cookie|credentials?|private_?key|(?:access_|auth_|bearer_|hf_|api_|id_|refresh_)?token)$"
)
_SECRET_TEXT = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|"
    r"\bAIza[0-9A-Za-z_\-]{30,}|\bxox[abpr]-[A-Za-z0-9\-]{10,}|(?i:\bBearer\s+)[A-Za-z0-9._~+/\-]{8,}=*"
)
_SECRET_VARIABLE = re.compile(r"(?i)(key|token|secret|password|passwd|credential|authorization)s?$")
_SHORTEST_SECRET = 8


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name holds a secret; ``api_key_env`` and ``max_tokens`` do not."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


def redact_text(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text without credentials in addresses, key-like words and secret environment values."""
    safe = _SECRET_TEXT.sub(REDACTED, mask_uri(text))
    values = _environment_secrets() if environment is None else secrets_of(environment)
    for value in values:
        safe = safe.replace(value, REDACTED)
    return safe


def redact(value: Any) -> Any:
    """A copy of a JSON-like value with every secret replaced."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {key: REDACTED if _hides(str(key), item) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables named like secrets, longest first, too short ones left out."""
    found = {v for k, v in environment.items() if _SECRET_VARIABLE.search(k) and len(v) >= _SHORTEST_SECRET}
    return tuple(sorted(found, key=len, reverse=True))


def _hides(name: str, value: Any) -> bool:
    return is_secret_name(name) and value not in (None, "") and not isinstance(value, bool | int | float)


@cache
def _environment_secrets() -> tuple[str, ...]:
    return secrets_of(os.environ)
