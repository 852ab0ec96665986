"""What is wrong with the body of an ingestion beyond the form of its fields."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel

from api.ingestion_schemas import (
    Chunking,
    Fields,
    FileReference,
    IngestionBody,
    InlineDocument,
    Sink,
    Source,
    StaticChunking,
)
from api.validation import require_known
from tasks.errors import InvalidValue, MissingParameter, SourceFailed
from tasks.ledger.ingestions import MAX_METADATA_DEPTH, is_too_deep
from worker_config.settings import Settings

_OBJECTS: Sequence[tuple[tuple[str, ...], type[BaseModel]]] = (
    (("source",), Source),
    (("source", "fields"), Fields),
    (("chunking",), Chunking),
    (("chunking", "static"), StaticChunking),
    (("sink",), Sink),
)
_LISTS: Sequence[tuple[str, type[BaseModel]]] = (("files", FileReference), ("documents", InlineDocument))


def require_known_fields(body: Mapping[str, Any]) -> None:
    """Raises `UnknownParameter` for a field that is not one of ours, however deep; it names the nearest that is."""
    for path, kind in _OBJECTS:
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            require_known(value, kind, ".".join(path) + ".")
    source = body.get("source")
    for name, kind in _LISTS:
        items = source.get(name) if isinstance(source, Mapping) else None
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                require_known(item, kind, f"source.{name}[{index}].")


def check_source(source: Source, settings: Settings) -> None:
    """Raises `MissingParameter`, `InvalidValue` or `SourceFailed` where nothing can be read."""
    given = [name for name in ("files", "urls", "documents") if getattr(source, name) is not None]
    if not given:
        raise MissingParameter("source needs one of files, urls and documents.", param="source")
    if len(given) > 1:
        raise InvalidValue(
            f"source has {' and '.join(given)}; one ingestion has one kind of source.", param=f"source.{given[1]}"
        )
    _check_metadata("files", [file.metadata for file in source.files or ()])
    _check_metadata("documents", [document.metadata for document in source.documents or ()])
    for index, url in enumerate(source.urls or ()):
        _check_url(url, settings.ingest_roots, f"source.urls[{index}]")


def check_chunking(chunking: Chunking, max_tokens: int | None) -> None:
    """Raises `MissingParameter` or `InvalidValue`. `max_tokens`: of the model; None: not known yet."""
    static = chunking.static
    if chunking.type != "static":
        if static is not None:
            raise InvalidValue("chunking.static is for the type static only.", param="chunking.static")
        return
    if static is None:
        raise MissingParameter("chunking.static is missing: the type static needs it.", param="chunking.static")
    size, overlap = static.max_chunk_size_tokens, static.chunk_overlap_tokens
    if max_tokens is not None and size > max_tokens:
        raise InvalidValue(
            f"max_chunk_size_tokens is {size:,}; the model reads {max_tokens:,} tokens, special ones included.",
            param="chunking.static.max_chunk_size_tokens",
        )
    if overlap > size // 2:
        raise InvalidValue(
            f"chunk_overlap_tokens is {overlap:,}; at most half of max_chunk_size_tokens is possible: {size // 2:,}.",
            param="chunking.static.chunk_overlap_tokens",
        )


def check_sink(sink: Sink, settings: Settings) -> None:
    """Raises `MissingParameter` or `InvalidValue` where nothing can be loaded."""
    foreign = ("name", "table") if sink.type == "parquet" else ("dataset",)
    unfit = next((name for name in foreign if getattr(sink, name) is not None), None)
    if unfit:
        raise InvalidValue(f"sink.{unfit} is not for the type {sink.type}.", param=f"sink.{unfit}")
    if sink.type == "parquet":
        return
    for name in ("name", "table"):
        if getattr(sink, name) is None:
            raise MissingParameter(f"sink.{name} is missing: the type postgresql needs it.", param=f"sink.{name}")
    known = [name for name, _ in settings.sinks]
    if sink.name not in known:
        named = f"it has: {', '.join(known)}" if known else "it has none; EMBEDQ_SINKS names them"
        raise InvalidValue(f"sink.name is no connection of this server; {named}.", param="sink.name")


def check_body(body: IngestionBody, settings: Settings, max_tokens: int | None) -> None:
    """All of the above; raises what they raise."""
    check_source(body.source, settings)
    if body.chunking is not None:
        check_chunking(body.chunking, max_tokens)
    if body.sink is not None:
        check_sink(body.sink, settings)


def _check_metadata(kind: str, given: Sequence[Mapping[str, Any] | None]) -> None:
    for index, metadata in enumerate(given):
        if metadata and is_too_deep(metadata):
            raise InvalidValue(
                f"metadata may have at most {MAX_METADATA_DEPTH} levels of objects and lists.",
                param=f"source.{kind}[{index}].metadata",
            )


def _check_url(url: str, roots: Sequence[str], param: str) -> None:
    # Only what its name tells: the worker that reads looks at links, too.
    if not roots:
        raise SourceFailed(
            "This server reads no folders and URLs. Its operator allows them in EMBEDQ_INGEST_ROOTS; or upload files.",
            param=param,
        )
    path = _plain(url)
    tops = [top for top in (_plain(root).rstrip("/") for root in roots) if path == top or path.startswith(top + "/")]
    if not tops or ".." in unquote(path).split("/"):
        raise SourceFailed(
            "This is not below one of the folders and URLs that the server may read (EMBEDQ_INGEST_ROOTS).", param=param
        )
    if all(_is_hidden(path[len(top) :]) for top in tops):
        raise SourceFailed("Files and folders whose names begin with a dot are not read.", param=param)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != "." for part in unquote(path).split("/"))


def _plain(url: str) -> str:
    return url.removeprefix("file://")
