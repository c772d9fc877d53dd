"""Articles that a question links to, read from a folder of text files.

A link's article is the file named after the last part of its address, such as
``Alan_Turing.txt`` for ``https://en.wikipedia.org/wiki/Alan_Turing``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from errno import ENAMETOOLONG
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SUFFIXES = (".txt", ".md")
_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f]')


def articles(links: Iterable[object], folder: str) -> list[dict[str, str]]:
    """``[{"link", "text"}, ...]`` of the links whose article is in ``folder``; none without a folder."""
    if not folder:
        return []
    found = [{"link": str(link).strip(), "text": article(link, folder)} for link in links]
    return [each for each in found if each["text"]]


def article(link: object, folder: str) -> str:
    """The text of a link's article; empty where the folder has none.

    Spaces, underscores and percent-encoding of the address make no difference, nor does a
    fragment.  Raises :class:`ValueError` where ``folder`` is no folder or a file is not UTF-8.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise ValueError(f"articles: no such folder: {folder}")
    try:
        path = urlsplit(str(link).strip()).path
    except ValueError:  # no address, so no article
        return ""
    title = unquote(path.removeprefix("/wiki/") if path.startswith("/wiki/") else path.rpartition("/")[2])
    name = _UNSAFE.sub("_", title.strip())
    if not name.strip("._ "):
        return ""
    for candidate in dict.fromkeys((name.replace(" ", "_"), name.replace("_", " "))):
        for suffix in _SUFFIXES:
            try:
                return (root / f"{candidate}{suffix}").read_text(encoding="utf-8").strip()
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, OSError) and error.errno == ENAMETOOLONG:
                    continue
                raise ValueError(f"article {candidate}{suffix}: {error}") from error
    return ""
