"""From a request's `source` to what lists and reads it. A new kind is one more entry of `SOURCES`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.errors import SourceFailed
from tasks.ingestion.sources.ranges import RecordFile
from tasks.ingestion.sources.source import Entries, Source, SourceAccess
from tasks.ingestion.sources.uploads import Documents, Uploads, read_listed
from tasks.ingestion.sources.urls import Urls

RECORD_FORMATS = ("jsonl", "csv", "tsv", "parquet")
"""Values of `source.format`: what every file is then taken for, whatever its name."""
_BY_ENDING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_OWN_FIELDS = {"id": "id", "text": "text"}


def open_source(spec: Mapping[str, Any], access: SourceAccess) -> Source:
    """The source that a request names, by one of the fields in `SOURCES`; with `fields`, `format` and `records`.

    Raises:
        SourceFailed: a URL lies outside of what may be read, or the request names no source or an unknown format.
        StorageUnavailable: it does not answer now.
    """
    for name, make in SOURCES.items():
        if spec.get(name):
            fields = _OWN_FIELDS if name == "documents" else spec.get("fields") or {}
            return Source(make(spec, access), _formats(spec, fields, access), access)
    names = [f"`{name}`" for name in SOURCES]
    raise SourceFailed(f"Name {', '.join(names[:-1])} or {names[-1]}.", param="source")


def _listed(spec: Mapping[str, Any], kind: str, access: SourceAccess) -> Callable[[], Sequence[Any]]:
    """What a request lists; most hold only how many they are."""
    names: Sequence[Any] | int = spec[kind]
    return lambda: read_listed(access, f"source.{kind}") if isinstance(names, int) else names


def _formats(
    spec: Mapping[str, Any], fields: Mapping[str, Any], access: SourceAccess
) -> Callable[[str], RecordFile | None]:
    """From a file's name to the format of its records; None: it is one document."""
    chosen = "jsonl" if spec.get("documents") else spec.get("format")
    if chosen is not None and chosen not in RECORD_FORMATS:
        message = f"There is no such format. Use one of {', '.join(RECORD_FORMATS)}, or leave it out."
        raise SourceFailed(message, param="source.format")
    limit = access.max_record_bytes
    formats = {kind: RecordFile(kind, fields, limit, access.ask) for kind in RECORD_FORMATS}

    def format_of(name: str) -> RecordFile | None:
        if spec.get("records") is False and not spec.get("documents"):
            return None
        kind = chosen or _BY_ENDING.get("." + name.rpartition(".")[2].lower())
        return formats[kind] if kind else None

    return format_of


SOURCES: Mapping[str, Callable[[Mapping[str, Any], SourceAccess], Entries]] = {
    "files": lambda spec, access: Uploads(_listed(spec, "files", access), access),
    "urls": lambda spec, access: Urls(_listed(spec, "urls", access)(), access),
    "documents": lambda _, access: Documents(access),
}
"""Fields of `source`, one of which a request has. The API has the same in `api/schemas/new_ingestion.py`."""
