"""What the jobs of an ingestion work with: its source, a parser, a chunker and its sink. Made in this place alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tasks.documents.chunking.types import Chunk
from tasks.documents.context import JobContext, StepContext
from tasks.documents.parsing.types import Block, Parsed
from tasks.documents.sinks.types import Sink
from tasks.documents.sources.types import Source
from tasks.ledger import ModelEntry
from tasks.ledger.ingestions import Ingestion


class Parses(Protocol):
    """Turns a file's bytes into text."""

    def parse(self, data: bytes, name: str) -> Parsed:
        """See `tasks.documents.parsing.parser.Parser.parse`."""


class Cuts(Protocol):
    """Cuts text into chunks."""

    def chunks(self, text: str, blocks: Sequence[Block], pages: Sequence[int]) -> Iterator[Chunk]:
        """See `tasks.documents.chunking.chunker.Chunker.chunks`."""


@dataclass(frozen=True, slots=True)
class Tools:
    """How to get them.

    Attributes:
        source: of an ingestion. Raises `SourceFailed`.
        parser: for one run of a job.
        chunker: for an ingestion and the model it is for. Raises `NotReady` while the model's tokenizer is not there,
            and `InvalidValue` where no chunk can be cut as asked.
        sink: of an ingestion, to be closed. Raises `SinkRefused` or `InvalidValue`.
        parser_version: part of the fingerprint.
    """

    source: Callable[[JobContext, Ingestion], Source]
    parser: Callable[[JobContext], AbstractContextManager[Parses]]
    chunker: Callable[[JobContext | StepContext, Ingestion, ModelEntry], Cuts]
    sink: Callable[[JobContext, Ingestion], Sink]
    parser_version: str
