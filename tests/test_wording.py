from __future__ import annotations

import pytest

from evalray.wording import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")]
)
def test_one_is_singular_and_thousands_are_grouped(number: int, said: str) -> None:
    assert counted(number, "row") == said


def test_a_verb_goes_with_its_noun() -> None:
    assert [counted(n, "row repeats", "rows repeat") for n in (1, 2)] == ["1 row repeats", "2 rows repeat"]
