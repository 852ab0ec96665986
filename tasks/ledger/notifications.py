"""What Redis publishes: who has ended or changed, small results with the news of their ends, and who is woken.

* `redis_keys.CHANGED_CHANNEL`, to everybody: ids of tasks that have ended, "|", ids of tasks and records that changed.
* `redis_keys.answers_channel`, to the process that waits: results of tasks that have ended (`lua/commit.lua`). Nobody
  else is told of these. A line of lengths, then pieces of these lengths: of each task its id, the number of names and
  values that follow its record, the packed record, then these.
* `redis_keys.wake_channel`, to a stream that lingers: "work". It asks for it.
* `redis_keys.STEPS_CHANNEL`, to all documents workers: a batch or an ingestion may go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import cast

from tasks.ledger.read import fields_of, result_of
from tasks.ledger.task import Result


@dataclass(frozen=True, slots=True)
class Changes:
    """One message to everybody: ids of tasks that have ended, and of tasks and records that have only changed."""

    ended: tuple[str, ...]
    changed: tuple[str, ...]


def changes_in(message: bytes) -> Changes:
    """Of a message of `CHANGED_CHANNEL`."""
    ended, _, changed = message.decode().partition("|")
    return Changes(tuple(ended.split()), tuple(changed.split()))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one task that has ended, still to be read.

    Attributes:
        fields: of its hash.
    """

    task_id: str
    fields: dict[bytes, bytes]

    def result(self) -> Result:
        """As a reading of the ledger would have it."""
        return cast("Result", result_of(self.task_id, self.fields))  # None is of a task that is not there


def answers_in(message: bytes) -> Iterator[Answer]:
    """All of one message of `answers_channel`."""
    end = message.index(b"\n")
    ends = list(accumulate(map(int, message[:end].split()), initial=end + 1))
    pieces = (message[start:stop] for start, stop in pairwise(ends))
    for task_id in pieces:
        size = int(next(pieces))
        record, *flat = (next(pieces) for _ in range(size + 1))
        yield Answer(task_id.decode(), {b"s": record, **fields_of(flat)})
