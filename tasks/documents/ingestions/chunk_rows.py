"""Chunks as rows, in the form of the lines of a batch, so that model workers need not know what an ingestion is."""

from collections.abc import Mapping
from typing import Any

import orjson

from tasks.documents.chunking.types import Chunk
from tasks.ledger.rows import RowIndexWriter
from tasks.ledger.storage import Writer


class ChunkRows:
    """Writes the rows of a page, and cuts them into units.

    Attributes:
        rows: how many there are.
        tokens: of all of them.
        units: number of the first row, number of rows and cost of each unit.
    """

    def __init__(
        self, source: Writer, index: Writer, options: Mapping[str, Any], *, max_items: int, max_cost: int
    ) -> None:
        self._source = source
        self._index = RowIndexWriter(index.write)
        self._options = options
        self._max_items = max_items
        self._max_cost = max_cost
        self.tokens = 0
        self.units: list[list[int]] = []

    @property
    def rows(self) -> int:
        """Written so far."""
        return self._index.rows

    def add(self, chunk: Chunk) -> None:
        """Writes a chunk; raises like `Writer.write`."""
        line = row_line(chunk, self._options)
        self._index.add(self._source.size_bytes, len(line))
        self._source.write(line + b"\n")
        cost = max(1, chunk.token_count)
        self.tokens += chunk.token_count
        last = self.units[-1] if self.units else None
        if last is None or last[1] >= self._max_items or last[2] + cost > self._max_cost:
            self.units.append([self.rows - 1, 1, cost])
        else:
            last[1] += 1
            last[2] += cost


def row_line(chunk: Chunk, options: Mapping[str, Any]) -> bytes:
    """The row of a chunk, without a line break."""
    place = [chunk.index, chunk.start, chunk.end, chunk.page, chunk.headings, chunk.token_count, chunk.truncated]
    return orjson.dumps({"body": {"input": chunk.text, **options}, "c": place})


def chunk_of(line: bytes) -> Chunk:
    """Inverse of `row_line`."""
    known = orjson.loads(line)
    index, start, end, page, headings, tokens, truncated = known["c"]
    return Chunk(index, known["body"]["input"], start, end, page, tuple(headings), tokens, truncated)
