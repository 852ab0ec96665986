"""An object on its way to a bucket: it says that it moves, and ends when it does not."""

import asyncio
import contextlib
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem

from tasks.storage.bucket import BucketLimits, ObjectStore, upload
from tasks.storage.storage import Storage
from tests.s3_server import S3Server

MIB = 2**20


class Slow(AsyncFileSystem):  # type: ignore[misc] # fsspec has no types
    """A driver whose peer takes one piece each time that somebody has lost patience, and nothing behind the last."""

    def __init__(self, pieces: int, *, ends: bool) -> None:
        super().__init__(skip_instance_cache=True)
        self.pieces = pieces
        self.ends = ends
        self.patience_over = asyncio.Event()

    async def wait(self, _: object, timeout: float) -> None:  # noqa: ASYNC109 - in place of `asyncio.wait`
        """As if the time were over."""
        assert timeout > 0
        self.patience_over.set()
        for _ in range(3):
            await asyncio.sleep(0)

    async def _put_file(self, *_: str, callback: Any, **__: Any) -> None:
        for _piece in range(self.pieces):
            await self.patience_over.wait()
            self.patience_over.clear()
            callback.relative_update(1)
        await asyncio.sleep(0 if self.ends else 3600)


@pytest.mark.parametrize("ends", [True, False])
def test_an_upload_takes_as_long_as_it_moves(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    moved: list[int] = []
    files = Slow(40, ends=ends)
    monkeypatch.setattr(asyncio, "wait", files.wait)
    with contextlib.nullcontext() if ends else pytest.raises(TimeoutError):
        upload(files, "/dev/null", "a", 0, lambda: moved.append(1))
    assert len(moved) == 40


def test_a_bucket_tells_of_each_piece(s3: S3Server) -> None:
    moved: list[int] = []
    bucket = ObjectStore.open(s3.bucket(), BucketLimits(piece_bytes=5 * MIB))
    storage = Storage(bucket).reporting(lambda: moved.append(1))
    storage.write("files/a", bytes(16 * MIB))
    assert len(moved) >= 4
    assert storage.size_bytes("files/a") == 16 * MIB
