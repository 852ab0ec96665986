"""From a request's `source` to what lists and reads it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.documents.sources.access import SourceAccess
from tasks.documents.sources.csv_records import Csv
from tasks.documents.sources.file_source import FileSource
from tasks.documents.sources.inline import Inline
from tasks.documents.sources.jsonl_records import JsonLines
from tasks.documents.sources.parquet_records import Parquet
from tasks.documents.sources.record_fields import FieldMap
from tasks.documents.sources.records import RecordFormat
from tasks.documents.sources.records_process import RecordsApart
from tasks.documents.sources.source import Source
from tasks.documents.sources.uploads import StoredList, Uploads
from tasks.documents.sources.urls import Urls
from tasks.errors import SourceFailed

FORMATS: Mapping[str, Callable[[FieldMap, int], RecordFormat]] = {
    "jsonl": JsonLines,
    "csv": Csv,
    "tsv": lambda fields, limit: Csv(fields, limit, "\t"),
    "parquet": Parquet,
}
"""Values of `source.format`: what every file is then taken for, whatever its name."""
_BY_ENDING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}


def open_source(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    """The source that a request names by `files`, `urls` or `documents`; with `fields`, `format` and `records`.

    Raises:
        SourceFailed: a URL lies outside of what may be read, or the request names no source or an unknown format.
    """
    fields = FieldMap.of(spec.get("fields") or {})
    if spec.get("documents") is not None:
        return Inline(access)
    if files := _named(spec, "files", access):
        return FileSource(Uploads(files, access), _formats(spec, fields, access), access)
    if urls := _named(spec, "urls", access):
        return FileSource(Urls(urls, access), _formats(spec, fields, access), access)
    raise SourceFailed("Name `files`, `urls` or `documents`.", param="source")


def _named(spec: Mapping[str, Any], kind: str, access: SourceAccess) -> Sequence[Any] | None:
    found: Sequence[Any] | int | None = spec.get(kind)
    if isinstance(found, int):
        return StoredList(access.storage, access.listed or "missing", found, f"source.{kind}")
    return found


def _formats(spec: Mapping[str, Any], fields: FieldMap, access: SourceAccess) -> Callable[[str], RecordFormat | None]:
    asked = spec.get("format")
    if asked is not None and asked not in FORMATS:
        message = f"There is no such format. Use one of {', '.join(FORMATS)}, or leave it out."
        raise SourceFailed(message, param="source.format")
    limit = access.limits.max_record_bytes
    made = {name: make(fields, limit) for name, make in FORMATS.items()}
    if access.apart is not None:
        made["parquet"] = RecordsApart(access.apart, fields, limit)

    def format_of(name: str) -> RecordFormat | None:
        if spec.get("records") is False:
            return None
        kind = asked or _BY_ENDING.get("." + name.rpartition(".")[2].lower())
        return made[kind] if kind else None

    return format_of
