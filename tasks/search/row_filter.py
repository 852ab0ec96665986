"""Which rows of a part a filter lets through: by the document, or by fields of its metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.records.datasets import DatasetPart
from tasks.search.parts import PartReader

DOCUMENT_ID = "document_id"
"""Stands for the document of a chunk, and not for a field of its metadata."""

_KEY_BYTES = 512

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Fields and the value that each must have. A list in the metadata has each of its values."""

    fields: Mapping[str, Scalar]

    def rows(self, reader: PartReader, part: DatasetPart) -> npt.NDArray[np.bool_]:
        """Whether each row of a part gets through. Raises like `PartReader`."""
        # As JSON the number 1 is not true, as in Python's dictionaries it is. A digest, since texts may be long.
        fields = orjson.dumps(dict(self.fields), option=orjson.OPT_SORT_KEYS)
        key = ("filter", part.stored, blake2b(fields, digest_size=32).digest())
        return reader.kept.value(key, _KEY_BYTES + part.rows, lambda: self._read(reader, part))

    def _read(self, reader: PartReader, part: DatasetPart) -> npt.NDArray[np.bool_]:
        groups = [np.zeros(0, np.bool_)]
        with reader.open(part) as file:
            for group in range(file.num_row_groups):
                reader.check()
                groups.append(self._group(file, group))
        return np.concatenate(groups)

    def _group(self, file: pq.ParquetFile, group: int) -> npt.NDArray[np.bool_]:
        through = np.ones(file.metadata.row_group(group).num_rows, np.bool_)
        metadata = dict(self.fields)
        document = metadata.pop(DOCUMENT_ID, None)
        if document is not None:
            if not isinstance(document, str) or not may_hold(file, group, document):
                return ~through
            ids = file.read_row_group(group, columns=["doc_id"])["doc_id"]
            through &= pc.equal(ids, document).to_numpy()
        if metadata and through.any():
            column = file.read_row_group(group, columns=["metadata"])["metadata"].combine_chunks().dictionary_encode()
            fitting = [_has(orjson.loads(text), metadata) for text in column.dictionary.to_pylist()]
            through &= np.array(fitting, np.bool_)[column.indices.to_numpy()]
        return through


def may_hold(file: pq.ParquetFile, group: int, document_id: str) -> bool:
    """Whether a row group may have chunks of a document, by its statistics."""
    column = file.metadata.row_group(group).column(file.schema_arrow.get_field_index("doc_id"))
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    # As bytes of UTF-8, in which Parquet compares texts.
    lowest, highest = (str(limit).encode() for limit in (statistics.min, statistics.max))
    return lowest <= document_id.encode("utf-8", "surrogatepass") <= highest


def _has(metadata: Mapping[str, Any], fields: Mapping[str, Scalar]) -> bool:
    return all(name in metadata and _fits(metadata[name], value) for name, value in fields.items())


def _fits(there: object, value: Scalar) -> bool:
    if isinstance(there, list):
        return any(_fits(one, value) for one in there if not isinstance(one, list))
    return isinstance(there, bool) == isinstance(value, bool) and there == value
