"""Pages of what a dataset holds: its documents and its chunks, in the order of its parts.

A page reads the row groups that it shows, never a whole part. All chunks of a document stand in one part, one after the
other, so a place in a part is enough to go on from.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.errors import Invalid
from tasks.records.datasets import Catalog, DatasetPart, dataset_folder
from tasks.search.nearest_chunks import CHUNK_COLUMNS
from tasks.search.parts import PartReader, row_groups
from tasks.search.row_filter import may_hold

T = TypeVar("T")
Row = Mapping[str, Any]

_DOCUMENT_COLUMNS = ("doc_id", "source_uri", "headings", "metadata")
_PLACE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})")
_PLACE_BYTES = 512
"""Of a remembered place, beside the id of its document."""


class Place(NamedTuple):
    """A row: the number of its part, its number there, and that of its chunk in the document."""

    part: int
    row: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.part}-{self.row}-{self.chunk}"

    @classmethod
    def from_text(cls, text: str) -> "Place":
        """Inverse of `str`; raises `Invalid`."""
        match = _PLACE.fullmatch(text)
        if match is None:
            raise Invalid("invalid_value", "after must be the last_id of the page before.", param="after")
        return cls(*map(int, match.groups()))


@dataclass(frozen=True, slots=True)
class ContentPage(Generic[T]):
    """Some rows or documents. `until`: the place of the last one; None where there are none."""

    items: Sequence[T]
    until: Place | None
    more: bool


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document: how many chunks it has, and the row of the first one."""

    chunks: int
    row: Row


def page_of_chunks(reader: PartReader, catalog: Catalog, after: Place | None, limit: int) -> ContentPage[Row]:
    """Chunks behind a place. If its part is gone, since the dataset has changed, those of all later parts.

    Raises:
        StorageUnavailable, NotStored, NotReady: as `PartReader`.
    """
    rows: list[Row] = []
    until = None
    parts = _from(catalog, after)
    for number, part in enumerate(parts):
        first = after.row + 1 if after and after.part == part.number else 0
        last = min(part.rows, first + limit - len(rows))
        found = reader.rows(part, range(first, last), CHUNK_COLUMNS) if first < last else {}
        rows += found.values()
        if found:
            until = Place(part.number, last - 1, rows[-1]["chunk_index"])
        if len(rows) == limit:
            return ContentPage(rows, until, last < part.rows or number + 1 < len(parts))
    return ContentPage(rows, until, more=False)


def chunks_of_document(
    reader: PartReader, catalog: Catalog, document_id: str, after: Place | None, limit: int
) -> ContentPage[Row]:
    """Chunks of one document behind a place of it; none if it is not in the dataset. Raises the same."""
    start = reader.kept.value(
        ("document", dataset_folder(catalog.owner, catalog.dataset), catalog.token, document_id),
        _PLACE_BYTES + 4 * len(document_id),
        lambda: (_find(reader, catalog, document_id),),
    )[0]
    part = next((part for part in catalog.parts if start and part.number == start.part), None)
    if start is None or part is None:
        return ContentPage((), None, more=False)
    first = start.row + (after.chunk + 1 if after else 0)
    wanted = range(first, min(part.rows, first + limit + 1))
    rows = [row for row in reader.rows(part, wanted, CHUNK_COLUMNS).values() if row["doc_id"] == document_id]
    shown = rows[:limit]
    until = Place(part.number, first + len(shown) - 1, shown[-1]["chunk_index"]) if shown else None
    return ContentPage(shown, until, more=len(rows) > limit)


def page_of_documents(
    reader: PartReader, catalog: Catalog, after: Place | None, limit: int
) -> ContentPage[StoredDocument]:
    """Documents that have chunks, behind the place of the last chunk of one. Raises the same."""
    documents: list[StoredDocument] = []
    until = None
    parts = _from(catalog, after)
    for number, part in enumerate(parts):
        first = after.row + 1 if after and after.part == part.number else 0
        # One more than is shown: where it begins, the one before has ended.
        marks = list(islice(chain(_starts(reader, part, first), [part.rows]), limit - len(documents) + 1))
        if len(marks) > 1:
            rows = reader.rows(part, marks[:-1], _DOCUMENT_COLUMNS)
            documents += [StoredDocument(end - start, rows[start]) for start, end in pairwise(marks)]
            until = Place(part.number, marks[-1] - 1, marks[-1] - marks[-2] - 1)
        if len(documents) == limit:
            return ContentPage(documents, until, marks[-1] < part.rows or number + 1 < len(parts))
    return ContentPage(documents, until, more=False)


def _from(catalog: Catalog, after: Place | None) -> list[DatasetPart]:
    return [part for part in catalog.listed if after is None or part.number >= after.part]


def _starts(reader: PartReader, part: DatasetPart, first: int) -> Iterator[int]:
    """The rows from `first` on with which a document begins; `first` is one."""
    with reader.open(part) as file:
        before: str | None = None
        for group, (start, end) in enumerate(row_groups(file)):
            if end <= first or (before is not None and _is_all_of(file, group, before)):
                continue
            reader.check()
            ids = file.read_row_group(group, columns=["doc_id"])["doc_id"].combine_chunks()
            ids = ids.slice(max(0, first - start)).dictionary_encode()
            codes = ids.indices.to_numpy()
            begins = np.flatnonzero(np.diff(codes, prepend=-1))
            if ids.dictionary[int(codes[0])].as_py() == before:
                begins = begins[1:]
            yield from (begins + max(start, first)).tolist()
            before = ids.dictionary[int(codes[-1])].as_py()


def _find(reader: PartReader, catalog: Catalog, document_id: str) -> Place | None:
    """The first row of a document. Of row groups that may have it, by their statistics, the ids are read."""
    for part in catalog.listed:
        with reader.open(part) as file:
            for group, (start, _) in enumerate(row_groups(file)):
                if may_hold(file, group, document_id):
                    reader.check()
                    ids = file.read_row_group(group, columns=["doc_id"])["doc_id"]
                    at = pc.index(ids, document_id).as_py()
                    if at >= 0:
                        return Place(part.number, start + at, 0)
    return None


def _is_all_of(file: pq.ParquetFile, group: int, document_id: str) -> bool:
    """Whether a row group has chunks of this document alone, by its statistics."""
    column = file.metadata.row_group(group).column(file.schema_arrow.get_field_index("doc_id"))
    statistics = column.statistics
    return bool(statistics and statistics.has_min_max and statistics.min == statistics.max == document_id)
