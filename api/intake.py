"""Where a submission enters the ledger, and the 202 that says so."""

from starlette.responses import Response

from api import render
from api.services import Services
from tasks.ledger import Submission, SubmitReply, operations
from tasks.ledger.ids import missing


async def submit(services: Services, submission: Submission) -> SubmitReply:
    """Stores the task, and rings if it falls to this caller.

    Raises:
        BacklogFull, StorageFull, RedisUnavailable, IdempotencyConflict: nothing was stored.
    """
    reply = await services.ledger.run(operations.submit(submission))
    if reply.ring:
        services.bell.ring(submission.model)
    services.metrics.submitted(submission, joined=reply.joined)
    return reply


async def accept(services: Services, submission: Submission) -> Response:
    """The 202 for a new task, or for the earlier one that the same `Idempotency-Key` names. Raises like `submit`."""
    reply = await submit(services, submission)
    task = render.accepted(submission)
    if reply.joined:
        found = await services.ledger.run(operations.read_task(reply.task_id))
        if found is None:
            raise missing(reply.task_id, services.settings.result_ttl_s)
        task = found
    retry_after_s = services.registry.retry_after_s(task.model, task.lane)
    return render.task_response(task, retry_after_s=retry_after_s, status=202, location=True)
