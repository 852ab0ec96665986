"""More requests at once than a process can handle: how many reach Redis, and what the rest is told."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice

import httpx
import pytest
import redis
from starlette.datastructures import State

from api.app import create_app
from api.parts import running
from tests.integration.api.served import MODEL, ServedApp
from worker_config.settings import load_settings

CALLS = 24  # few, because all are refused within the second that a call waits for Redis
ROOM = 6


@asynccontextmanager
async def in_this_loop(redis_url: str) -> AsyncIterator[tuple[httpx.AsyncClient, State]]:
    """An app without a socket, so that all requests are there at once."""
    app = create_app(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL))
    async with (
        running(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        yield client, app.state


async def test_a_crowd_is_cut_to_what_can_be_handled(redis_url: str, redis_client: redis.Redis) -> None:
    async with in_this_loop(redis_url) as (client, services):
        services.in_flight.most = ROOM
        assert (await client.post("/v1/tasks", json={"input": "the first"})).status_code == 202
        redis_client.client_pause(20_000, all=False)
        calls = [asyncio.create_task(client.post("/v1/tasks", json={"input": f"x{i}"})) for i in range(CALLS)]
        turned_away = [await call for call in islice(asyncio.as_completed(calls), CALLS - ROOM)]
        redis_client.client_unpause()
        answers = [await call for call in calls]

    assert Counter(a.status_code for a in answers) == {202: ROOM, 503: CALLS - ROOM}
    assert {a.json()["error"]["code"] for a in turned_away} == {"overloaded"}
    assert len({a.headers["retry-after"] for a in turned_away}) > 1
    assert len(list(redis_client.scan_iter("eq:task:*"))) == ROOM + 1


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/embeddings", "/embed"])
def test_who_is_turned_away_is_not_read(serve: Callable[..., ServedApp], path: str) -> None:
    app = serve()
    app.process.in_flight.most = 0
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"

    with socket.create_connection(("127.0.0.1", app.port)) as connection:
        connection.sendall(head.encode())  # and nothing of the body
        answer = connection.recv(12)

    assert answer == (b"HTTP/1.1 429" if path == "/embed" else b"HTTP/1.1 503")
