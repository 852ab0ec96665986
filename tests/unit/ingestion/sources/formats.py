"""Making files of records."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq


def jsonl(*records: Any) -> bytes:
    """One line each."""
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def table(rows: list[list[str]], encoding: str = "utf-8", delimiter: str = ",") -> bytes:
    """CSV, quoted where needed."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode(encoding)


def parquet(rows: Sequence[Mapping[str, Any]] | pa.Table, row_group: int = 1000) -> bytes:
    """A file with row groups of that many rows."""
    out = io.BytesIO()
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows])
    pq.write_table(table, out, row_group_size=row_group)
    return out.getvalue()


def files(*ids: str, **more: Any) -> dict[str, Any]:
    """A request's source."""
    return {"files": [*ids], **more}
