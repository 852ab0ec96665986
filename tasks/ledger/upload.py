"""Sending one object to a bucket: it may take as long as it moves, and says so piece by piece."""

import asyncio
from collections.abc import Callable
from typing import Any

from fsspec.asyn import sync
from fsspec.callbacks import Callback

_PIECE_BYTES, _PIECES_AT_ONCE = 8 * 2**20, 2
"""Of a large object on its way. The driver holds all that is under way in memory, by default 500 MB."""
_STALLED_S, _SLOWEST_BYTES_PER_S = 12, 256 * 1024
"""An upload of which no piece arrives for longer has stopped: the driver waits for ever for leave to send, and for a
peer that takes no bytes."""


def upload(files: Any, path: str, target: str, size_bytes: int, moved: Callable[[], None]) -> None:
    """Sends the file at `path`; `moved` is called after each piece, in a thread of the driver's, and must not raise.

    Raises what the driver raises, and `TimeoutError` when nothing has moved for as long as the slowest link takes for
    the pieces under way.
    """
    pieces = Callback(hooks={"moved": lambda *_, **__: moved()})
    if not files.async_impl:
        files.put_file(path, target, callback=pieces)
        return
    piece_bytes = max(_PIECE_BYTES, size_bytes // 5_000)  # a bucket takes 10,000 pieces of one object
    under_way = min(size_bytes, _PIECES_AT_ONCE * piece_bytes)
    patience_s = _STALLED_S + under_way / _SLOWEST_BYTES_PER_S

    async def watched() -> None:
        options = {"chunksize": piece_bytes, "max_concurrency": _PIECES_AT_ONCE}
        # The driver's own `timeout` is one of the whole: of a large object it would outlast a peer that has died.
        sending = asyncio.ensure_future(files._put_file(path, target, callback=pieces, **options))  # noqa: SLF001
        while not sending.done():
            before = pieces.value
            await asyncio.wait({sending}, timeout=patience_s)
            if not sending.done() and pieces.value == before:
                sending.cancel()
                raise TimeoutError
        await sending

    sync(files.loop, watched)
