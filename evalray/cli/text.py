"""Text for a terminal, from people nobody vouches for: model output, server errors, file names.

Promises that what it returns holds no control character, escape sequence, bidirectional override
or lone surrogate: each is shown in a visible form instead.  Rich markup is never parsed, as all
of it reaches the console inside ``rich.text.Text``.
"""

from __future__ import annotations

import re

#: C0 (but newline and tab), DEL, C1, line separators, bidirectional controls, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def safe_text(text: str, limit: int | None = None) -> str:
    """``text`` made inert, newlines and tabs kept; cut to ``limit`` characters, saying how many are left out."""
    left_out = 0
    if limit is not None and len(text) > limit:
        left_out = len(text) - limit
        text = text[:limit]
    text = _UNSAFE.sub(_visible, text.replace("\r\n", "\n")).expandtabs(4)
    return f"{text}… ({left_out:,} more characters)" if left_out else text


def safe_line(text: str, limit: int | None = None) -> str:
    """``text`` made inert and put on one line, runs of white space collapsed; cut to ``limit`` characters."""
    if limit is not None:
        text = text[: 4 * limit]
    text = safe_text(" ".join(text.split()))
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return text


def quoted_block(text: str, limit: int) -> str:
    """``text`` made inert, each line behind a bar, so that no line of it passes for one of ours."""
    return "\n".join(f"  | {line}" for line in safe_text(text, limit).splitlines() or [""])


def count(number: int) -> str:
    """``1234567`` as ``1.23M``: at most six characters."""
    if number < 100_000:
        return f"{number:,}"
    return f"{number / 1e3:.0f}k" if number < 1_000_000 else f"{number / 1e6:.2f}M"


def figure(value: float, digits: int = 3) -> str:
    """A measurement in as many significant ``digits``, all of those before the point, and no power of ten if large."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{digits}g}"


def rate(per_second: float | None) -> str:
    """A rate in at most five characters; a dash where it was not measured."""
    if per_second is None:
        return "–"
    if per_second < 9.995:
        return f"{per_second:.2f}"
    if per_second < 99.95:
        return f"{per_second:.1f}"
    if per_second < 9_999.5:
        return f"{per_second:.0f}"
    return f"{per_second / 1e3:.0f}k" if per_second < 999_500 else f"{per_second / 1e6:.1f}M"


def percent(fraction: float | None) -> str:
    """``0.4567`` as ``45.7%``; a dash where it was not measured.

    All and none are said of all and none only: ``0.9999`` is ``99.99%``.
    """
    if fraction is None:
        return "–"
    if 0.0 < fraction < 1.0 and not 0.0005 <= fraction < 0.9995:
        return f"{min(max(100 * fraction, 0.01), 99.99):.2f}%"
    return f"{100 * fraction:.1f}%"


def bounds(low: float, high: float) -> str:
    """An interval of fractions in percent, ``57–63``: as many decimals as it takes to tell its ends apart."""
    for decimals in (0, 1, 2):
        if low == high or round(100 * low, decimals) != round(100 * high, decimals):
            break
    return f"{_end(low, decimals)}–{_end(high, decimals)}"


def _end(fraction: float, decimals: int) -> str:
    if fraction in (0.0, 1.0):
        return f"{100 * fraction:.0f}"
    return f"{100 * fraction:.{decimals}f}"


def duration(seconds: float | None) -> str:
    """Seconds as ``0:42``, ``1:02:03`` or ``2d03h``; a dash where it was not measured."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        days, hour = divmod(hours, 24)
        return f"{days}d{hour:02d}h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
