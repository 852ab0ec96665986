"""Tasks come in: `lua/submit.lua`, and the errors of its refusals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.errors import BacklogFull, Refused, StorageFull, Unauthenticated
from tasks.item import DEFAULT_RATE
from tasks.ledger.key_limits import KeyRoom, key_refusal, retry_after
from tasks.ledger.scripts import Argument, Operation
from tasks.ledger.task import NewTask

MAX_RETRY_AFTER_S = 120
"""Above this openai-python gives up at once instead of waiting."""
_MAX_BACKLOG_BYTES = 512 * 2**20
"""Of texts that callers may have waiting for one model."""


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """What SUBMIT did.

    Attributes:
        task_id: the stored task, or the earlier one that this call joined.
        joined: an earlier task was found under the alias.
        bells_due: queues to which the caller must send one bell message each.
        room: estimated tokens that the owner's key may still bring in one task, by the limit that leaves least; None:
            it has no limit.
    """

    task_id: str
    joined: bool
    bells_due: Sequence[str]
    room: KeyRoom | None = None


def submit(task: NewTask) -> Operation[SubmitReply]:
    """Stores a task, or finds the one that its alias names.

    Raises:
        ValueError: there are no pieces.

    Raises on reading:
        BacklogFull: as much work as may wait would be done before this; with the seconds after which there is room.
        StorageFull: Redis is above the allowed share of its memory, or the owner above its own; likewise.
        TooMany: a limit of the owner's key; likewise, or not to be repeated because it never fits.
        Refused: the alias belongs to a task with another digest.
        Unauthenticated: the owner's key was revoked meanwhile.
    """
    return Operation(
        _submitted,
        "submit",
        task.queue,
        _limits(task),
        gathers=task_arguments(task),
        # A caller that waits on its connection is promised nothing: the answer is all it wants.
        promised=task.listed,
    )


def _limits(task: NewTask) -> tuple[Argument, ...]:
    """Of all tasks of one call."""
    return (DEFAULT_RATE, _MAX_BACKLOG_BYTES, task.admission.owner_share)


def task_arguments(task: NewTask) -> tuple[Argument, ...]:
    """One task, as `lua/submit.lua` reads it: how many arguments, then by position, then those of its pieces."""
    if not task.pieces:
        raise ValueError(f"{task.task_id} has no pieces: it would never end")
    limits, alias = task.admission, task.alias
    own: list[Argument] = [
        task.task_id,
        task.queue,
        str(task.lane),
        task.owner,
        task.deadline_in_ms or 0,
        task.ttl_ms,
        task.options.to_text(),
        task.metadata,
        alias.name if alias else "",
        alias.digest if alias else "",
        int(bool(alias and alias.join)),
        int(task.listed),
        int(task.wakes_driver),
        task.trace,
        task.answer_to,
        limits.vector_bytes,
        limits.max_backlog_s,
        limits.max_memory_percent,
        *("" if most is None else most for most in (limits.tokens_per_minute, limits.queued_tokens, limits.open_jobs)),
    ]
    for piece in task.pieces:
        own += (piece.items, piece.cost, piece.payload)
    return (len(own), *own)


def _submitted(reply: list[Any]) -> SubmitReply:
    (outcome, *told), *bells = reply
    if outcome == b"full":
        raise backlog_full(float(told[0]), float(told[1]))
    if outcome in {b"memory", b"share"}:
        wait_s = retry_after(float(told[0]), MAX_RETRY_AFTER_S)
        what = "The queue's memory is full" if outcome == b"memory" else "Your share of the queue's memory is full"
        message = f"{what}; try again in {wait_s} s, or delete results that you have read. Nothing was stored."
        raise StorageFull(message, retry_after_s=wait_s)
    if outcome == b"conflict":
        raise Refused(
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body. Use a new key for a new request.",
        )
    if outcome == b"key":
        raise key_refusal(told)
    if outcome == b"revoked":
        raise Unauthenticated("This API key was revoked. Use another one.")
    task_id, *limited = told
    room = KeyRoom(int(limited[0][0]), int(limited[0][1]), float(limited[0][2])) if limited else None
    return SubmitReply(task_id.decode(), outcome == b"joined", tuple(name.decode() for name in bells), room)


def backlog_full(wait_s: float, before_s: float) -> BacklogFull:
    """The error for a task that there is room for after `wait_s`. So much work would be done before it now."""
    told_s = retry_after(wait_s, MAX_RETRY_AFTER_S)
    return BacklogFull(
        f"About {before_s:.0f} s of work would be done before this; try again in {told_s} s. Nothing was stored.",
        retry_after_s=told_s,
        wait_s=wait_s,
        before_s=before_s,
    )
