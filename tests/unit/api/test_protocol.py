"""What one turn of the event loop writes leaves in one piece, in order, before the connection closes, as of uvicorn."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.server.http_protocol import Joined, Protocol


class Recorder(asyncio.Transport):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.calls.append([bytes(data) for data in list_of_data])

    def close(self) -> None:
        self.calls.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.calls


async def test_one_turn_is_one_piece() -> None:
    recorder = Recorder()
    transport = Joined(recorder, asyncio.get_running_loop())
    transport.write(b"head")
    transport.write(b"body")
    assert recorder.calls == []
    await asyncio.sleep(0)
    assert recorder.calls == [[b"head", b"body"]]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert recorder.calls[1:] == [[b"next"]]


async def test_what_was_written_goes_out_before_the_connection_closes() -> None:
    recorder = Recorder()
    transport = Joined(recorder, asyncio.get_running_loop())
    transport.write(b"last words")
    transport.close()
    await asyncio.sleep(0)
    assert recorder.calls == [[b"last words"], "closed"]
    assert transport.is_closing()


async def test_nothing_is_written_to_a_client_that_left_in_the_same_turn() -> None:
    recorder = Recorder()
    transport = Joined(recorder, asyncio.get_running_loop())
    transport.write(b"too late")
    recorder.close()
    await asyncio.sleep(0)
    assert recorder.calls == ["closed"]


LENGTH = (b"content-length", b"4")


async def _answered(
    kind: type[HttpToolsProtocol], request: bytes, status: int, fields: Sequence[Any] | None
) -> list[object]:
    """What a connection of this kind sends when the application answers so; "closed" where it ends."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        start: dict[str, Any] = {"type": "http.response.start", "status": status}
        await send(start if fields is None else {**start, "headers": fields})
        await send({"type": "http.response.body", "body": b"body"})

    recorder, state = Recorder(), ServerState()
    state.default_headers = [(b"date", b"Mon, 23 Nov 2026 20:00:00 GMT")]
    protocol = kind(Config(app, lifespan="off", log_config=None, proxy_headers=False), state, {})
    protocol.connection_made(recorder)
    protocol.data_received(request)
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    pieces = chain.from_iterable(call if isinstance(call, list) else [call] for call in recorder.calls)
    closed = [call for call in recorder.calls if call == "closed"][:1]
    return [b"".join(piece for piece in pieces if isinstance(piece, bytes)), *closed]


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [LENGTH],
        [(b"x-1-Upper", b"A b\tc \xe9"), LENGTH],
        [(b"with_underscore", b""), LENGTH],
        [(b"", b"no name"), LENGTH],
        [(b"a name", b"with a space"), LENGTH],
        [(b"x-one", b"two\r\nx-injected: lines"), LENGTH],
        [(b"x-one", b"a\nb"), LENGTH],
        [(b"x-one", b"\x00"), LENGTH],
        [(b"x-one", b"\x7f"), LENGTH],
        [],
        [(b"transfer-encoding", b"chunked")],
        [(b"connection", b"close"), LENGTH],
        [(b"content-length", b"5")],
        [(b"content-length", b"3")],
        [(b"content-length", b"four")],
        [LENGTH, LENGTH],
    ],
)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_an_answer_has_the_bytes_of_uvicorn(method: bytes, version: bytes, fields: Sequence[Any] | None) -> None:
    request = method + b" / HTTP/" + version + b"\r\nhost: a\r\n\r\n"
    for status in (200, 304):
        ours = await _answered(Protocol, request, status, fields)
        assert ours == await _answered(HttpToolsProtocol, request, status, fields)
