"""A call that waits for its own task: OpenAI's embeddings over the queue."""

import asyncio
import contextlib
import time

import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.types import Message

from api.answer import task_json
from api.error_responses import CallerGone, item_failed
from api.parts import Services
from api.queue.accept import submit
from api.queue.submission import LINGERING_INTEREST_S
from api.request.key_limits import note_room
from api.request.ownership import read_result
from api.waiting.hub import Waiter, watched
from tasks.errors import NotReady, Unavailable, WaitTimeout
from tasks.ledger import Result, State, Submission, operations
from tasks.records.api_keys import Key
from worker_config.subject import link_task, span

_SOON_S = 0.25
"""Most answers come before this. Only then the connection is watched, because that costs an asyncio task."""
_MAX_RETRY_AFTER_S = 5
"""Well within `LINGERING_INTEREST_S`, or the retry would find nothing to join and pay for the work again."""
_WITH_OUTCOME = {State.COMPLETED, State.FAILED}
_RENEW_S = 5.0
"""How often a waiter renews its interest: another waiter of the same task may have left and shortened it."""


async def encode_now(services: Services, request: Request, submission: Submission, wait_s: float) -> Result:
    """Submits and waits until every text has its vector.

    Raises:
        WaitTimeout: it took longer than `wait_s`; the same request again joins the work.
        ItemFailed: a text has no vector.
        NotReady: workers came to serve another model when only some texts were encoded.
        CallerGone: the client left first.
        NotReady: no worker has served the model for a minute, and it is not the server's own, whose worker may be about
            to come.
        Unavailable: see `submit`.
    """
    _check_served(services, submission.queue)
    end = time.monotonic() + wait_s
    with services.hub.waiting(submission.task_id) as waiter:
        reply = await submit(services, submission)
        note_room(request.scope, reply.room)
        if not reply.joined:
            await _wait(services, request, submission, waiter, end)
            return await _result(services, waiter, submission)
    with services.hub.waiting(reply.task_id) as waiter:
        task = await services.ledger.run(operations.read_task(reply.task_id))
        if task is not None:
            link_task(task.trace)
        waiter.ended |= task is None or task.state.terminal  # it may have been told meanwhile
        await _wait(services, request, submission, waiter, end)
        return await _result(services, waiter, submission)


async def embed_query(
    services: Services, key: Key, text: str, *, model: str, dimensions: int | None, wait_s: float
) -> npt.NDArray[np.floating]:
    """The vector of a text as a query, cut to `dimensions`. Whoever leaves cancels it.

    Raises:
        InputTooLarge: the text is.
        WaitTimeout, ItemFailed, NotReady, Unavailable: as `encode_now` does.
    """
    submission = services.requests.search_query(
        text, model=model, dimensions=dimensions, owner=key.owner, wait_s=wait_s
    )
    stays = Request({"type": "http", "headers": []}, _nothing)
    vector: npt.NDArray[np.floating] = (await encode_now(services, stays, submission, wait_s)).vectors[0]
    return vector


async def _nothing() -> Message:
    await asyncio.Event().wait()
    return {}


def _check_served(services: Services, model: str) -> None:
    registry = services.registry
    if model != registry.own_model and registry.redis_up and registry.absent_s(model) > services.hub.times.restart_s:
        raise NotReady(
            f"No worker serves {model} now. GET /v1/models tells which models are ready; a task (POST /v1/tasks) waits "
            "for a worker to come.",
            param="model",
            retry_after_s=5,
        )


async def _wait(services: Services, request: Request, submission: Submission, waiter: Waiter, end: float) -> None:
    if not waiter.ended:
        await waiter.changed(min(end - time.monotonic(), _SOON_S))
    if waiter.ended:
        return
    with watched(request, waiter):
        while not waiter.ended:
            left_s = end - time.monotonic()
            if waiter.gone:
                await _lose_interest(services, submission.queue, waiter)
                raise CallerGone
            if left_s <= 0 or waiter.dismissed:
                raise _timeout(services, submission)
            if not await waiter.changed(min(left_s, _RENEW_S)) and left_s > _RENEW_S:
                for_s = left_s - _RENEW_S + LINGERING_INTEREST_S
                await _want(services, submission.queue, waiter, for_s, shorten=False)


async def _lose_interest(services: Services, model: str, waiter: Waiter) -> None:
    if not services.hub.awaited_by_others(waiter):
        await _want(services, model, waiter, LINGERING_INTEREST_S, shorten=True)


async def _want(services: Services, model: str, waiter: Waiter, for_s: float, *, shorten: bool) -> None:
    # Only an economy: without Redis there is nothing to save, and the wait itself goes on.
    with contextlib.suppress(Unavailable):
        await services.ledger.run(operations.want(model, waiter.task_id, round(for_s * 1000), shorten=shorten))


async def _result(services: Services, waiter: Waiter, submission: Submission) -> Result:
    result: Result | None
    if waiter.answer is not None:
        with span("read"):  # as of a result that is asked for, so that a trace has the same steps
            result = waiter.answer.result()
    else:
        result = await read_result(services, waiter.task_id, sum(unit.items for unit in submission.units))
    if result is None or result.task.state not in _WITH_OUTCOME:
        raise _timeout(services, submission)
    return _whole(result)


def _whole(result: Result) -> Result:
    if result.task.model_changed:
        raise NotReady("The model was exchanged meanwhile; send the same request again.", retry_after_s=1)
    if result.errors:
        first = min(result.errors)
        raise item_failed(first, result.errors[first])
    return result


def _timeout(services: Services, submission: Submission) -> WaitTimeout:
    retry_after_s = services.registry.retry_after_s(task_json.task_from_submission(submission))
    why = "The vectors are not ready yet"
    if services.registry.redis_up and not services.registry.live_workers().get(submission.queue):
        why = f"No worker serves {submission.queue} now (GET /v1/models), so the vectors are not ready"
    return WaitTimeout(
        f"{why}; send the same request again to join the work that is under way.",
        retry_after_s=min(_MAX_RETRY_AFTER_S, retry_after_s),
    )
