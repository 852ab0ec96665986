"""Ids that an ingestion has listed: the second document with an id is told wherever its page comes, and on each run.

A sink cannot tell: unchanged documents never reach it. Each listing stores the ids that it has met, behind the name of
what the listing before it stored. A process keeps what it has read of an ingestion, outside memory (`Runs`): the next
listing reads only what is new.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tasks.documents.context import JobContext
from tasks.documents.sorted_runs import Keys, Records, Runs, keys_of
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.source import DocumentRef, ListedFault
from tasks.errors import NotStored
from tasks.records.document_outcomes import read_listed, read_outcomes
from tasks.records.ingestion_operations import read_closed
from tasks.records.ingestions import Ingestion

_KEPT = 16
"""Ingestions of which a process keeps the ids: 20 bytes each in the temporary folder, and some open files."""
_NAMED_PAGES = 16
"""Earlier pages that one listing reads to say where the first document with an id is; the others go without."""
_KEY_BYTES, _PAGE = 16, np.dtype("<u4")


@dataclass(slots=True)
class _Known:
    """Ids up to what one listing has written: all of them are of listings that were taken in."""

    last: str = ""
    runs: Runs = field(default_factory=lambda: Runs(_PAGE))


_known: "OrderedDict[str, _Known]" = OrderedDict()
"""Of this process, whose jobs run one after the other; those used last are at the end."""


class ListedIds:
    """The ids of one listing and of those before it.

    Raises `StorageUnavailable`, `NotStored` and `DiskFull` when it is made.
    """

    def __init__(self, context: JobContext, ingestion: Ingestion) -> None:
        self._context = context
        self._ingestion = ingestion
        self._before = _up_to(context, ingestion)
        self._uris: dict[str, tuple[int, str]] = {}  # of this listing: page and uri
        self._pages_read: dict[int, dict[str, str]] = {}

    def admitted(self, documents: Sequence[DocumentRef], page: int) -> Iterator[DocumentRef | ListedFault]:
        """The documents of the next page, with a fault in place of those whose id an earlier page has."""
        earlier = dict(self._before.runs.find(keys_of(ref.id for ref in documents))) if self._before.last else {}
        for at, ref in enumerate(documents):
            here = self._uris.get(ref.id)
            if here is not None:
                yield ListedFault(ref.id, ref.uri, duplicate(here[1]))
            elif at in earlier:
                yield ListedFault(ref.id, ref.uri, duplicate(self._uri(int(earlier[at]), ref.id)))
            else:
                self._uris[ref.id] = (page, ref.uri)
                yield ref

    def written(self) -> str:
        """The name under which the next listing finds them; raises like `Storage.writing`."""
        name = f"{self._ingestion.ids_folder}{self._ingestion.list_number:08d}.{self._context.fence}"
        pages = np.array([page for page, _ in self._uris.values()], _PAGE)
        data = self._ingestion.ids.encode() + b"\n" + keys_of(self._uris).tobytes() + pages.tobytes()
        self._context.storage.write(name, data)
        return name

    def _uri(self, page: int, document_id: str) -> str | None:
        if page not in self._pages_read:
            if len(self._pages_read) >= _NAMED_PAGES:
                return None
            self._context.progress()
            self._pages_read[page] = dict(self._listed(page))
        return self._pages_read[page].get(document_id)

    def _listed(self, page: int) -> Iterable[tuple[str, str]]:
        """Ids and uris of a page that was listed before, wherever it is now; nothing where that changes meanwhile."""
        storage, ingestion = self._context.storage, self._ingestion
        try:
            for closed in self._context.ledger.run(read_closed(ingestion.id, page, 1)):
                return [(outcome.id, outcome.uri) for outcome in read_outcomes(storage, closed.stored)]
            names = [stored.name for stored in storage.stored(ingestion.page_folder(page))]
            manifest = next((name for name in names if name.startswith(ingestion.manifest_name(page, ""))), None)
            return list(read_listed(storage, manifest)) if manifest else []
        except NotStored:
            return []


def _up_to(context: JobContext, ingestion: Ingestion) -> _Known:
    """All ids that were listed before; nothing of listings that a Redis which went back does not know any more."""
    known = _known.pop(ingestion.id, None) or _Known()
    if not _read_on(context, ingestion.ids, known):
        known = _Known()
        _read_on(context, ingestion.ids, known)
    _known[ingestion.id] = known
    while len(_known) > _KEPT:
        _known.popitem(last=False)
    return known


def _read_on(context: JobContext, last: str, known: _Known) -> bool:
    """Reads the listings up to `last`; whether they go on from what is known."""
    name, before = last, known.last
    while name and name != before:
        context.progress()
        name, keys, pages = _read(context, name)
        known.runs.add(keys, pages)
    known.last = last
    return name == before


def _read(context: JobContext, name: str) -> tuple[str, Keys, Records]:
    before, _, data = context.storage.read(name).partition(b"\n")
    number = len(data) // (_KEY_BYTES + _PAGE.itemsize)
    keys = np.frombuffer(data, np.uint64, 2 * number).reshape(-1, 2)
    return before.decode(), keys, np.frombuffer(data, _PAGE, number, _KEY_BYTES * number)
