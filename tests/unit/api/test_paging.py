"""Pages that take several calls."""

from api.paging import ListPage, read_page


async def page(
    parts: list[ListPage[int]], *, limit: int, max_calls: int | None = None
) -> tuple[ListPage[int], list[tuple[str | None, int]]]:
    """The page that is made of these parts, and how each was asked for."""
    calls: list[tuple[str | None, int]] = []

    async def read(after: str | None, most: int) -> ListPage[int]:
        calls.append((after, most))
        return parts[len(calls) - 1]

    return await read_page(read, after="a", limit=limit, max_calls=max_calls), calls


async def test_a_page_takes_as_many_calls_as_it_needs() -> None:
    parts = [ListPage([1, 2], "b", True), ListPage([], None, True), ListPage([3], "d", True)]

    assert await page(parts, limit=3) == (ListPage([1, 2, 3], None, True), [("a", 3), ("b", 1), ("b", 1)])


async def test_a_list_that_ends_ends_the_page() -> None:
    assert await page([ListPage([1], "b", False)], limit=3) == (ListPage([1], None, False), [("a", 3)])


async def test_a_search_that_is_given_up_says_where_to_go_on() -> None:
    parts: list[ListPage[int]] = [ListPage([], "b", True), ListPage([], "c", True)]

    assert await page(parts, limit=3, max_calls=2) == (ListPage([], "c", True), [("a", 3), ("b", 3)])
