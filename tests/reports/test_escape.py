"""Untrusted text stays text in every format."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalray.reports.escape import csv_cell, markdown, plain

ANY_TEXT = st.text(alphabet=st.characters(codec=None), max_size=200)


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "  =cmd|' /C calc'!A0", "|x", "%x"],
)
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert str(csv_cell(text)).startswith("'")


@pytest.mark.parametrize("value", [-1, -0.5, None, "plain", "a=b", ""])
def test_numbers_and_harmless_text_stay_as_they_are_in_csv(value: object) -> None:
    assert csv_cell(value) == value


@settings(deadline=None)
@given(ANY_TEXT)
def test_no_csv_cell_starts_a_formula_whatever_the_text(text: str) -> None:
    out = io.StringIO()
    csv.writer(out).writerow([csv_cell(text)])
    (row,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert not row or not row[0].lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_markdown_cell_is_one_line_without_tags_or_open_pipes(text: str) -> None:
    cell = markdown(text)
    assert len(cell.splitlines()) <= 1
    assert "<" not in cell
    assert ">" not in cell
    assert not re.search(r"(?<!\\)(\\\\)*[|`\[\]*_]", cell)


@settings(deadline=None)
@given(ANY_TEXT)
def test_plain_text_can_always_be_written_as_utf8(text: str) -> None:
    assert not set(plain(text).encode().decode()) & set("\x00\x1b\u202e")


@pytest.mark.parametrize(
    "address", ["http://evil.example", "https://evil.example", "javascript:alert(1)", "www.evil.example"]
)
def test_a_bare_address_does_not_become_a_link(address: str) -> None:
    assert address not in markdown(f"see {address}")


@pytest.mark.parametrize(("limit", "length"), [(0, 1000), (10, 10), (2000, 1000)])
def test_plain_cuts_at_its_limit_and_marks_the_cut(limit: int, length: int) -> None:
    cut = plain("x" * 1000, limit)
    assert len(cut) == length
    assert cut.endswith("…") == (length < 1000)
