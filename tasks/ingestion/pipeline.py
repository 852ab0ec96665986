"""What the stages of an ingestion work with: its source, a sandbox, a chunker and its dataset. Made here alone.

Their libraries are extras, imported when a stage needs them.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from tasks.errors import ModelChanged, NotReady, Unavailable
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.context import StageContext
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.skip_unchanged import chunk_settings, prompt_name
from tasks.ledger.client import Ledger
from tasks.ledger.overview import Queue, overview
from tasks.model import Model
from tasks.records.files import FileRecord, read_file
from tasks.records.ingestions import IngestionRecord
from tasks.storage.storage import Storage

if TYPE_CHECKING:
    from tasks.datasets.store import Store
    from tasks.ingestion.chunking.chunker import Chunker
    from tasks.ingestion.parsing.sandbox import Sandbox
    from tasks.ingestion.sources.source import Source

_CHUNKERS = 4
"""Kept: making one takes longer than a small page."""


_last = threading.local()


class OwnedFiles(Mapping[str, FileRecord]):
    """An owner's uploaded files by id; those of others are not there. Raises `RedisUnavailable` whenever it is asked.

    Looked up when they are asked for: a request may name many, and a page needs few.
    """

    def __init__(self, ledger: Ledger, owner: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._known: dict[str, FileRecord] = {}

    def __getitem__(self, file_id: str) -> FileRecord:
        if file_id not in self._known:
            record = self._ledger.run(read_file(file_id))
            if record is None or record.owner != self._owner:
                raise KeyError(file_id)
            self._known[file_id] = record
        return self._known[file_id]

    def __iter__(self) -> Iterator[str]:
        """Those that were asked for."""
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def open_source(context: StageContext, sandbox: "Sandbox") -> "Source":
    """The source of an ingestion, whose records are read in this sandbox. Raises `SourceFailed`."""
    from tasks.ingestion.sources import open_source  # noqa: PLC0415 - as above
    from tasks.ingestion.sources.source import SourceAccess  # noqa: PLC0415 - as above

    settings, record = context.settings, record_of(context)
    access = SourceAccess(
        storage=context.storage,
        ask=sandbox.ask,
        files=OwnedFiles(context.ledger, record.owner),
        listed=record.request.get("listed", "missing"),
        roots=settings.ingest_roots,
        within=record.roots,
        max_document_bytes=settings.ingest_max_document_bytes,
        progress=context.progress,
        page=context.pace.page,
    )
    return open_source.open_source(record.request["source"], access)


@contextmanager
def open_sandbox(context: StageContext) -> "Iterator[Sandbox]":
    """What reads documents, and keeps the table that it has begun to read for the next page.

    The thread keeps it until another owner has work: a document that has taken its parser over reads nobody else's.
    """
    from tasks.ingestion.parsing.sandbox import ParserNotStarted, Sandbox  # noqa: PLC0415 - as above

    limits = ParseLimits(context.settings.parse_timeout_s, context.settings.parse_memory_bytes)
    key = (record_of(context).owner, limits)
    if getattr(_last, "key", None) != key:
        if hasattr(_last, "sandbox"):
            _last.sandbox.close()
        _last.key, _last.sandbox = key, Sandbox(limits)
    sandbox: Sandbox = _last.sandbox
    sandbox.progress = context.progress
    try:
        yield sandbox
    except ParserNotStarted:  # the machine is short of something: no document's fault
        raise Unavailable("No process can be started that parses documents.", retry_after_s=5) from None


def make_chunker(storage: Storage, record: IngestionRecord, model: Model) -> "Chunker":
    """The chunker for an ingestion and the model it is for.

    Raises:
        NotReady: the model's tokenizer is not in the storage.
        Invalid: no chunk can be cut as asked.
        StorageUnavailable: no answer.
    """
    from tasks.ingestion.chunking.count_tokens import load_prompt, load_tokenizer  # noqa: PLC0415 - as above

    prompt = load_prompt(storage, model, prompt_name(record.request, model))
    settings = orjson.dumps(chunk_settings(record.request).to_json())
    return _made(load_tokenizer(storage, model), model.max_tokens, prompt, settings)


@lru_cache(maxsize=_CHUNKERS)
def _made(tokenizer_json: bytes, window: int, prompt: str, settings: bytes) -> "Chunker":
    from tasks.ingestion.chunking.chunker import Chunker  # noqa: PLC0415 - as above

    return Chunker(tokenizer_json, window, prompt, ChunkSettings.from_json(orjson.loads(settings)))


def open_dataset(context: StageContext) -> "Store":
    """The dataset of an ingestion, to be closed. Raises `Invalid`."""
    from tasks.datasets.places import open_store  # noqa: PLC0415 - as above

    record = record_of(context)
    return open_store(
        record.request["sink"],
        context.settings,
        owner=record.owner,
        ingestion=record.id,
        shares_table=record.shares_table,
        label=record.request.get("label", ""),
    )


def served_model(context: StageContext) -> tuple[Queue, Model]:
    """The queue of an ingestion's model, and the model that is served now: the one with which it began.

    Raises:
        NotReady: no worker has loaded it yet.
        ModelChanged: it is another one.
    """
    record = record_of(context)
    queue = context.ledger.run(overview(record.model))[record.model]
    if queue.model is None:
        raise NotReady("No worker has loaded this model yet.")
    require_revision(record, queue.model.revision)
    return queue, queue.model


def require_revision(record: IngestionRecord, revision: str) -> None:
    """Receipts name the revision with which an ingestion began. Raises `ModelChanged` if this is another one."""
    if revision != record.revision:
        raise ModelChanged(
            "The model was replaced while this ingestion ran. Start it again into another dataset or table; or delete "
            "this one before, and all is done anew."
        )


def record_of(context: StageContext) -> IngestionRecord:
    """Of the ingestion."""
    record: IngestionRecord = context.job.record
    return record
