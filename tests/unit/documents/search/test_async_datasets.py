"""Reading datasets in the web tier's threads: what ends a search early, and how many may wait."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.types import Message

from api.answer.errors import CallerGone
from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from tasks.errors import NotReady, Overloaded
from tasks.records.datasets import Catalog
from tasks.search.parts import PartReader
from tasks.storage.storage import Storage
from tests.unit.documents.search.small_datasets import NAME, OWNER, document, load


@pytest.fixture
def datasets(tmp_path: Path) -> AsyncDatasets:
    load(Storage.open(str(tmp_path)), document("a", [1, 2, 3, 4]))
    return AsyncDatasets(AsyncStorage(str(tmp_path), cast("Any", None)), 2**20)


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


async def test_more_searches_than_may_wait_are_refused(datasets: AsyncDatasets) -> None:
    free = Event()
    there = request(asyncio.Event())

    def wait(_: PartReader, __: Catalog) -> bool:
        return free.wait(10)

    reading = [asyncio.create_task(datasets.read(there, OWNER, NAME, wait)) for _ in range(65)]
    refused, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(Overloaded):
        refused.pop().result()
    free.set()
    assert all(await asyncio.gather(*others))
