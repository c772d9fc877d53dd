from __future__ import annotations

import pytest

from evalray.wording import bad_rows_left_out, counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")]
)
def test_one_is_singular_and_thousands_are_grouped(number: int, said: str) -> None:
    assert counted(number, "row") == said


def test_a_verb_goes_with_its_noun() -> None:
    assert [counted(n, "row repeats", "rows repeat") for n in (1, 2)] == ["1 row repeats", "2 rows repeat"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, []),
        (1, ["1 bad row was left out: row 1"]),
        (3, ["3 bad rows were left out: row 1; row 2; row 3"]),
        (9, ["9 bad rows were left out: row 1; row 2; row 3; ..."]),
    ],
)
def test_rows_that_cannot_be_used_are_one_warning(count: int, said: list[str]) -> None:
    assert bad_rows_left_out(count, [f"row {number}" for number in range(1, count + 1)]) == said
