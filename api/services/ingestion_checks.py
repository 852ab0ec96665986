"""What a server and a key let an ingestion do: folders, connections, the size of chunks."""

from collections.abc import Sequence
from urllib.parse import unquote

from api.schemas.new_ingestion import Chunking, NewIngestion, PostgresSink, Sink, Source, StaticChunking
from tasks.datasets import places
from tasks.errors import Invalid, SourceFailed
from tasks.records.api_keys import Limits
from tasks.records.ingestions import Ingestion
from worker_config.settings import Settings


def check_new(asked: NewIngestion, settings: Settings, limits: Limits, max_tokens: int | None) -> None:
    """Checks what a key with these limits asks for. `max_tokens`: of the model; None: not known yet.

    Raises:
        SourceFailed: the server or the key may not read this.
        Invalid: the model reads fewer tokens, or the key may not load there.
    """
    check_source(asked.source, settings, limits)
    _check_chunking(asked.chunking, max_tokens)
    check_sink(asked.sink, settings, limits)


def check_source(source: Source, settings: Settings, limits: Limits) -> None:
    """Raises `SourceFailed` for the first URL that the server or the key may not read."""
    for index, url in enumerate(source.urls):
        # Only what its name tells: the worker that reads looks at links, too.
        fault = _fault(_plain(url), settings.ingest_roots, limits.roots)
        if fault is not None:
            raise SourceFailed(fault, param=f"source.urls[{index}]")


def _check_chunking(chunking: Chunking, max_tokens: int | None) -> None:
    size = chunking.static.max_chunk_size_tokens if isinstance(chunking, StaticChunking) else 0
    if max_tokens is not None and size > max_tokens:
        raise Invalid(
            "invalid_value",
            f"max_chunk_size_tokens is {size:,}; the model reads {max_tokens:,} tokens, special ones included.",
            param="chunking.static.max_chunk_size_tokens",
        )


def check_sink(sink: Sink, settings: Settings, limits: Limits) -> None:
    """Raises `Invalid` for a connection or a table that the key may not use, and where datasets have no place."""
    if not isinstance(sink, PostgresSink):
        places.check_sink(sink.model_dump(), settings)
        return
    named = None if limits.sinks is None else {entry.partition("/")[0] for entry in limits.sinks}
    connections = [name for name, _ in settings.sinks if named is None or name in named]
    if sink.name not in connections:
        which = f"it has: {', '.join(connections)}" if connections else "it has none; EMBEDQ_SINKS names them"
        raise Invalid("invalid_value", f"sink.name is no connection of this server; {which}.", param="sink.name")
    if not limits.may_load_into(sink.name, sink.table):
        raise Invalid("invalid_value", "Your key may not load into this table of this connection.", param="sink.table")


def check_again(made: Ingestion, settings: Settings, limits: Limits) -> None:
    """Checks whether the owner's key may still do what it was let do when this ingestion was made.

    Raises:
        Invalid: it may not load into this table any more.
        SourceFailed: it may read other folders than those that were checked.
    """
    sink = made.spec["sink"]
    if sink["type"] == "postgresql":
        if limits.sinks is not None:
            check_sink(PostgresSink.model_validate(sink), settings, limits)
        if made.record.shares_table and not limits.shares_table(sink["name"], sink["table"]):
            raise Invalid(
                "invalid_value",
                "The limits of your key do not name this table any more. Start a new ingestion.",
                param="sink.table",
            )
    if limits.roots is not None and "urls" in made.spec["source"] and made.record.roots != tuple(limits.roots):
        raise SourceFailed("The folders and URLs that your key may read have changed. Start a new ingestion.")


def _fault(path: str, of_server: Sequence[str], of_key: Sequence[str] | None) -> str | None:
    tops = _tops(path, of_server)
    if not of_server:
        return (
            "This server reads no folders and URLs. Its operator allows them in EMBEDQ_INGEST_ROOTS; or upload files."
        )
    if not tops or ".." in unquote(path).split("/"):
        return "This is not below one of the folders and URLs that the server may read (EMBEDQ_INGEST_ROOTS)."
    if all(_is_hidden(path[len(top) :]) for top in tops):
        return "Files and folders whose names begin with a dot are not read."
    if of_key is not None and not _tops(path, of_key):
        return "This is not below one of the folders and URLs that your key may read."
    return None


def _tops(path: str, roots: Sequence[str]) -> list[str]:
    return [top for top in (_plain(root).rstrip("/") for root in roots) if path == top or path.startswith(top + "/")]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != "." for part in unquote(path).split("/"))


def _plain(url: str) -> str:
    return url.removeprefix("file://")
