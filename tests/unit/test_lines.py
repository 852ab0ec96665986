"""Cutting what comes in pieces into lines, whatever the pieces are."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.lines import RawLine, split_lines


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b""]), max_size=30).map(b"".join), st.integers(1, 10))
def test_lines_together_are_the_file(data: bytes, size: int) -> None:
    lines = list(split_lines(cut(data, size), b"\n"))
    assert b"".join((line.data or b"") + b"\n" * line.ended for line in lines) == data
    assert sum(line.size_bytes for line in lines) == len(data)
    assert all(line.ended for line in lines[:-1])


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_of_a_line_that_is_too_long_only_the_size_is_known(size: int) -> None:
    data = b"short\n" + b"x" * 50 + b"\n" + b"y" * 10 + b"\n" + b"z" * 11
    assert list(split_lines(cut(data, size), b"\n", 10)) == [
        RawLine(b"short", 6),
        RawLine(None, 51),
        RawLine(b"y" * 10, 11),
        RawLine(None, 11, ended=False),
    ]


def test_no_more_of_a_long_line_is_held_than_it_may_have() -> None:
    tracemalloc.start()
    try:
        [line] = split_lines((bytes(10_000) for _ in range(1000)), b"\n", 100_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (line.data, line.size_bytes) == (None, 10_000_000)
    assert peak_bytes < 200_000


def test_lines_of_text_are_measured_in_the_bytes_of_their_file() -> None:
    assert list(split_lines(["a\nöö", "ö\nabcd\n", "e"], "\n", 6, lambda text: len(text.encode("utf-16-le")))) == [
        RawLine("a", 4),
        RawLine("ööö", 8),
        RawLine(None, 10),
        RawLine("e", 2, ended=False),
    ]
