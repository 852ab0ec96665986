"""Which of several ingestions decides a document: the one that was accepted last, whenever each of them comes to it.

Every ingestion leaves its order where it has decided something: at what it has loaded, at what it has found unchanged,
at what it has listed and could not read, and, for all that a `sync` did not list, at the dataset itself. So orders
alone have to be compared, and nobody keeps lists of what was seen. Pure: a store asks it within its transaction.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tasks.datasets.loads import EVERYTHING, DocumentLoad, DocumentState, LoadOutcome, Receipt, Stamp, Verdict

_NOBODY = ""
_BRINGS = {Verdict.LOADED, Verdict.REPLACED}
_OF_OTHERS = {Verdict.DUPLICATE, Verdict.CONFLICT}


class StaleError(Exception):
    """A document that was to be unchanged is not: the load has left nothing, and its documents are to be read again."""


class Decision(NamedTuple):
    """What becomes of a document. `brings`: its content goes in. `receipt`: of the document from now on, if any."""

    brings: bool
    receipt: Receipt | None
    outcome: LoadOutcome


class Unread(NamedTuple):
    """A part of a source that an ingestion could not list: a root, a folder, a file.

    Attributes:
        part: its URI. What is below it, or within it, belongs to it.
        listed: order of the last ingestion that could not list it.
        floor: of documents of this part that have no receipt, as of `Floors.of`.
    """

    part: str
    listed: int
    floor: int


class Floors:
    """Who has decided a document that has no receipt: the order of the last `sync` that would have deleted it.

    Args:
        synced: order of the last `sync` of the dataset; 0: there was none.
        unread: parts that were not listed. One counts if it was not listed since that `sync`, or by it.
    """

    def __init__(self, synced: int, unread: Iterable[Unread] = ()) -> None:
        self._synced = synced
        self._unread = [each for each in unread if each.listed >= synced]

    def of(self, place: str) -> int:
        """For a document of this place."""
        return min((each.floor for each in self._unread if holds(each.part, place)), default=self._synced)


def holds(part: str, place: str) -> bool:
    """Whether a URI is that of a part of a source, or of something in it."""
    return part in {EVERYTHING, place} or place.startswith((f"{part.rstrip('/')}/", f"{part}#"))


class SilentRoots:
    """Roots of a source that have listed nothing.

    Args:
        roots: URIs.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        self._silent = {root.rstrip("/"): root for root in roots}
        self._known: set[str] = set()

    def listed(self, places: Iterable[str]) -> bool:
        """Some places that the ingestion has listed; whether there are silent roots still."""
        for place in places:
            for part in _parts_around(place) & self._silent.keys():
                del self._silent[part]
        return bool(self._silent)

    def known(self, places: Iterable[str]) -> bool:
        """Places of content, after all that was listed; whether there are roots of which nothing is known yet."""
        for place in places:
            self._known |= _parts_around(place) & self._silent.keys()
        return len(self._known) < len(self._silent)

    @property
    def missed(self) -> list[str]:
        """Those of which content is known."""
        return [root for part, root in self._silent.items() if part in self._known]


def silent_before(roots: Iterable[str], unread: Iterable[Unread], order: int) -> list[str]:
    """The roots that the `sync` of this order has found silent, for a repetition of its end."""
    parts = {each.part for each in unread if each.listed == order}
    return [root for root in roots if root in parts]


def _parts_around(place: str) -> set[str]:
    """Every part that `holds` a place, without slashes at its end."""
    return {place.rstrip("/"), *(place[: at.start()].rstrip("/") for at in _ENDS.finditer(place))}


_ENDS = re.compile("[/#]")


def judge(  # noqa: PLR0911 - one for each verdict
    document: DocumentLoad, receipt: Receipt | None, by: Stamp, floor: int
) -> Verdict:
    """What becomes of a document of which the dataset has this receipt, or none. `floor`: see `Floors`."""
    before = (receipt.content_hash, receipt.fingerprint) if receipt else None
    same = before == (document.content_hash, by.fingerprint)
    if receipt is not None:
        mine = receipt.decided_by == by.ingestion
        kept = same and not by.reloads
        if not (mine or kept or by.replaces_others) and _of_another_file(document, receipt):
            return Verdict.CONFLICT
        # By places: an ingestion that is listed once more, since Redis has gone back, has other pages.
        listed_there = receipt.listed_by != by.ingestion or receipt.place == document.place
        if not listed_there or (mine and receipt.found != document.place):
            return Verdict.DUPLICATE
    if document.state is DocumentState.FAILED:
        return Verdict.FAILED
    if receipt is not None and mine:
        return Verdict.KEPT
    if (receipt.decided if receipt else floor) > by.order:
        return Verdict.SUPERSEDED
    if document.state is DocumentState.UNCHANGED:
        return Verdict.UNCHANGED if same else Verdict.STALE
    if same and not by.reloads:
        return Verdict.UNCHANGED
    replaced = receipt is not None and receipt.chunks and receipt.content_hash != document.content_hash
    return Verdict.REPLACED if replaced else Verdict.LOADED


def receipt_after(  # noqa: PLR0911 - one for each verdict
    verdict: Verdict, document: DocumentLoad, receipt: Receipt | None, by: Stamp, floor: int
) -> Receipt | None:
    """The receipt of the document once the verdict is carried out; None: there is none still."""
    match verdict:
        case Verdict.LOADED | Verdict.REPLACED:
            content = Receipt(
                *(document.id, document.content_hash, by.fingerprint, len(document.chunks), by.order, by.ingestion),
                *(by.order, by.ingestion, document.place, document.place, document.origin, verdict),
                warnings=document.warnings,
            )
            if receipt is None or receipt.listed <= by.order:
                return content
            return content._replace(listed=receipt.listed, listed_by=receipt.listed_by, place=receipt.place)
        case Verdict.UNCHANGED if receipt is not None:
            found = receipt._replace(decided=by.order, decided_by=by.ingestion, found=document.place, how=verdict)
            return _listed(found, document.place, by)
        case Verdict.FAILED:
            if receipt is not None:
                return _listed(receipt, document.place, by)
            if floor > by.order:
                return None
            # Without content: it keeps what an older ingestion loads later from a `sync` that comes before this one.
            return Receipt(
                *(document.id, "", "", 0, floor, _NOBODY, by.order, by.ingestion, document.place, "", "", verdict)
            )
        case Verdict.CONFLICT if receipt is not None:
            # Its place stays that of the content, or the document that has it would be a duplicate.
            return _listed(receipt, receipt.found, by)
        case _:
            return receipt


def decide(document: DocumentLoad, receipt: Receipt | None, by: Stamp, floor: int) -> Decision:
    """What becomes of a document, as `judge` and `receipt_after` say.

    Raises:
        StaleError: as it says.
    """
    verdict = judge(document, receipt, by, floor)
    if verdict is Verdict.STALE:
        raise StaleError
    after = receipt_after(verdict, document, receipt, by, floor)
    how = after.how if after and verdict is Verdict.KEPT else verdict
    other = (receipt.found or receipt.place) if receipt and verdict in _OF_OTHERS else ""
    return Decision(verdict in _BRINGS, after, LoadOutcome(how, after.chunks if after else 0, other))


def is_deleted(receipt: Receipt, order: int, unread: Iterable[Unread]) -> bool:
    """Whether a `sync` of this order deletes the document: nobody has listed it since, and its part could be listed."""
    return receipt.listed < order and not any(
        each.listed >= order and holds(each.part, receipt.place) for each in unread
    )


def _listed(receipt: Receipt, place: str, by: Stamp) -> Receipt:
    if receipt.listed >= by.order:
        return receipt
    return receipt._replace(listed=by.order, listed_by=by.ingestion, place=place)


def _of_another_file(document: DocumentLoad, receipt: Receipt) -> bool:
    """Whether the content is of another file with the same id, which would be lost."""
    return bool(receipt.chunks and receipt.origin and document.origin and receipt.origin != document.origin)
