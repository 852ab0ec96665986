"""Reading datasets in the web tier's threads: what ends a search early, and how many may wait."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from starlette.requests import Request
from starlette.types import Message

from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.error_responses import CallerGone
from stack.testing import PATIENCE_S
from tasks.errors import NotReady, Overloaded
from tasks.records.datasets import Catalog
from tasks.search.nearest_chunks import nearest_chunks
from tasks.search.pages import chunks_of_document
from tasks.search.parts import PartReader
from tasks.search.row_filter import RowFilter
from tasks.storage.storage import Storage
from tests.nothing_stored import nothing_stored
from tests.unit.documents.search.small_datasets import NAME, OWNER, document, load


@pytest.fixture
def storage_url(tmp_path: Path) -> str:
    load(Storage.open(str(tmp_path)), document("a", [1, 2, 3, 4]))
    return str(tmp_path)


@pytest.fixture
def datasets(storage_url: str) -> AsyncDatasets:
    return AsyncDatasets(AsyncStorage(storage_url, nothing_stored), 2**20)


def request(gone: asyncio.Event) -> Request:
    """Of a client that leaves when `gone` is set."""

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": []}, receive)


def endless(begun: Event) -> Any:
    def search(reader: PartReader, _: Catalog) -> None:
        begun.set()
        while True:
            reader.check()

    return search


async def test_a_search_ends_when_its_client_has_left(datasets: AsyncDatasets) -> None:
    gone, begun = asyncio.Event(), Event()
    reading = asyncio.create_task(datasets.read(request(gone), OWNER, NAME, endless(begun)))
    await asyncio.to_thread(begun.wait, 10)
    gone.set()
    with pytest.raises(CallerGone):
        await reading
    assert await datasets.read(request(asyncio.Event()), OWNER, NAME, lambda _, catalog: catalog.dataset) == NAME


async def test_a_search_ends_when_the_process_stops(datasets: AsyncDatasets) -> None:
    begun = Event()
    reading = asyncio.create_task(datasets.read(request(asyncio.Event()), OWNER, NAME, endless(begun)))
    await asyncio.to_thread(begun.wait, 10)
    datasets.stop()
    with pytest.raises(NotReady):
        await reading


async def test_one_search_beyond_the_memory_runs_and_the_others_do_not_wait_for_it(
    datasets: AsyncDatasets, storage_url: str
) -> None:
    large = AsyncDatasets(AsyncStorage(storage_url, nothing_stored), 8)
    gone, there, begun, second = asyncio.Event(), request(asyncio.Event()), Event(), Event()
    first = asyncio.create_task(large.search(request(gone), OWNER, NAME, endless(begun)))
    await asyncio.to_thread(begun.wait, 10)
    waits = [asyncio.create_task(large.search(there, OWNER, NAME, lambda _, __: second.set())) for _ in range(4)]
    refused, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(Overloaded):
        refused.pop().result()
    assert await large.read(there, OWNER, NAME, lambda _, catalog: catalog.dataset) == NAME
    assert not second.is_set()
    gone.set()
    await asyncio.gather(*others)
    assert second.is_set()
    with pytest.raises(CallerGone):
        await first


async def test_more_searches_than_may_wait_are_refused_and_no_owner_takes_all_places(
    datasets: AsyncDatasets, storage_url: str
) -> None:
    owners = (OWNER, "bob", "cid")
    for other in owners[1:]:
        load(Storage.open(storage_url), document("a", [1, 2, 3, 4]), owner=other)
    free = Event()
    there = request(asyncio.Event())

    def wait(_: PartReader, __: Catalog) -> bool:
        return free.wait(PATIENCE_S)

    waiting: set[asyncio.Task[bool]] = set()
    for owner, count in zip(owners, (33, 33, 1), strict=True):
        reading = [asyncio.create_task(datasets.read(there, owner, NAME, wait)) for _ in range(count)]
        refused, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(Overloaded):
            refused.pop().result()
        assert not refused
        waiting |= others
    free.set()
    assert len(waiting) == 64
    assert all(await asyncio.gather(*waiting))


async def test_what_is_kept_of_some_owners_is_forgotten(datasets: AsyncDatasets, storage_url: str) -> None:
    for owner in ("bob", "cid"):
        load(Storage.open(storage_url), document("a", [1, 2, 3, 4]), owner=owner)
    there, size_bytes = request(asyncio.Event()), []

    def look(reader: PartReader, catalog: Catalog) -> None:
        nearest_chunks(reader, catalog, np.array([1, 0, 0, 0]), 1, RowFilter({"a": 1}))
        chunks_of_document(reader, catalog, "a", None, 1)

    for owner in (OWNER, "bob", "cid"):
        await datasets.search(there, owner, NAME, look)
        size_bytes.append(datasets.kept_bytes)
    assert size_bytes == [size_bytes[0] * number for number in (1, 2, 3)]

    datasets.forget({"bob", "cid"})
    assert datasets.kept_bytes == size_bytes[0]
    datasets.forget(None)
    assert datasets.kept_bytes == 0
