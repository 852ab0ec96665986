"""A stored object as an answer: the Range header, and what ends a download."""

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from api.answer.content import byte_range, content
from api.async_storage import AsyncStorage
from api.request.api_keys import Grant, let_in
from tasks.errors import FileUnknown, RangeNotSatisfiable
from tasks.records.api_keys import USUAL_SCOPES, Key
from tasks.storage.storage import Storage
from tests.nothing_stored import nothing_stored

SIZE = 100


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", range(1)),
        ("bytes=0-99", range(100)),
        ("bytes=10-19", range(10, 20)),
        ("Bytes=10-", range(10, 100)),
        ("bytes=90-1000", range(90, 100)),
        ("bytes=-1", range(99, 100)),
        ("bytes=-1000", range(100)),
        ("bytes=0-1,5-6", None),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("items=0-5", None),
        ("bytes=--5", None),
    ],
)
def test_a_range(header: str | None, expected: range | None) -> None:
    assert byte_range(header, SIZE) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_behind_the_end(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        byte_range(header, SIZE)


async def test_a_download_ends_in_silence_with_the_right_of_its_caller_and_for_no_other_reason(tmp_path: Path) -> None:
    Storage.open(str(tmp_path)).write("file", b"bytes")
    scope: Scope = {"type": "http", "headers": [], "path": "/"}
    grant = Grant(Key.fixed("ann", USUAL_SCOPES))
    let_in(scope, grant)
    storage, gone = AsyncStorage(str(tmp_path), nothing_stored), FileUnknown("It is gone.")

    async def stays() -> Message:
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never

    async def fails(_: Message) -> None:
        raise TimeoutError

    async def revokes(_: Message) -> None:
        grant.end("revoked")
        await stays()

    response = await content(Request(scope), storage, "file", size_bytes=5, tag="t", filename="f", gone=gone)
    with pytest.raises(TimeoutError):
        await response(scope, stays, fails)
    await response(scope, stays, revokes)
