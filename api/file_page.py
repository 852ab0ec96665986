"""One page of a caller's files, as OpenAI's clients ask for it."""

import re
from dataclasses import dataclass
from typing import Self

from starlette.datastructures import QueryParams

from tasks.errors import InvalidValue
from tasks.ledger import AsyncLedger
from tasks.ledger.file_operations import list_files
from tasks.ledger.files import FileRecord, Order, created_ms

MAX_LIMIT = 10_000
_AT_ONCE = 250
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class PageWish:
    """What is asked for. `purpose`: None for any; of one that does not exist there are no files."""

    purpose: str | None
    after: str | None
    limit: int
    order: Order

    @classmethod
    def from_query(cls, query: QueryParams) -> Self:
        """From the query string; empty values count as absent.

        Raises:
            InvalidValue: a value that cannot be, with its name.
        """
        limit, order, after = query.get("limit") or str(MAX_LIMIT), query.get("order") or "desc", query.get("after")
        if not _NUMBER.fullmatch(limit) or not 1 <= int(limit) <= MAX_LIMIT:
            raise InvalidValue(f"limit must be 1 to {MAX_LIMIT:,}.", param="limit")
        if order not in tuple(Order):
            raise InvalidValue("order must be 'asc' or 'desc'.", param="order")
        if after and created_ms(after) is None:
            raise InvalidValue("after must be the id of a file.", param="after")
        return cls(query.get("purpose") or None, after or None, int(limit), Order(order))


async def read_page(ledger: AsyncLedger, owner: str, wish: PageWish) -> tuple[list[FileRecord], bool]:
    """The files of a page, and whether there are more behind it."""
    found: list[FileRecord] = []
    after = wish.after
    while len(found) <= wish.limit:
        # One more than asked for says whether there is more. Of many only some at once: reading a reply holds the loop.
        missing = min(wish.limit + 1 - len(found), _AT_ONCE)
        page = await ledger.run(list_files(owner, purpose=wish.purpose, after=after, limit=missing, order=wish.order))
        found += page.files
        after = page.next
        if after is None:
            break
    return found[: wish.limit], len(found) > wish.limit
