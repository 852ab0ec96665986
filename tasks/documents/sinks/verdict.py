"""Whether a document goes into a sink, given what the sink has of it already. The same for every sink."""

from enum import Enum, auto

from tasks.documents.sinks.types import LoadOutcome, Receipt, Stamp


class Verdict(Enum):
    """What to do with a document."""

    TAKE = auto()
    """It goes in, in place of the earlier version if there is one."""
    KEEP = auto()
    """An earlier run of the same work has brought it."""
    DUPLICATE = auto()
    SUPERSEDED = auto()
    CONFLICT = auto()

    @property
    def outcome(self) -> LoadOutcome:
        """What is reported."""
        match self:
            case Verdict.DUPLICATE:
                return LoadOutcome.DUPLICATE
            case Verdict.SUPERSEDED:
                return LoadOutcome.SUPERSEDED
            case Verdict.CONFLICT:
                return LoadOutcome.CONFLICT
            case _:
                return LoadOutcome.LOADED


def judge(known: Receipt | None, page: int, content_hash: str, stamp: Stamp, origin: str = "") -> Verdict:
    """The verdict on a document of a page, of which the sink has `known`."""
    if known is None:
        return Verdict.TAKE
    if known.ingestion != stamp.ingestion:
        if not stamp.replaces_others and _from_elsewhere(known, origin):
            return Verdict.CONFLICT  # whichever of the two is newer
        return Verdict.TAKE if known.order < stamp.order else Verdict.SUPERSEDED
    if known.page != page:
        return Verdict.DUPLICATE
    # The same page with other content: its source has changed between two runs of it.
    same = known.content_hash == content_hash and known.fingerprint == stamp.fingerprint
    return Verdict.KEEP if same else Verdict.TAKE


def replaces(known: Receipt | None, content_hash: str, stamp: Stamp) -> bool:
    """Whether a document that goes in takes the place of another content of an earlier ingestion."""
    return bool(known and known.chunks and known.ingestion != stamp.ingestion and known.content_hash != content_hash)


def _from_elsewhere(known: Receipt, origin: str) -> bool:
    """Whether it is a document of another file that only has the same id: what is in the sink would be lost."""
    return bool(known.chunks and known.origin and origin and known.origin != origin)


class Arrivals:
    """The documents of one call to `load`: what is to go in, and what to report of each.

    Attributes:
        stamp: of the one who loads.
        taken: id -> the receipt that it will have, for documents that go in.
    """

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self._outcomes: dict[str, list[LoadOutcome]] = {}
        self._takes: dict[str, int] = {}  # id -> which of its outcomes is that of the one that went in
        self.taken: dict[str, Receipt] = {}

    def add(
        self, document_id: str, page: int, content_hash: str, chunks: int, known: Receipt | None, *, origin: str = ""
    ) -> bool:
        """Notes one document; whether it goes in. `known`: what the sink has of it."""
        stamp = self.stamp
        verdict = judge(self.taken.get(document_id, known), page, content_hash, stamp, origin)
        if document_id in self.taken and verdict is Verdict.TAKE:
            verdict = Verdict.DUPLICATE  # twice in one page, with different content: the first stays
        outcomes = self._outcomes.setdefault(document_id, [])
        if verdict is Verdict.TAKE:
            self._takes[document_id] = len(outcomes)
            self.taken[document_id] = Receipt(
                document_id, content_hash, stamp.fingerprint, stamp.ingestion, page, chunks, stamp.order, origin
            )
        outcomes.append(verdict.outcome)
        if verdict is Verdict.TAKE:
            self.take(document_id, known)
        return verdict is Verdict.TAKE

    def take(self, document_id: str, known: Receipt | None) -> None:
        """It goes in, in place of what the sink has now."""
        replaced = replaces(known, self.taken[document_id].content_hash, self.stamp)
        outcome = LoadOutcome.REPLACED if replaced else LoadOutcome.LOADED
        self._outcomes[document_id][self._takes[document_id]] = outcome

    def drop(self, document_id: str, verdict: Verdict) -> None:
        """Somebody else has brought it in the meantime."""
        del self.taken[document_id]
        self._outcomes[document_id][self._takes.pop(document_id)] = verdict.outcome

    @property
    def outcomes(self) -> dict[str, list[LoadOutcome]]:
        """Of every document, by id."""
        return self._outcomes
