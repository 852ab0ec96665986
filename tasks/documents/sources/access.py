"""What a source may use: uploads, roots, storage, and the limits of one document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.documents.sources.records_process import RecordProcesses
from tasks.documents.sources.roots import is_allowed, is_within, real_roots
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
    """Limits of one document. `max_document_bytes`: of a file; `max_record_bytes`: of a line, or the texts of a row."""

    max_document_bytes: int = 100 * 2**20
    max_record_bytes: int = 16 * 2**20


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """What a source may use.

    Attributes:
        files: the owner's uploads that the request names, by id; an upload that is not here was deleted.
        inline: name in the storage of the request's `documents`, a JSON list.
        listed: name in the storage of its `files` or `urls`, where the request itself holds only their number.
        roots: folders and URL prefixes that may be read.
        within: those of them that the owner's key may read; None: all.
        apart: processes for formats whose library trusts the file; None: this process reads them.
        progress: to be called about once a second; its exceptions are passed on.
        page: when a page of a listing is full.
        names: the windows of names that this process keeps of folders while they are listed.
        s3_keys: keys in one answer of S3, which gives a thousand at most.
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
    within: Sequence[str] | None = None

    @property
    def tops(self) -> Sequence[str]:
        """Folders and URL prefixes at which what may be read begins."""
        return self.roots if self.within is None else self.within

    def allows(self, scheme: str, path: str) -> bool:
        """Whether a file or folder with this name may be read."""
        return is_allowed(scheme, path, self.roots) and is_allowed(scheme, path, self.tops)

    def real_tops(self) -> list[str]:
        """The folders among `tops`, without links. Each is in a root itself."""
        roots = real_roots(self.roots)
        return [top for top in real_roots(self.tops) if any(is_within(top, root) for root in roots)]
