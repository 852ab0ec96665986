"""Reading datasets in the web tier's threads: what ends a search early, and how many may wait."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from stack.testing import PATIENCE_S
from tasks.errors import NotReady, Overloaded
from tasks.search.contents import Contents
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


def endless(begun: Event, ended: Event) -> Any:
    def search(contents: Contents) -> None:
        begun.set()
        try:
            while True:
                contents.reader.check()
        finally:
            ended.set()

    return search


async def test_a_search_that_is_cancelled_frees_its_thread(datasets: AsyncDatasets) -> None:
    for _ in range(3):  # more than there are threads
        begun, ended = Event(), Event()
        reading = asyncio.create_task(datasets.read(OWNER, NAME, endless(begun, ended)))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        reading.cancel()
        assert await asyncio.to_thread(ended.wait, PATIENCE_S)
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_a_search_ends_when_the_process_stops(datasets: AsyncDatasets) -> None:
    begun = Event()
    reading = asyncio.create_task(datasets.read(OWNER, NAME, endless(begun, Event())))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    datasets.stop()
    with pytest.raises(NotReady):
        await reading


async def test_more_searches_than_may_wait_are_refused_and_no_owner_takes_all_places(
    datasets: AsyncDatasets, storage_url: str
) -> None:
    owners = (OWNER, "bob", "cid")
    for other in owners[1:]:
        load(Storage.open(storage_url), document("a", [1, 2, 3, 4]), owner=other)
    free = Event()

    def wait(_: Contents) -> bool:
        return free.wait(PATIENCE_S)

    waiting: set[asyncio.Task[bool]] = set()
    for owner, count in zip(owners, (33, 33, 1), strict=True):
        reading = [asyncio.create_task(datasets.read(owner, NAME, wait)) for _ in range(count)]
        refused, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(Overloaded):
            refused.pop().result()
        assert not refused
        waiting |= others
    free.set()
    assert len(waiting) == 64
    assert all(await asyncio.gather(*waiting))


def kept_bytes(datasets: AsyncDatasets) -> int:
    assert datasets.reader is not None
    return datasets.reader.kept.size_bytes + datasets.reader.kept_vectors.size_bytes


async def test_what_is_kept_of_some_owners_is_forgotten(datasets: AsyncDatasets, storage_url: str) -> None:
    for owner in ("bob", "cid"):
        load(Storage.open(storage_url), document("a", [1, 2, 3, 4]), owner=owner)
    size_bytes = []

    def look(contents: Contents) -> None:
        contents.nearest(np.array([1, 0, 0, 0]), 1, {"a": 1})
        contents.chunks("a", None, 1)

    for owner in (OWNER, "bob", "cid"):
        await datasets.read(owner, NAME, look)
        size_bytes.append(kept_bytes(datasets))
    assert size_bytes == [size_bytes[0] * number for number in (1, 2, 3)]

    datasets.forget({"bob", "cid"})
    assert kept_bytes(datasets) == size_bytes[0]
    datasets.forget({OWNER})
    assert kept_bytes(datasets) == 0
