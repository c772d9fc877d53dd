from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalray.datasets.lines import open_reader
from evalray.errors import DatasetError


def scanned(path: Path) -> tuple[list[dict], list[tuple[int, str]]]:
    """Good rows, each also read again by its offset, and (line, reason) of the bad ones."""
    good, bad = [], []
    reader, second = open_reader(path), open_reader(path)
    try:
        for offset, line, row in reader.scan():
            if isinstance(row, str):
                bad.append((line, row))
            else:
                good.append(row)
                assert second.read_at(offset) == row
    finally:
        reader.close()
        second.close()
    return good, bad


def written(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "not JSON"),
        (b"[1, 2]", "a JSON array, not an object"),
        (b'"text"', "a JSON string, not an object"),
        (b"null", "a JSON null, not an object"),
        (b"7", "a JSON number, not an object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "not JSON"),
        (b"\x00\x01", "not JSON"),
    ],
)
def test_bad_json_line_is_named_and_its_neighbours_survive(tmp_path: Path, line: bytes, reason: str) -> None:
    path = written(tmp_path, "x.jsonl", b'{"a": 1}\n\n' + line + b'\n{"a": 2}')
    good, bad = scanned(path)
    assert good == [{"a": 1}, {"a": 2}]
    assert [number for number, _ in bad] == [3]
    assert bad[0][1].startswith(reason)


@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.JSONL"])
def test_byte_order_mark_and_windows_line_ends_are_no_part_of_a_row(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, b'\xef\xbb\xbf{"a": 1}\r\n{"a": "\xc3\xa9"}\r\n')
    assert scanned(path) == ([{"a": 1}, {"a": "é"}], [])


def test_unicode_line_separators_do_not_split_a_json_line(tmp_path: Path) -> None:
    row = {"a": "one\u2028two\u0085three"}
    path = written(tmp_path, "x.jsonl", json.dumps(row, ensure_ascii=False).encode())
    assert scanned(path) == ([row], [])


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'q,a\n"two\nlines",1\nplain,2\n', [{"q": "two\nlines", "a": "1"}, {"q": "plain", "a": "2"}]),
        (b'\xef\xbb\xbfq,a\r\n"say ""hi""",1\r\n', [{"q": 'say "hi"', "a": "1"}]),
        (b"\n\nq,a\n\nx,\n", [{"q": "x", "a": ""}]),
        (b"q;a\nx, y;2\n", [{"q": "x, y", "a": "2"}]),
        (b'"q\nq",a\nx,1\n', [{"q\nq": "x", "a": "1"}]),
        (b"q,a\n", []),
        (b"", []),
    ],
)
def test_csv_rows(tmp_path: Path, content: bytes, rows: list[dict[str, str]]) -> None:
    assert scanned(written(tmp_path, "x.csv", content)) == (rows, [])


def test_tsv_is_split_at_tabs_only(tmp_path: Path) -> None:
    path = written(tmp_path, "x.tsv", b"q\ta\n1,000\t2\n")
    assert scanned(path) == ([{"q": "1,000", "a": "2"}], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"only one cell", "1 cell, the header has 2"),
        (b"a,b,c", "3 cells, the header has 2"),
        (b'"never closed,1', "not CSV"),
        (b'"closed" then more,1', "not CSV"),
        (b"\xff\xfe,1", "not UTF-8"),
    ],
)
def test_bad_csv_line_is_named_and_its_neighbours_survive(tmp_path: Path, line: bytes, reason: str) -> None:
    good, bad = scanned(written(tmp_path, "x.csv", b"q,a\nx,1\n" + line + b"\ny,2\nz,3\n"))
    assert [row["a"] for row in good] == ["1", "2", "3"]
    assert [number for number, _ in bad] == [3]
    assert bad[0][1].startswith(reason)


def test_csv_line_numbers_count_lines_inside_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, "x.csv", b'q,a\n"1\n2\n3",1\nbad\n')
    assert scanned(path)[1] == [(5, "1 cell, the header has 2")]


def test_csv_column_named_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"x\.csv:1: column 'q' occurs twice"):
        open_reader(written(tmp_path, "x.csv", b"q,a,q\n"))


@pytest.mark.parametrize(
    ("content", "good", "bad_lines"),
    [
        (b'[{"a": 1}, {"a": "],}\\""}]', [{"a": 1}, {"a": '],}"'}], []),
        (b'\xef\xbb\xbf[\n {"a": [1, {"b": 2}]},\n {"a": 2}\n]\n', [{"a": [1, {"b": 2}]}, {"a": 2}], []),
        (b'[{"a": 1},\n nonsense,\n {"a": 2}]', [{"a": 1}, {"a": 2}], [2]),
        (b'[{"a": 1},\n [1],\n\n {"a": 2},\n]', [{"a": 1}, {"a": 2}], [2]),
        (b'[{"a": 1},\n{"a": 2', [{"a": 1}], [2, 2]),
        (b'[{"a": 1}]\nmore', [{"a": 1}], [1]),
        (b'{"data": [{"a": 1}]}', [], [1]),
        (b"[]", [], []),
        (b"", [], []),
    ],
)
def test_json_arrays(tmp_path: Path, content: bytes, good: list[dict], bad_lines: list[int]) -> None:
    rows, bad = scanned(written(tmp_path, "x.json", content))
    assert rows == good
    assert [line for line, _ in bad] == bad_lines


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(st.dictionaries(texts, json_values, max_size=4), max_size=8), ascii_only=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
def test_json_rows_come_back_as_written(tmp_path: Path, rows: list[dict], ascii_only: bool) -> None:
    lines = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    array = json.dumps(rows, ensure_ascii=ascii_only, indent=1)
    assert scanned(written(tmp_path, "x.jsonl", lines.encode())) == (rows, [])
    assert scanned(written(tmp_path, "x.json", array.encode())) == (rows, [])


structured = st.lists(
    st.sampled_from(
        [b'"', b"'", b",", b";", b"\n", b"\r\n", b"\t", b"{", b"}", b"[", b"]", b":", b"\\", b"a"]
    )
    | st.binary(max_size=3)
).map(b"".join)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv", "x.tsv"])
@given(content=structured | st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
def test_no_bytes_make_a_reader_raise_anything_but_a_data_error(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = written(tmp_path, name, content)
    try:
        good, bad = scanned(path)
    except DatasetError:
        return
    assert len(good) + len(bad) <= len(content)
    assert all(1 <= line <= content.count(b"\n") + 1 for line, _ in bad)


@given(cells=st.lists(st.tuples(texts, st.text(string.printable, max_size=20)), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
def test_csv_rows_come_back_as_written(tmp_path: Path, cells: list[tuple[str, str]]) -> None:
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    body = "".join(f"{quoted(a)},{quoted(b)}\n" for a, b in cells)
    good, bad = scanned(written(tmp_path, "x.csv", ("p,q\n" + body).encode()))
    assert bad == []
    assert [(row["p"], row["q"]) for row in good] == cells
