"""Cutting what comes in pieces into lines, whatever the pieces are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.lines import RawLine, split_lines


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b""]), max_size=30).map(b"".join), st.integers(1, 10))
def test_lines_together_are_the_file(data: bytes, size: int) -> None:
    lines = list(split_lines([data[at : at + size] for at in range(0, len(data), size)], b"\n"))
    assert b"".join((line.data or b"") + b"\n" * line.ended for line in lines) == data
    assert sum(line.size_bytes for line in lines) == len(data)
    assert all(line.ended for line in lines[:-1])


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_of_a_line_that_is_too_long_only_the_size_is_known_in_the_bytes_of_its_file(size: int) -> None:
    text = "short\n" + "ö" * 50 + "\n" + "y" * 5 + "\n" + "z" * 11
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(split_lines(pieces, "\n", 10, lambda piece: len(piece.encode("utf-16-le")))) == [
        RawLine("short", 12),
        RawLine(None, 102),
        RawLine("y" * 5, 12),
        RawLine(None, 22, ended=False),
    ]
