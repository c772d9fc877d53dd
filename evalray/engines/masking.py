"""Keep an engine's key out of what its server says.

A server, or a gateway before it, may echo the key it was sent: in an answer, an error, a finish
reason.  All of that is stored, so the key is blanked in every text of a reply, as it is, in any case,
escaped, URL-encoded, and in base64 wherever it stands within what was encoded.  An excerpt is blanked before
it is cut: half a key at its end would be found by nobody.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"

#: A shorter key is a placeholder ("EMPTY", "none") for a server that asks for none, and such words are
#: in honest answers.
_LEAST_KEY = 8
#: Fewer characters of an encoding are met by chance.
_LEAST_ENCODED = 10
#: Names by which the query of an address gives a key away; others (a version, say) are no secret.
_SECRET_QUERY = re.compile(r"key|token|secret|password|credential|sig(?:nature)?$", re.IGNORECASE)


class KeyMask:
    """Blanks the keys in a text; a text without one costs a few substring searches."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        forms = {form for key in keys if len(key) >= _LEAST_KEY for form in _forms(key)}
        self._needles = [form.lower() for form in sorted(forms, key=len, reverse=True)]
        self._pattern = re.compile("|".join(map(re.escape, self._needles)), re.IGNORECASE)

    def finds(self, text: str) -> bool:
        folded = text.lower()
        return any(needle in folded for needle in self._needles)

    def __call__(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text) if self.finds(text) else text

    def all_of(self, value: Any) -> Any:
        """``value`` with every text in it blanked, in lists and in tables, their names too."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self.all_of(name): self.all_of(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.all_of(item) for item in value]
        return value


@lru_cache(maxsize=64)
def key_mask(keys: tuple[str, ...]) -> KeyMask:
    """The mask of these keys, made once."""
    return KeyMask(keys)


def shown_url(url: str) -> str:
    """An address as messages and files show it: without user, password, query and fragment."""
    parts: urllib.parse.SplitResult | None
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or not parts.netloc:
        return url.rpartition("@")[2].partition("?")[0]
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def url_secrets(url: str | None) -> tuple[str, ...]:
    """What of an address is secret: its password, and what its query gives under the name of a key."""
    try:
        parts = urllib.parse.urlsplit(url or "")
    except ValueError:
        return ()
    found = [parts.password] if parts.password else []
    found += [value for name, value in urllib.parse.parse_qsl(parts.query) if _SECRET_QUERY.search(name)]
    return tuple(dict.fromkeys(form for secret in found for form in (secret, urllib.parse.unquote(secret))))


def _forms(key: str) -> set[str]:
    quoted = {urllib.parse.quote(key, safe=""), urllib.parse.quote_plus(key)}
    forms = {key, json.dumps(key)[1:-1], repr(key)[1:-1], *quoted}
    # What stands before a key, such as "Bearer ", shifts its base64 by 0, 1 or 2 bytes; the characters
    # that its neighbours share are left out.
    for shift in range(3):
        data = b"\0" * shift + key.encode("utf-8", "replace")
        first, last = -(-shift * 8 // 6), len(data) * 8 // 6
        for encoded in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
            form = encoded.decode("ascii")[first:last]
            if len(form) >= _LEAST_ENCODED:
                forms.add(form)
    return forms
