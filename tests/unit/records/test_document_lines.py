"""Lines of what became of documents, however they lie in the pieces in which an object is read."""

from pathlib import Path

import pytest

from tasks.records.documents import read_lines
from tasks.storage.storage import CHUNK_BYTES, Storage

LONG = CHUNK_BYTES - 3
"""A line of this length leaves three bytes of a piece."""


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"one"],
        [b"one", b"two"],
        [b"a" * LONG, b"b", b"c"],
        [b"a" * LONG, b"bb", b"c"],
        [b"a" * LONG, b"bbbb", b"c" * LONG],
        [b"a" * (3 * CHUNK_BYTES), b"b"],
    ],
    ids=["none", "one", "two", "before the edge", "at the edge", "across the edge", "several pieces"],
)
@pytest.mark.parametrize("ended", [True, False])
def test_every_line_is_read_once_and_whole(tmp_path: Path, lines: list[bytes], *, ended: bool) -> None:
    storage = Storage.open(str(tmp_path))
    storage.write("page", b"\n".join(lines) + (b"\n" if ended else b""))

    assert list(read_lines(storage, "page")) == lines
