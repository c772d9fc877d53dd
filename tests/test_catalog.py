from __future__ import annotations

from evalray.catalog import known_engines, known_scorers


def test_no_two_scorers_or_engines_share_a_description() -> None:
    for rows in (known_scorers(), known_engines()):
        described = [row[-1] for row in rows]
        assert all(described)
        assert len(set(described)) == len(described)
