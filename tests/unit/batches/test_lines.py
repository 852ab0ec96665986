"""Cutting a file that comes in pieces into lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.batches.check_lines import FileLine, split_lines


def lines_of(data: bytes, chunk: int = 2**20, limit: int = 1000) -> list[FileLine]:
    return list(split_lines((data[at : at + chunk] for at in range(0, len(data), chunk)), limit))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n \n\t\n", []),
        (b"a", [FileLine(1, b"a")]),
        (b"a\n", [FileLine(1, b"a")]),
        (b"a\r\nbc\r\n", [FileLine(1, b"a"), FileLine(2, b"bc")]),
        (b"a\n\n  \nb", [FileLine(1, b"a"), FileLine(4, b"b")]),
        (b"\xef\xbb\xbfa\nb", [FileLine(1, b"a"), FileLine(2, b"b")]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_lines_and_their_numbers(data: bytes, expected: list[FileLine], chunk: int) -> None:
    assert lines_of(data, chunk) == expected


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_of_a_line_that_is_too_long_only_the_number_is_kept(chunk: int) -> None:
    data = b"short\n" + b"x" * 50 + b"\nlast"
    assert lines_of(data, chunk, limit=10)[2] == FileLine(3, b"last")
    assert [line.data for line in lines_of(data, chunk, limit=10)] == [b"short", None, b"last"]


LINES = st.binary(max_size=20).filter(lambda data: b"\n" not in data and not data.startswith(b"\xef\xbb\xbf"))


@given(st.lists(LINES, max_size=10), st.integers(1, 30))
def test_every_line_is_given_under_its_number(parts: list[bytes], chunk: int) -> None:
    bare = [part.removesuffix(b"\r") for part in parts]
    expected = [FileLine(number, line) for number, line in enumerate(bare, 1) if line.strip()]
    assert lines_of(b"\n".join(parts), chunk) == expected
