"""What the jobs of an ingestion work with: its source, a parser, a chunker and its sink. Made in this place alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import orjson

from tasks.chunk import Chunk
from tasks.documents.chunking.chunk import ChunkSettings
from tasks.documents.context import JobContext, StepContext
from tasks.documents.ingestions.fingerprint import chunk_settings, prompt_name
from tasks.documents.parsing.limits import ParseLimits
from tasks.documents.parsing.parsed_document import PARSER_VERSION, Block, Parsed
from tasks.documents.sinks.sink import Sink
from tasks.documents.sources.access import StoredFile
from tasks.documents.sources.records_process import RecordProcesses
from tasks.documents.sources.source import Source
from tasks.errors import Unavailable
from tasks.ledger.client import Ledger
from tasks.model import Model
from tasks.records.files import read_file
from tasks.records.ingestions import Ingestion


class Parses(Protocol):
    """Turns a file's bytes into text."""

    def parse(self, data: bytes, name: str) -> Parsed:
        """See `tasks.documents.parsing.parser.Parser.parse`."""


class Cuts(Protocol):
    """Cuts text into chunks."""

    def chunks(self, text: str, blocks: Sequence[Block], pages: Sequence[int]) -> Iterable[Chunk]:
        """See `tasks.documents.chunking.chunker.Chunker.chunks`."""


@dataclass(frozen=True, slots=True)
class Tools:
    """How to get them.

    Attributes:
        source: of an ingestion. Raises `SourceFailed`.
        parser: for one run of a job.
        chunker: for an ingestion and the model it is for. Raises `NotReady` while the model's tokenizer is not there,
            and `Invalid` where no chunk can be cut as asked.
        sink: of an ingestion, to be closed. Raises `Invalid`.
        parser_version: part of the fingerprint.
    """

    source: Callable[[JobContext, Ingestion], Source]
    parser: Callable[[JobContext], AbstractContextManager[Parses]]
    chunker: Callable[[JobContext | StepContext, Ingestion, Model], Cuts]
    sink: Callable[[JobContext, Ingestion], Sink]
    parser_version: str


# An owner's uploaded files, looked up when they are asked for: a request may name many, and a page needs few.


class OwnedFiles(Mapping[str, StoredFile]):
    """By id; those of others are not there. Raises `RedisUnavailable` whenever it is asked."""

    def __init__(self, ledger: Ledger, owner: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._known: dict[str, StoredFile] = {}

    def __getitem__(self, file_id: str) -> StoredFile:
        if file_id not in self._known:
            record = self._ledger.run(read_file(file_id))
            if record is None or record.owner != self._owner:
                raise KeyError(file_id)
            self._known[file_id] = StoredFile(file_id, record.stored, record.filename, record.size_bytes)
        return self._known[file_id]

    def __iter__(self) -> Iterator[str]:
        """Those that were asked for."""
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


# The tools of the documents worker, put together. Their libraries are extras, imported when a job needs them.

_CHUNKERS = 4
"""Kept: making one takes longer than a small page, and it remembers words."""


def _source(context: JobContext, ingestion: Ingestion) -> Source:
    from tasks.documents.sources.access import SourceAccess, SourceLimits  # noqa: PLC0415 - as above
    from tasks.documents.sources.source_kinds import open_source  # noqa: PLC0415 - as above

    settings = context.settings
    access = SourceAccess(
        storage=context.storage,
        files=OwnedFiles(context.ledger, ingestion.owner),
        inline=ingestion.spec.get("inline"),
        listed=ingestion.spec.get("listed"),
        roots=context.settings.ingest_roots,
        within=ingestion.roots,
        limits=SourceLimits(settings.ingest_max_document_bytes, settings.ingest_max_record_bytes),
        apart=_record_processes(ParseLimits(settings.parse_timeout_s, settings.parse_memory_bytes)),
        progress=context.progress,
        page=context.pace.page,
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


def _chunker(context: JobContext | StepContext, ingestion: Ingestion, entry: Model) -> Cuts:
    from tasks.documents.chunking.tokens import load_prompt, load_tokenizer  # noqa: PLC0415 - as above

    prompt = load_prompt(context.storage, entry, prompt_name(ingestion.spec, entry))
    settings = orjson.dumps(chunk_settings(ingestion.spec).to_json())
    return _made(load_tokenizer(context.storage, entry), entry.max_tokens, prompt, settings)


@lru_cache(maxsize=_CHUNKERS)
def _made(tokenizer_json: bytes, window: int, prompt: str, settings: bytes) -> Cuts:
    from tasks.documents.chunking.chunker import Chunker  # noqa: PLC0415 - as above

    return Chunker(tokenizer_json, window, prompt, ChunkSettings.from_json(orjson.loads(settings)))


def _sink(context: JobContext, ingestion: Ingestion) -> Sink:
    from tasks.documents.sinks.sink_kinds import SinkAccess, open_sink  # noqa: PLC0415 - as above

    access = SinkAccess(ingestion.owner, ingestion.id, context.storage, context.settings, ingestion.shares_table)
    return open_sink(ingestion.spec["sink"], access)


TOOLS = Tools(source=_source, parser=_parser, chunker=_chunker, sink=_sink, parser_version=PARSER_VERSION)
