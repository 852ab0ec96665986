"""What one turn of the event loop writes leaves in one piece, in order, and before the connection closes."""

import asyncio
from collections.abc import Iterable

from api.server.http_protocol import Joined


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
