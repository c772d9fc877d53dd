from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evalray.cli.tables import listing
from evalray.cli.wrapping import unbroken, wrapped

_CONSOLE = Console(file=io.StringIO(), width=80)


def _lines(text: Text, width: int = 80) -> list[str]:
    return [line.plain for line in wrapped(text, _CONSOLE, width)]


def test_what_follows_is_indented_below_its_beginning() -> None:
    assert _lines(Text("    ! one two three four"), 16) == ["    ! one two", "      three four"]
    assert _lines(Text("\nab cd\n  ef"), 80) == ["", "ab cd", "  ef"]


def test_a_command_is_never_broken() -> None:
    line = "  resume  evalray run " + "-b benchmark " * 20
    assert _lines(unbroken(line)) == [line]


def test_a_path_that_is_wider_than_the_terminal_is_left_whole() -> None:
    line = "written: /" + "folder/" * 20
    assert _lines(Text(line)) == [line]


def test_a_quotation_stays_behind_its_bar() -> None:
    assert _lines(Text("  | one two three"), 12) == ["  | one two", "  | three"]
    assert _lines(Text("  | " + "x" * 20), 14) == ["  | " + "x" * 10, "  | " + "x" * 10]


@given(st.text(alphabet="ab c日 ", max_size=200), st.integers(20, 60))
def test_every_word_is_kept_and_no_line_is_wider(text: str, width: int) -> None:
    lines = _lines(Text(text), width)
    words_fit = all(cell_len(word) <= width // 2 for word in text.split())
    if words_fit and len(text) - len(text.lstrip(" ")) < width // 2 - 2:
        assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def _rendered(head: tuple[str, ...], rows: list[tuple[str, ...]], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    for part in listing(head, rows, width):
        for line in wrapped(part, console, width) if isinstance(part, Text) else [part]:
            console.print(line, soft_wrap=isinstance(line, Text))
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]
    return shown


_HEAD = ("run", "energy", "idle", "peak power", "MFU", "MBU", "J/token, full batch", "method")
_ROW = (
    "supergpqa_Qwen-Qwen3-32B-Instruct",
    "1234 J",
    "56.78 J",
    "689.5 W",
    "12.34 %",
    "45.67 %",
    "0.01234 J",
    "nvml",
)


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_no_name_and_no_figure_is_cut_however_narrow_the_terminal(width: int) -> None:
    shown = _rendered(_HEAD, [_ROW], width)
    for cell in _ROW:
        assert cell in shown
    assert all(cell_len(line) <= width for line in shown.splitlines())


def test_a_table_that_fits_stays_one_and_only_its_last_column_is_folded() -> None:
    shown = _rendered(("name", "what it is"), [("exact", "word " * 30)])
    assert shown.splitlines()[0].split() == ["name", "what", "it", "is"]
    assert len(shown.splitlines()) > 4
