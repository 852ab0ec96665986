"""From a request's `source` to what lists and reads it. A new kind is one more entry of `SOURCES`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tasks.ingestion.sources.ranges import RecordFile
from tasks.ingestion.sources.source import Entries, Source, SourceAccess
from tasks.ingestion.sources.uploads import Documents, Uploads, read_listed
from tasks.ingestion.sources.urls import Urls

RECORD_FORMATS = ("jsonl", "csv", "tsv", "parquet")
"""Values of `source.format`: what every file is then taken for, whatever its name. The API allows no others."""
RECORD_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_OWN_FIELDS = {"id": "id", "text": "text"}


def open_source(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    """The source that a request names, by one of the fields in `SOURCES`; with `fields`, `format` and `records`.

    Raises:
        SourceFailed: a URL lies outside of what may be read.
        StorageUnavailable: it does not answer now.
    """
    make = next(make for name, make in SOURCES.items() if spec.get(name))
    return Source(make(spec, access), _formats(spec, access), access)


def _listed(spec: Mapping[str, Any], kind: str, access: SourceAccess) -> Callable[[], Sequence[Any]]:
    """What a request lists; most hold only how many they are."""
    names: Sequence[Any] | int = spec[kind]
    return lambda: read_listed(access, f"source.{kind}") if isinstance(names, int) else names


def _formats(spec: Mapping[str, Any], access: SourceAccess) -> Callable[[str], RecordFile | None]:
    """From a file's name to the format of its records; None: it is one document."""
    fields, chosen = spec.get("fields") or {}, spec.get("format")
    if spec.get("documents"):
        fields, chosen = _OWN_FIELDS, "jsonl"
    elif spec.get("records") is False:
        return lambda _: None
    formats = {kind: RecordFile(kind, fields, access.max_record_bytes, access.ask) for kind in RECORD_FORMATS}
    return lambda name: formats.get(chosen or RECORD_ENDINGS.get(PurePosixPath(name).suffix.lower(), ""))


SOURCES: Mapping[str, Callable[[Mapping[str, Any], SourceAccess], Entries]] = {
    "files": lambda spec, access: Uploads(_listed(spec, "files", access), access),
    "urls": lambda spec, access: Urls(_listed(spec, "urls", access)(), access),
    "documents": lambda _, access: Documents(access),
}
"""Fields of `source`, one of which a request has. The API has the same in `api/schemas/new_ingestion.py`."""
