"""Server-sent events of one task: its state now, then after each change, up to its end."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.answer.json_response import NO_STORE
from api.answer.task_json import etag, task_json
from api.parts import Services
from api.server.edge import ENDLESS
from api.waiting.hub import watched
from api.waiting.live import COMMENT, RETRY, RETRY_S
from api.waiting.long_poll import UNSEEN, matches
from tasks.errors import Unavailable
from tasks.ledger import Task


class EventStream(StreamingResponse):
    """The response. It ends with its events, which notice themselves when the client leaves or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        # nginx gathers an answer before it passes it on, unless told otherwise.
        super().__init__(events, headers={**NO_STORE, "x-accel-buffering": "no"})
        self._events = events

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Sends the events."""
        scope[ENDLESS] = True
        async with aclosing(self._events):  # also when sending is cancelled
            await self.stream_response(send)


async def events(services: Services, request: Request, task_id: str, seen_tag: str | None) -> AsyncGenerator[bytes]:
    """The events of a task that exists, as they are sent; comments between them while nothing happens.

    Changes that follow each other within `WaitingTimes.events_interval_s` become one event, with the last state.
    When the task is deleted, or the server stops, they end without a terminal state.

    Args:
        services: of this process.
        request: while it is connected.
        task_id: whose.
        seen_tag: the `Last-Event-ID`: an entity tag; a state that it names is left out.
    """
    times = services.hub.times
    yield RETRY
    with services.hub.waiting(task_id, version=UNSEEN) as waiter, watched(request, waiter):
        read_s = 0.0
        while not waiter.gone:
            try:
                # The end is told at once, other changes with time for more of them.
                task = await services.hub.readings.task(
                    task_id, not_before_s=0.0 if waiter.ended else read_s + times.events_interval_s
                )
            except Unavailable:
                if waiter.dismissed:
                    return
                yield COMMENT
                await waiter.changed(RETRY_S)
                continue
            read_s = time.monotonic()
            if task is None:
                return
            if not matches(seen_tag, task):
                yield _event(task)
            if task.state.terminal or waiter.dismissed:
                return
            seen_tag, waiter.version = etag(task), task.version
            while not await waiter.changed(times.keep_alive_s):
                yield COMMENT


def _event(task: Task) -> bytes:
    return b"id: %b\ndata: %b\n\n" % (etag(task).encode(), orjson.dumps(task_json(task)))
