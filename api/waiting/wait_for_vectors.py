"""A call that waits for its own task, as long as its client does: register, submit, wait."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from time import monotonic

import numpy as np
import numpy.typing as npt
from starlette.datastructures import Headers

from api.error_responses import CallerGone, TextFailed
from api.served_models import ServedModels
from api.submit import NewTasks, Submitter, Wanted, task_of
from api.waiting.subscription import Subscription, Wait
from tasks.errors import NotReady, Unavailable, WaitTimeout
from tasks.ledger import read
from tasks.ledger.cancel import want
from tasks.ledger.client import CALL_TIMEOUT_S, AsyncLedger
from tasks.ledger.key_limits import KeyRoom
from tasks.ledger.task import NewTask, Result, State
from tasks.records.api_keys import Key
from worker_config.telemetry import link_task, span

Gone = Callable[[], Awaitable[None]]
"""Returns when the client has left."""

_NETWORK_S = 2.0
"""Left of a client's read timeout for the way there and back."""
ANNOUNCED = {
    "x-stainless-read-timeout": "Seconds that OpenAI's client for Python waits; the answer comes before.",
    "x-stainless-timeout": "The same of OpenAI's client for Node.",
}
"""Headers, and what the document says of them."""
LINGERING_INTEREST_S = 10.0
"""A synchronous task is still wanted this long after its waiter: a client that repeats the call joins it."""
_AWAITED_TTL_S = 60.0
"""The result of a synchronous task is kept so long, for a client that repeats the call."""
_MAX_RETRY_AFTER_S = 5
"""Well within `LINGERING_INTEREST_S`, or the retry would find nothing to join and pay for the work again."""
_WITH_OUTCOME = {State.COMPLETED, State.FAILED}
_SMALL_ITEMS = 64
_RESULT_TIMEOUT_S = 30.0
"""A result may be hundreds of megabytes. Its reader has just heard from Redis, so a long limit blocks nobody."""


def patience_s(headers: Headers) -> float:
    """Seconds that the caller waits, as OpenAI's clients announce it: who has hung up learns nothing."""
    limits = [math.inf]
    for name in ANNOUNCED:
        try:
            seconds = float(headers.get(name, 0))
        except ValueError:
            continue
        if seconds > 0:  # Node's client cuts to whole seconds: its 0 is anything below one
            limits.append(max(seconds - _NETWORK_S, seconds / 2))
    return min(limits)


def wanted_for(wait_s: float) -> Wanted:
    """How long the task behind a call is wanted whose caller waits so long."""
    return Wanted(_AWAITED_TTL_S, wait_s + LINGERING_INTEREST_S, wait_s)


class SynchronousCalls:
    """The calls of this process that wait for vectors.

    Args:
        ledger: has the tasks.
        subscription: tells of their ends.
        submitter: brings them into the ledger.
        models: that are served.
        new_tasks: makes the tasks of searches.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        subscription: Subscription,
        submitter: Submitter,
        models: ServedModels,
        new_tasks: NewTasks,
    ) -> None:
        self._ledger = ledger
        self._subscription = subscription
        self._submitter = submitter
        self._models = models
        self._new_tasks = new_tasks

    async def wait_for_vectors(self, submission: NewTask, wait_s: float, gone: Gone) -> tuple[Result, KeyRoom | None]:
        """Submits and waits until every text has its vector; returns what its key may still bring, too.

        Raises:
            WaitTimeout: it took longer than `wait_s`; the same request again joins the work.
            TextFailed: a text has no vector.
            NotReady: workers came to serve another model when only some texts were encoded; or none has served the
                model for a minute, and it is not the server's own, whose worker may be about to come.
            CallerGone: the client left first.
            Unavailable: see `Submitter.submit`.
        """
        self._require_served(submission.queue)
        end_s = monotonic() + wait_s
        with self._subscription.waiting(submission.task_id) as wait:
            reply = await self._submitter.submit(submission)
            if not reply.joined:
                wait.stored = True
                return await self._vectors(submission, wait, end_s, gone), reply.room
        with self._subscription.waiting(reply.task_id) as wait:
            task = await self._ledger.run(read.read_task(reply.task_id))
            if task is None or task.state.terminal:
                wait.end()
            else:
                link_task(task.trace)
                wait.stored = True
            return await self._vectors(submission, wait, end_s, gone), reply.room

    async def embed_query(
        self, key: Key, text: str, *, model: str, dimensions: int | None, wait_s: float
    ) -> npt.NDArray[np.floating]:
        """The vector of a text as a query, cut to `dimensions`. Cancelled, the text is encoded all the same.

        Raises:
            Invalid: the text is.
            WaitTimeout, TextFailed, NotReady, Unavailable: as `wait_for_vectors` does.
        """
        submission = self._new_tasks.query(key, text, model=model, dimensions=dimensions, wanted=wanted_for(wait_s))
        result, _ = await self.wait_for_vectors(submission, wait_s, _never)
        vector: npt.NDArray[np.floating] = result.vectors[0]
        return vector

    async def _vectors(self, submission: NewTask, wait: Wait, end_s: float, gone: Gone) -> Result:
        if await wait.until_over(end_s - monotonic(), gone):
            if not self._subscription.awaited_by_others(wait):
                await self._lose_interest(submission.queue, wait.task_id)
            raise CallerGone
        result: Result | None = None
        if wait.result is not None:
            with span("read"):  # as of a result that is asked for, so that a trace has the same steps
                result = wait.result
        elif wait.ended:
            result = await read_result(self._ledger, wait.task_id, sum(piece.items for piece in submission.pieces))
        if result is None or result.task.state not in _WITH_OUTCOME:
            raise self._timeout(submission)
        return _whole(result)

    async def _lose_interest(self, model: str, task_id: str) -> None:
        # Only an economy: without Redis there is nothing to save.
        with contextlib.suppress(Unavailable):
            for_ms = round(LINGERING_INTEREST_S * 1000)
            await self._ledger.run(want(model, task_id, for_ms, gone=True))

    def _require_served(self, model: str) -> None:
        models = self._models
        restart_s = self._subscription.times.restart_s
        if model != models.own_model and models.redis_up and models.absent_s(model) > restart_s:
            raise NotReady(
                f"No worker serves {model} now. GET /v1/models tells which models are ready; a task (POST /v1/tasks) "
                "waits for a worker to come.",
                param="model",
                retry_after_s=5,
            )

    def _timeout(self, submission: NewTask) -> WaitTimeout:
        why = "The vectors are not ready yet"
        if self._models.redis_up and not self._models.live_workers().get(submission.queue):
            known = self._models.why_none(submission.queue)
            why = known or f"No worker serves {submission.queue} now (GET /v1/models), so the vectors are not ready"
        return WaitTimeout(
            f"{why}; send the same request again to join the work that is under way.",
            retry_after_s=min(_MAX_RETRY_AFTER_S, self._models.retry_after_s(task_of(submission))),
        )


async def read_result(ledger: AsyncLedger, task_id: str, items: int) -> Result | None:
    """The result of a task with so many items; None when the ledger no longer holds it.

    Raises:
        RedisUnavailable: no answer.
    """
    timeout_s = CALL_TIMEOUT_S if items <= _SMALL_ITEMS else _RESULT_TIMEOUT_S
    with span("read"):
        return await ledger.run(read.read_result(task_id), timeout_s=timeout_s)


async def _never() -> None:
    await asyncio.Event().wait()


def _whole(result: Result) -> Result:
    if result.task.model_changed:
        raise NotReady("The model was exchanged meanwhile; send the same request again.", retry_after_s=1)
    if result.errors:
        first = min(result.errors)
        raise TextFailed(first, result.errors[first])
    return result
