"""Outcomes of pieces go back: `lua/commit.lua`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tasks.ledger.scripts import Argument, Operation
from tasks.ledger.task import Lane, Outcome


class CommitCode(IntEnum):
    """What COMMIT did with one piece."""

    STALE = 0
    """The claim was lost or the task has ended: nothing changed."""
    COMMITTED = 1
    REPEATED = 2
    """An earlier call of the same claim had already committed it, with the same outcome."""


@dataclass(frozen=True, slots=True)
class CommitReply:
    """What COMMIT did.

    Attributes:
        codes: one per outcome.
        wait_ms: the stream is registered as lingering and must wait this long for its wake-up; 0: it asks for more.
        completed: lane and milliseconds from acceptance to end of each task that completed with this call
            (`overview.took_counts`).
    """

    codes: Sequence[CommitCode]
    wait_ms: int = 0
    completed: Sequence[tuple[Lane, int]] = ()


def commit(
    queue: str, token: str, outcomes: Sequence[Outcome], *, spent: int = 0, stream: str = "", linger_ms: int = 0
) -> Operation[CommitReply]:
    """Stores the outcomes of pieces, each only if `token` still holds it. A claim ends with its last piece.

    `spent`: estimated tokens that the work took beyond its cost, which nobody knew before; its owner pays. Where
    nothing is ready, `stream`, which is the caller's, lingers for `linger_ms`, as with CLAIM; 0: it does not.
    """
    arguments: list[Argument] = [token, spent, stream, linger_ms, len(outcomes)]
    for o in outcomes:
        p = o.piece
        arguments += [p.task_id, p.piece_id, p.first, p.items, o.failed, o.tokens, o.extra(), o.data]

    def read(reply: list[Any]) -> CommitReply:
        wait_ms, codes, completed = reply
        pairs: Iterable[tuple[bytes, int]] = zip(completed[::2], completed[1::2], strict=True)
        return CommitReply(
            [CommitCode(code) for code in codes], wait_ms, [(Lane(lane.decode()), int(ms)) for lane, ms in pairs]
        )

    return Operation(read, "commit", queue, tuple(arguments))
