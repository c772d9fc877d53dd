"""Keep an engine's key out of what its server says.

A server, or a gateway before it, may echo the key it was sent: in an answer, an error, a finish
reason.  All of that is stored, so the key is blanked in every text of a reply, as it is, in any case,
URL-encoded, and in base64 wherever it stands within what was encoded.
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from functools import lru_cache

REDACTED = "[redacted]"

#: A shorter key is a placeholder ("EMPTY", "none") for a server that asks for none, and such words are
#: in honest answers.
_LEAST_KEY = 8
#: Fewer characters of an encoding are met by chance.
_LEAST_ENCODED = 10


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


@lru_cache(maxsize=64)
def key_mask(keys: tuple[str, ...]) -> KeyMask:
    """The mask of these keys, made once."""
    return KeyMask(keys)


def _forms(key: str) -> set[str]:
    forms = {key, urllib.parse.quote(key, safe=""), urllib.parse.quote_plus(key)}
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
