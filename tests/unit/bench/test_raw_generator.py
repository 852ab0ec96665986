"""The generator of our own against a small server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from bench.load.plan import Load, LoadResult
from bench.load.raw import Generator

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
REFUSED = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{"error":"full"}'


class Asked:
    """Bodies that arrived, and how many connections were opened."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.connections = 0


@asynccontextmanager
async def serving(answer: Callable[[bytes], bytes | None], *, pieces: int = 1) -> AsyncIterator[tuple[str, Asked]]:
    """`answer` to each body, in so many pieces; None hangs up. At the end every connection is over."""
    asked = Asked()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            asked.bodies.append(body)
            reply = answer(body)
            if reply is None:
                return
            size = -(-len(reply) // pieces)
            for start in range(0, len(reply), size):
                writer.write(reply[start : start + size])
                await asyncio.sleep(0)  # the other end reads this piece before the next one comes
            if b"Connection: close" in reply:
                return

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.ensure_future(handle(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
    server.close()
    await asyncio.gather(*connections)


async def test_a_closed_loop_keeps_its_connections_and_uses_bodies_in_turn() -> None:
    async with serving(lambda _: LENGTH) as (url, asked):
        result = await Generator(Load(url, ["a", "b"], connections=3, seconds=0.1)).run()
    assert asked.connections == 3
    assert result.errors == 0
    assert result.requests == len(asked.bodies) > 3
    assert {body: abs(asked.bodies.count(body) - result.requests / 2) <= 0.5 for body in (b"a", b"b")} == {
        b"a": True,
        b"b": True,
    }
    assert 0 < result.p50_ms <= result.p90_ms <= result.p99_ms <= result.max_ms


async def test_an_open_loop_sends_what_is_due() -> None:
    async with serving(lambda _: LENGTH) as (url, asked):
        result = await Generator(Load(url, ["a"], rate_per_s=100, seconds=0.1)).run()
    assert result.requests == len(asked.bodies) == 10


async def test_answers_in_pieces_count_once() -> None:
    async with serving(lambda _: LENGTH, pieces=7) as (url, asked):
        result = await Generator(Load(url, ["a"], rate_per_s=100, seconds=0.05)).run()
    assert (result.requests, result.errors) == (len(asked.bodies), 0)


async def test_chunked_answers_are_understood() -> None:
    async with serving(lambda _: CHUNKED, pieces=5) as (url, asked):
        result = await Generator(Load(url, ["a"], rate_per_s=100, seconds=0.05)).run()
    assert (result.requests, len(asked.bodies)) == (5, 5)


async def test_a_connection_that_the_server_closes_is_replaced() -> None:
    async with serving(lambda _: CLOSING) as (url, asked):
        result = await Generator(Load(url, ["a"], connections=1, seconds=0.05)).run()
    assert result.errors == 0
    assert asked.connections == result.requests > 1


async def test_refusals_and_broken_connections_are_errors_without_latency() -> None:
    answers = {b"refused": REFUSED, b"broken": None, b"good": LENGTH}
    async with serving(answers.__getitem__) as (url, _):
        result = await Generator(Load(url, list(map(bytes.decode, answers)), rate_per_s=100, seconds=0.06)).run()
    assert (result.requests, result.errors) == (2, 4)
    assert result.reasons == {"status 503": 2, "Broken": 2}
    assert result.refusal == '{"error":"full"}'


async def test_nobody_there_is_an_error_each_time() -> None:
    async with serving(lambda _: LENGTH) as (url, _):
        pass
    result = await Generator(Load(url, ["a"], rate_per_s=100, seconds=0.05)).run()
    assert (result.requests, result.errors) == (0, 5)
    assert result.rate_per_s == 0


async def test_a_result_with_failures_travels_between_processes() -> None:
    async with serving(lambda _: REFUSED) as (url, _):
        result = await Generator(Load(url, bodies=["{}"], seconds=0.05, connections=1)).run()
    assert result.reasons["status 503"] > 0
    read = LoadResult.from_json(result.to_json())
    assert (read.reasons, read.refusal) == (result.reasons, result.refusal)
