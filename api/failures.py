"""Errors that only the web tier has: an item's own error as the answer to a whole request, and a caller who left."""

from tasks.errors import EncodingFailed
from tasks.ledger import ItemError


class ItemFailed(EncodingFailed):
    """One text of a synchronous request has no vector; the request fails, because clients read a hole as a vector.

    Attributes:
        item_code: the item's own stable code; it takes the place of the class's.
    """

    def __init__(self, index: int, error: ItemError) -> None:
        super().__init__(f"input[{index}]: {error.message}", param=f"input[{index}]")
        self.item_code = error.code


class ItemRefused(ItemFailed):
    """The same where the caller can put it right by sending something else."""

    status = 400
    title = "An input cannot be used"


class CallerGone(Exception):
    """The client closed the connection; nobody reads what is answered."""


def item_failed(index: int, error: ItemError) -> ItemFailed:
    """The error that answers a request whose item `index` failed with `error`."""
    kind = ItemRefused if error.refused else ItemFailed
    return kind(index, error)
