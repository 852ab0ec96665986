"""The load generator against a small server on loopback."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from bench.load import Generator, Load, LoadResult, http_request

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
REFUSED = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{"error":"full"}'


@asynccontextmanager
async def serving(answer: Callable[[bytes], bytes | None]) -> AsyncIterator[tuple[str, list[list[bytes]]]]:
    """`answer` to each body; None hangs up. The URL, and the bodies that came on each connection."""
    asked: list[list[bytes]] = []
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies: list[bytes] = []
        asked.append(bodies)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                bodies.append(await reader.readexactly(size))
                reply = answer(bodies[-1])
                if reply is None:
                    break
                writer.write(reply)
        writer.close()

    server = await asyncio.start_server(
        lambda reader, writer: connections.add(asyncio.ensure_future(serve(reader, writer))), "127.0.0.1", 0
    )
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
    server.close()
    await asyncio.gather(*connections)


async def test_a_closed_loop_keeps_its_connections_and_uses_bodies_in_turn() -> None:
    async with serving(lambda _: LENGTH) as (url, asked):
        result = await Generator(Load(url, ["a", "b"], connections=3, seconds=0.1)).run()
    bodies = [body for each in asked for body in each]
    assert (len(asked), result.errors) == (3, 0)
    assert len(result.ms) == len(bodies) > 3
    assert abs(bodies.count(b"a") - bodies.count(b"b")) <= 1
    assert list(result.ms) == sorted(result.ms)


async def test_refusals_and_broken_connections_are_errors_without_latency() -> None:
    answers = {b"refused": REFUSED, b"broken": None, b"good": LENGTH}
    async with serving(answers.__getitem__) as (url, _):
        result = await Generator(Load(url, list(map(bytes.decode, answers)), rate_per_s=100, seconds=0.06)).run()
    assert (len(result.ms), result.errors, result.refusal) == (2, 4, '{"error":"full"}')
    assert result.reasons == {"status 503": 2, "IncompleteReadError": 2}


def test_a_post_says_its_length_in_bytes_and_a_get_has_none() -> None:
    assert http_request("http://127.0.0.1:81/v1?x=1", "é", {"A": "b"}) == (
        b"POST /v1?x=1 HTTP/1.1\r\nHost: 127.0.0.1:81\r\nA: b\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n\xc3\xa9"
    )
    assert http_request("http://localhost", None, {}) == b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (25, 1), (26, 2), (50, 2), (75, 3), (99, 4), (100, 4)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert LoadResult([1, 2, 3, 4], 1.0).percentile(percent) == expected
    assert math.isnan(LoadResult([], 1.0).percentile(percent))
