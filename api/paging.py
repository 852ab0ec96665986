"""Reading a page of a list in several calls."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Some of a list.

    Attributes:
        items: in the order of the list, at most as many as were asked for.
        until: the place up to which was looked, if that is not the place of the last item.
        more: there may be more behind that place.
    """

    items: Sequence[T]
    until: str | None
    more: bool


async def read_page(
    read: Callable[[str | None, int], Awaitable[ListPage[T]]],
    *,
    after: str | None,
    limit: int,
    max_calls: int | None = None,
) -> ListPage[T]:
    """A page. Only one that `max_calls` has ended may be shorter than `limit` and say that there is more.

    Args:
        read: reads up to so many items behind a place. It may return fewer although there are more.
        after: the place behind which the page begins; None: the beginning.
        limit: of items.
        max_calls: of `read`; None: as many as it takes.
    """
    items: list[T] = []
    calls = 0
    while True:
        part = await read(after, limit - len(items))
        items += part.items
        after = part.until or after
        calls += 1
        if not part.more or len(items) >= limit:
            return ListPage(items, None, part.more)
        if calls == max_calls:
            return ListPage(items, after, part.more)
