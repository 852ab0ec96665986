"""A stored object as an answer: the Range header."""

import pytest

from api.answer.content import byte_range
from tasks.errors import RangeNotSatisfiable

SIZE = 100


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", range(1)),
        ("bytes=0-99", range(100)),
        ("bytes=10-19", range(10, 20)),
        ("Bytes=10-", range(10, 100)),
        ("bytes=90-1000", range(90, 100)),
        ("bytes=-1", range(99, 100)),
        ("bytes=-1000", range(100)),
        ("bytes=0-1,5-6", None),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("items=0-5", None),
        ("bytes=--5", None),
    ],
)
def test_a_range(header: str | None, expected: range | None) -> None:
    assert byte_range(header, SIZE) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_behind_the_end(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        byte_range(header, SIZE)
