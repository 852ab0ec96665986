"""The threads that read datasets: a database that does not answer costs those who ask it, and nobody else."""

import asyncio
import threading
from pathlib import Path
from typing import Self

import pytest

from api import async_datasets
from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from tasks.datasets.places import Datasets
from tasks.errors import Overloaded
from worker_config.settings import load_settings


@pytest.fixture
def datasets(tmp_path: Path) -> AsyncDatasets:
    async def nobody(_: object) -> str:
        raise AssertionError

    settings = load_settings(datasets=str(tmp_path))
    return AsyncDatasets(AsyncStorage(settings.storage_url, nobody), settings)


class SlowDatabase:
    """Answers when this block is left."""

    def __init__(self) -> None:
        self.asked, self._answering = threading.Semaphore(0), threading.Event()

    def ask(self, _: Datasets) -> str:
        self.asked.release()
        self._answering.wait()
        return "late"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answering.set()


async def test_a_slow_database_of_one_owner_holds_up_nobody_else(datasets: AsyncDatasets) -> None:
    with SlowDatabase() as slow:
        calls = [asyncio.create_task(datasets.ask("slow", slow.ask)) for _ in range(20)]
        refused, asking = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert {type(call.exception()) for call in refused} == {Overloaded}
        for _ in asking:
            assert await asyncio.to_thread(slow.asked.acquire)
        assert await datasets.held_bytes("slow") == await datasets.held_bytes("other") == 0
        assert await datasets.run(lambda found: found.names("other")) == []
        assert await datasets.ask("other", lambda found: found.names("other")) == []
        for call in asking:  # its caller leaves; the thread is still there
            call.cancel()
        await asyncio.wait(asking)
        with pytest.raises(Overloaded):
            await datasets.ask("slow", slow.ask)


async def test_slow_databases_of_many_owners_leave_threads_for_the_account(datasets: AsyncDatasets) -> None:
    with SlowDatabase() as slow:
        calls = [asyncio.create_task(datasets.ask(f"owner{n}", slow.ask)) for n in range(20)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert await datasets.held_bytes("other") == 0


async def test_what_takes_too_long_is_not_known(datasets: AsyncDatasets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_datasets, "_SOON_S", 0.0)
    with SlowDatabase() as slow:
        assert await datasets.ask("slow", slow.ask) is None
