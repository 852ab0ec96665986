"""The interface of datasets: loads, receipts, `sync`. Both stores have it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tasks.datasets.loads import DocumentLoad, Finished, LoadOutcome, Receipt, Stamp, UnreadPart
from tasks.errors import Invalid


class Store(Protocol):
    """One dataset, as documents workers change it.

    Every method may be repeated, and called by several workers at one time. All of them raise `SinkUnavailable` where
    the store is down, full or busy: the call is to be repeated, whether it was done or not; and `Invalid` where it can
    never be done.
    """

    def prepare(self, by: Stamp, progress: Callable[[], None]) -> str:
        """Creates what is missing, and checks whether these vectors can be loaded. The id of the dataset.

        An ingestion that has seen the dataset creates no other one: `Invalid`, as of all methods that change it.
        """

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """Receipts of the documents that the dataset knows, by id."""

    def load(
        self, documents: Iterable[DocumentLoad | UnreadPart], by: Stamp, progress: Callable[[], None]
    ) -> Sequence[LoadOutcome]:
        """Carries out what `who_wins` says of each document, in one transaction. One outcome for each, in their order.

        Raises:
            StaleError: a document is unchanged no more (who_wins.py).
        """

    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished:
        """The end of a `sync`: deletes the documents that nobody has listed since.

        `roots`: places of the source of which each is expected to list something. One that has not counts as a part
        that could not be listed.
        """

    def close(self) -> None:
        """Closes connections."""


def require_same(dataset_id: str, by: Stamp) -> None:
    """Checks that a dataset is the one that the ingestion has seen at its beginning.

    Raises:
        Invalid: it was deleted meanwhile, and perhaps made again.
    """
    if by.dataset_id not in {"", dataset_id}:
        raise dataset_gone()


def dataset_gone() -> Invalid:
    """The dataset of an ingestion went away under it."""
    return Invalid(
        "dataset_deleted",
        "The dataset was deleted or renamed, or its table dropped or emptied, while this ingestion ran. What it had "
        "loaded before went with it: start a new ingestion.",
        param="sink",
    )


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""Of a UUID: its two upper bits are 1 and 0."""


def chunk_id(document_id: str, fingerprint: str, index: int) -> str:
    """The id of a chunk, the same at any time and place: a UUID in the form of version 5 (RFC 9562)."""
    digits = hashlib.sha256(f"{fingerprint}\0{index}\0{document_id}".encode()).hexdigest()
    # By hand: by `uuid.UUID` it took 3.5 us a chunk and takes 1.5.
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"
