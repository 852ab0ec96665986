"""The tables of a PostgreSQL sink: their names and columns. Needs no library: requests are checked without it."""

import re
from dataclasses import dataclass
from typing import Self

from tasks.errors import Invalid

COLUMNS = (
    "doc_id",
    "chunk_id",
    "chunk_index",
    "text",
    "start",
    "end",
    "page",
    "headings",
    "token_count",
    "truncated",
    "source_uri",
    "content_hash",
    "metadata",
    "embedding",
    "model",
    "model_revision",
)
RECEIPT = (
    *("doc_id", "content_hash", "fingerprint", "ingestion", "page", "chunks", "ingestion_order", "origin"),
    "vectors",
)
"""Columns of the table of documents: those of `Receipt`, and last `Stamp.vectors`."""

# PostgreSQL cuts names at 63 bytes, and "_documents" and "_doc_id_idx" come behind the table's.
_NAME = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]{0,49})\.)?([A-Za-z_][A-Za-z0-9_]{0,49})")


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a sink, and beside it that of its documents. Names are kept as they are written."""

    schema: str | None
    name: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From `table` or `schema.table`.

        Raises:
            Invalid: it is neither.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise Invalid(
                "invalid_value",
                "sink.table must be table or schema.table, each of at most 50 letters, digits and _, "
                "beginning with no digit.",
                param="sink.table",
            )
        return cls(match[1], match[2])

    @property
    def rows(self) -> str:
        """Quoted name of the table of chunks."""
        return self._quoted(self.name)

    @property
    def documents(self) -> str:
        """Quoted name of the table of receipts."""
        return self._quoted(f"{self.name}_documents")

    @property
    def lock(self) -> str:
        """What writers lock."""
        return f"embedq:{self.rows}"

    def _quoted(self, name: str) -> str:
        return f'"{self.schema}"."{name}"' if self.schema else f'"{name}"'


def quoted(columns: tuple[str, ...] = COLUMNS) -> str:
    """A list of columns for SQL: `end` is a word of its language."""
    return ", ".join(f'"{column}"' for column in columns)
