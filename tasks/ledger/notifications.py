"""What Redis publishes: who has ended, small results with the news of their ends, and who is woken.

* `redis_keys.ENDED_CHANNEL`, to everybody: ids of tasks that have ended, with spaces between them.
* `redis_keys.answers_channel`, to the process that waits: results of tasks that have ended (`lua/commit.lua`). Nobody
  else is told of these. A line of lengths, then pieces of these lengths: of each task its id, the number of names and
  values that follow its record, the packed record, then these.
* `redis_keys.wake_channel`, to a stream that lingers: "work". It asks for it.
* `redis_keys.STEPS_CHANNEL`, to all documents workers: a batch or an ingestion may go on.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import cast

from tasks.ledger.read import fields_of, result_of
from tasks.ledger.task import Result


def results_in(message: bytes) -> Iterator[Result]:
    """All of one message of `answers_channel`, as readings of the ledger would have them."""
    end = message.index(b"\n")
    ends = list(accumulate(map(int, message[:end].split()), initial=end + 1))
    pieces = (message[start:stop] for start, stop in pairwise(ends))
    for task_id in pieces:
        size = int(next(pieces))
        record, *flat = (next(pieces) for _ in range(size + 1))
        # None is of a task that is not there.
        yield cast("Result", result_of(task_id.decode(), {b"s": record, **fields_of(flat)}))
