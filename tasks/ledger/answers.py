"""Small results that travel with the news of their tasks' ends, so that who waits for one need not ask for it.

`lua/shared/answers.lua` writes such a message, and says what is left out of it. It is a line of lengths, then the
pieces of these lengths: of each answer the numbers of its task, id, queue, owner, options, trace, and names and values
of its result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import cast

from tasks.ledger import replies
from tasks.ledger.task import Result

_NUMBERS = (
    *(b"state", b"lane", b"total", b"completed", b"failed", b"tokens", b"created", b"started", b"finished"),
    b"deadline",
)
"""Of a task, as its hash names them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one task, still to be read.

    Attributes:
        task: its hash, as Redis gives it.
        expires_in_ms: from its end on.
        finished_ms: its end.
        parts: its result hash, likewise.
    """

    task_id: str
    task: list[bytes]
    expires_in_ms: int
    finished_ms: int
    parts: list[bytes]

    def result(self) -> Result:
        """As a reading of the ledger would have it."""
        reply = [self.task, self.expires_in_ms, b"", self.finished_ms, self.parts]
        return cast("Result", replies.result_from_reply(self.task_id, reply))  # None is of a task that is not there


def pieces_of(message: bytes) -> list[bytes]:
    """What stands behind a line of lengths."""
    end = message.index(b"\n")
    ends = list(accumulate(map(int, message[:end].split()), initial=end + 1))
    return [message[start:stop] for start, stop in pairwise(ends)]


def answers_in(message: bytes) -> Iterator[Answer]:
    """All of one message."""
    pieces = pieces_of(message)
    at = 0
    while at < len(pieces):
        numbers, task_id, queue, owner, options, trace = pieces[at : at + 6]
        size, ttl, *values = numbers.split()
        task = [b"q", queue, b"owner", owner, b"options", options, b"trace", trace]
        for name, value in zip(_NUMBERS, values, strict=True):
            if value != b"-":
                task += (name, value)
        parts = pieces[at + 6 : (at := at + 6 + int(size))]
        finished = int(values[_NUMBERS.index(b"finished")])
        yield Answer(task_id.decode(), task, int(ttl), finished, parts)
