"""From a request's `source` to what lists and reads it. A new kind is one more entry of `SOURCES`."""

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

RECORD_FORMATS: Mapping[str, Callable[[FieldMap, int], RecordFormat]] = {
    "jsonl": JsonLines,
    "csv": Csv,
    "tsv": lambda fields, limit: Csv(fields, limit, "\t"),
    "parquet": Parquet,
}
"""Values of `source.format`: what every file is then taken for, whatever its name."""
_BY_ENDING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}


def open_source(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    """The source that a request names, by one of the fields in `SOURCES`; with `fields`, `format` and `records`.

    Raises:
        SourceFailed: a URL lies outside of what may be read, or the request names no source or an unknown format.
    """
    for name, make in SOURCES.items():
        # An empty list names nothing; an empty `documents` stands for those that the storage has.
        if spec.get(name) is not None and (spec[name] or name == "documents"):
            return make(spec, access)
    names = [f"`{name}`" for name in SOURCES]
    raise SourceFailed(f"Name {', '.join(names[:-1])} or {names[-1]}.", param="source")


def _uploads(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    return FileSource(Uploads(_listed(spec, "files", access), access), _formats(spec, access), access)


def _urls(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    return FileSource(Urls(_listed(spec, "urls", access), access), _formats(spec, access), access)


def _listed(spec: Mapping[str, Any], kind: str, access: SourceAccess) -> Sequence[Any]:
    """What a request lists; of a long list it holds only the length."""
    names: Sequence[Any] | int = spec[kind]
    if isinstance(names, int):
        return StoredList(access.storage, access.listed or "missing", names, f"source.{kind}")
    return names


def _formats(spec: Mapping[str, Any], access: SourceAccess) -> Callable[[str], RecordFormat | None]:
    """From a file's name to the format of its records; None: it is one document."""
    chosen = spec.get("format")
    if chosen is not None and chosen not in RECORD_FORMATS:
        message = f"There is no such format. Use one of {', '.join(RECORD_FORMATS)}, or leave it out."
        raise SourceFailed(message, param="source.format")
    fields, limit = FieldMap.from_request(spec.get("fields") or {}), access.limits.max_record_bytes
    formats = {kind: make(fields, limit) for kind, make in RECORD_FORMATS.items()}
    if access.apart is not None:
        formats["parquet"] = RecordsApart(access.apart, fields, limit)

    def format_of(name: str) -> RecordFormat | None:
        if spec.get("records") is False:
            return None
        kind = chosen or _BY_ENDING.get("." + name.rpartition(".")[2].lower())
        return formats[kind] if kind else None

    return format_of


SOURCES: Mapping[str, Callable[[Mapping[str, Any], SourceAccess], Source]] = {
    "files": _uploads,
    "urls": _urls,
    "documents": lambda _, access: Inline(access),
}
"""Fields of `source`, one of which a request has. The API has the same in `api/schemas/new_ingestion.py`."""
