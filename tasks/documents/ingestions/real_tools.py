"""The tools of the documents worker, put together. Their libraries are extras, imported when a job needs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import orjson

from tasks.documents.chunking.types import ChunkSettings
from tasks.documents.context import JobContext, StepContext
from tasks.documents.ingestions.owned_files import OwnedFiles
from tasks.documents.ingestions.pipeline import chunk_settings, prompt_name
from tasks.documents.ingestions.tools import Cuts, Parses, Tools
from tasks.documents.parsing.limits import ParseLimits
from tasks.documents.parsing.types import PARSER_VERSION
from tasks.documents.sinks.types import Sink
from tasks.documents.sources.records_apart import RecordProcesses
from tasks.documents.sources.types import Source
from tasks.errors import Unavailable
from tasks.ledger import ModelEntry
from tasks.ledger.ingestions import Ingestion

_CHUNKERS = 4
"""Kept: making one takes longer than a small page, and it remembers words."""


def _source(context: JobContext, ingestion: Ingestion) -> Source:
    from tasks.documents.sources.access import SourceAccess, SourceLimits  # noqa: PLC0415 - as above
    from tasks.documents.sources.registry import open_source  # noqa: PLC0415 - as above

    settings = context.settings
    access = SourceAccess(
        storage=context.storage,
        files=OwnedFiles(context.ledger, ingestion.owner),
        inline=ingestion.spec.get("inline"),
        listed=ingestion.spec.get("listed"),
        roots=context.settings.ingest_roots,
        limits=SourceLimits(settings.ingest_max_document_bytes, settings.ingest_max_record_bytes),
        apart=_record_processes(ParseLimits(settings.parse_timeout_s, settings.parse_memory_bytes)),
        progress=context.progress,
    )
    return open_source(ingestion.spec["source"], access)


@lru_cache(maxsize=1)
def _record_processes(limits: ParseLimits) -> RecordProcesses:
    return RecordProcesses(limits)


@contextmanager
def _parser(context: JobContext) -> Iterator[Parses]:
    from tasks.documents.parsing.parser import Parser, ParserNotStarted  # noqa: PLC0415 - as above

    settings = context.settings
    try:
        with Parser(ParseLimits(settings.parse_timeout_s, settings.parse_memory_bytes), context.progress) as parser:
            yield parser
    except ParserNotStarted:  # the machine is short of something: no document's fault
        raise Unavailable("No process can be started that parses documents.", retry_after_s=5) from None


def _chunker(context: JobContext | StepContext, ingestion: Ingestion, entry: ModelEntry) -> Cuts:
    from tasks.documents.chunking.tokens import load_prompt, load_tokenizer  # noqa: PLC0415 - as above

    prompt = load_prompt(context.storage, entry, prompt_name(ingestion.spec, entry))
    settings = orjson.dumps(chunk_settings(ingestion.spec).to_json())
    return _made(load_tokenizer(context.storage, entry), entry.max_tokens, prompt, settings)


@lru_cache(maxsize=_CHUNKERS)
def _made(tokenizer_json: bytes, window: int, prompt: str, settings: bytes) -> Cuts:
    from tasks.documents.chunking.chunker import Chunker  # noqa: PLC0415 - as above

    return Chunker(tokenizer_json, window, prompt, ChunkSettings.from_json(orjson.loads(settings)))


def _sink(context: JobContext, ingestion: Ingestion) -> Sink:
    from tasks.documents.sinks.registry import open_sink  # noqa: PLC0415 - as above

    return open_sink(
        ingestion.spec["sink"],
        owner=ingestion.owner,
        ingestion=ingestion.id,
        storage=context.storage,
        settings=context.settings,
    )


TOOLS = Tools(source=_source, parser=_parser, chunker=_chunker, sink=_sink, parser_version=PARSER_VERSION)
