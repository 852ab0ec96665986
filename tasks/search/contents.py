"""One version of a dataset as it is asked for: the model of its vectors, the nearest chunks, pages of what it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embedq.vector_search import FoundRow
from tasks.records.datasets import Catalog
from tasks.search.nearest_chunks import model_of, nearest_chunks
from tasks.search.pages import (
    ContentPage,
    Place,
    Row,
    StoredDocument,
    chunks_of_document,
    page_of_chunks,
    page_of_documents,
)
from tasks.search.parts import PartReader
from tasks.search.row_filter import RowFilter


@dataclass(frozen=True, slots=True)
class Contents:
    """What a version holds. All methods raise as `PartReader` does. `after`: `until` of the page before, as a text."""

    reader: PartReader
    catalog: Catalog

    def model(self) -> str | None:
        """The name under which the model of its vectors was served; None where there are none."""
        return model_of(self.reader, self.catalog)

    def nearest(
        self, vector: npt.NDArray[np.floating], limit: int, fields: Mapping[str, str | float | bool] | None
    ) -> list[FoundRow]:
        """The chunks nearest to a vector, best first; of documents whose metadata has these fields.

        Raises:
            ValueError: the vector has no direction, or another length than those of the dataset.
        """
        return nearest_chunks(self.reader, self.catalog, vector, limit, RowFilter(fields) if fields else None)

    def documents(self, after: str | None, limit: int) -> ContentPage[StoredDocument]:
        """A page of documents that have chunks; raises `Invalid` for an `after` that is no place."""
        return page_of_documents(self.reader, self.catalog, _place(after), limit)

    def chunks(self, document_id: str | None, after: str | None, limit: int) -> ContentPage[Row]:
        """A page of chunks, of one document or of all; raises `Invalid` for an `after` that is no place."""
        if document_id:
            return chunks_of_document(self.reader, self.catalog, document_id, _place(after), limit)
        return page_of_chunks(self.reader, self.catalog, _place(after), limit)


def _place(after: str | None) -> Place | None:
    return Place.from_text(after) if after else None
