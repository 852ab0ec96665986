"""Where a submission enters the ledger, and the 202 that says so."""

import dataclasses

from starlette.responses import Response

from api.answer import task_json
from api.parts import Services
from api.request.key_limits import admission
from tasks.errors import BacklogFull, KeyLimitReached, RateLimited, Unavailable
from tasks.ledger import DOCUMENTS, Lane, Submission, SubmitReply, Task, operations
from tasks.ledger.executor import CALL_TIMEOUT_S
from tasks.ledger.ids import missing
from tasks.records.api_keys import NO_LIMITS
from worker_config.subject import SpanAttributes, link_task, span, subject_is_task

_SMALL_BYTES = 64 * 2**10
_SLOWEST_BYTES_PER_S = 4 * 2**20
"""A submission that is not small gets more time to reach Redis and its disk: as if it moved at this speed."""


async def submit(services: Services, submission: Submission) -> SubmitReply:
    """Stores the task, and sends a bell if the ledger says so.

    Raises:
        BacklogFull, StorageFull, IdempotencyConflict: nothing was stored.
        RateLimited, KeyLimitReached: a limit of the owner's key; likewise.
        Overloaded: as many are under way as this process can handle.
        RedisUnavailable: nothing was stored, or only the reply was lost; a repetition is safe with the same alias.
    """
    size_bytes = sum(len(unit.payload) for unit in submission.units)
    timeout_s = CALL_TIMEOUT_S + (size_bytes / _SLOWEST_BYTES_PER_S if size_bytes > _SMALL_BYTES else 0)
    limits = services.keys.limits(submission.owner)
    if limits is not NO_LIMITS and submission.queue != DOCUMENTS:
        limited = dataclasses.replace(submission.admission, key=admission(limits))
        submission = dataclasses.replace(submission, admission=limited)
    try:
        bulk = submission.lane is Lane.BULK
        with services.door.submitting(submission.owner, bulk=bulk), span("submit") as traced:
            if traced is not None:
                submission = dataclasses.replace(submission, trace=traced.traceparent)
            reply = await services.ledger.run(operations.submit(submission), timeout_s=timeout_s)
            if traced is not None:
                traced.set(_described(submission, reply))
    except (Unavailable, RateLimited, KeyLimitReached) as error:
        services.metrics.refused(submission, error.code)
        await services.door.pace(submission.owner)  # a caller that is refused may ask again at once
        if isinstance(error, BacklogFull):
            raise _come_back(services, submission, error) from None
        raise
    subject_is_task(reply.task_id)
    if reply.bell_due:
        services.bell.send_bell(submission.queue)
    services.metrics.submitted(submission, joined=reply.joined)
    return reply


def _come_back(services: Services, submission: Submission, full: BacklogFull) -> BacklogFull:
    if full.wait_s >= operations.MAX_RETRY_AFTER_S:
        return full  # nobody knows when, so a place behind others says nothing
    queue, lane, owner = submission.queue, submission.lane, submission.owner
    cost = sum(unit.cost for unit in submission.units)
    # Other processes refuse as many, and know nothing of these.
    work_s = services.registry.turn_s(queue, lane, owner, cost) * services.settings.api_processes
    wait_s = services.registry.returns.wait_s((queue, lane, owner), full.wait_s, work_s)
    return operations.backlog_full(wait_s, full.before_s)


def _described(submission: Submission, reply: SubmitReply) -> SpanAttributes:
    return {
        "messaging.system": "embedq",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": submission.queue,
        "messaging.message.id": reply.task_id,
        "embedq.lane": submission.lane,
        "embedq.items": sum(unit.items for unit in submission.units),
        "embedq.units": len(submission.units),
        "embedq.joined": reply.joined,
    }


async def accept(services: Services, submission: Submission) -> Task:
    """The new task, or the earlier one that the same `Idempotency-Key` names. Raises like `submit`."""
    reply = await submit(services, submission)
    if not reply.joined:
        return task_json.task_from_submission(submission)
    task = await services.ledger.run(operations.read_task(reply.task_id))
    if task is None:
        raise missing(reply.task_id, services.settings.result_ttl_s)
    link_task(task.trace)
    return task


async def accepted_response(services: Services, submission: Submission) -> Response:
    """The 202 for the task of `accept`. Raises like `submit`."""
    task = await accept(services, submission)
    retry_after_s = services.registry.retry_after_s(task, new=task.id == submission.task_id)
    return task_json.task_response(task, retry_after_s=retry_after_s, status=202, location=True)
