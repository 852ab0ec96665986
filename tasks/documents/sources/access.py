"""What a source may use, and within which bounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.documents.sources.records_process import RecordProcesses
from tasks.documents.sources.source import FULL_PAGE, PageLimits
from tasks.documents.sources.walk import SortedNames, sorted_names
from tasks.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file: its id, its name in the storage, what its owner called it, its size."""

    id: str
    stored: str
    filename: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Of one document. `max_document_bytes`: a file's bytes; `max_record_bytes`: a record's line, or a row's texts."""

    max_document_bytes: int = 100 * 2**20
    max_record_bytes: int = 16 * 2**20


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """What a source may use.

    Attributes:
        files: the owner's uploads that the request names, by id; one that is not here is gone.
        inline: name in the storage of the request's `documents`, a JSON list.
        listed: likewise of its `files` or `urls`, where the request itself holds only their number.
        roots: folders and URL prefixes that may be read.
        apart: processes that read formats whose library trusts what it reads; None: this process reads them.
        progress: to be called once a second or so; whatever it raises passes.
        page: when a page of a listing is full.
        names: what this process knows of folders that are being listed.
        s3_keys: of one answer of S3, which gives no more than a thousand.
    """

    storage: Storage
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    inline: str | None = None
    listed: str | None = None
    roots: Sequence[str] = ()
    limits: SourceLimits = SourceLimits()
    apart: RecordProcesses | None = None
    progress: Callable[[], None] = lambda: None
    page: PageLimits = FULL_PAGE
    names: SortedNames = sorted_names
    s3_keys: int = 1000
