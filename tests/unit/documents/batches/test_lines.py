"""Cutting a file that comes in pieces into lines."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.documents.batches.check import FileLine, split_lines


def lines_of(data: bytes, chunk: int = 2**20, limit: int = 1000) -> list[FileLine]:
    return list(split_lines((data[at : at + chunk] for at in range(0, len(data), chunk)), limit))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n \n\t\n", []),
        (b"a", [FileLine(1, 0, b"a")]),
        (b"a\n", [FileLine(1, 0, b"a")]),
        (b"a\r\nbc\r\n", [FileLine(1, 0, b"a"), FileLine(2, 3, b"bc")]),
        (b"a\n\n  \nb", [FileLine(1, 0, b"a"), FileLine(4, 6, b"b")]),
        (b"\xef\xbb\xbfa\nb", [FileLine(1, 3, b"a"), FileLine(2, 5, b"b")]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_lines_their_numbers_and_places(data: bytes, expected: list[FileLine], chunk: int) -> None:
    assert lines_of(data, chunk) == expected


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_of_a_line_that_is_too_long_only_the_place_is_kept(chunk: int) -> None:
    data = b"short\n" + b"x" * 50 + b"\nlast"
    assert lines_of(data, chunk, limit=10)[2] == FileLine(3, 57, b"last")
    assert [line.data for line in lines_of(data, chunk, limit=10)] == [b"short", None, b"last"]


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.integers(1, 30))
def test_places_lead_back_to_the_lines(parts: list[bytes], chunk: int) -> None:
    data = b"\n".join(parts)
    found = lines_of(data, chunk)
    for line in found:
        assert line.data is not None
        assert data[line.offset : line.offset + len(line.data)] == line.data
        assert data.count(b"\n", 0, line.offset) == line.number - 1
    assert all(a.number < b.number for a, b in pairwise(found))
