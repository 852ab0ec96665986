"""Jobs whose workers died so often that the ledger has given them up: whether, and when, they are tried again. Pure.

Somebody's text is parsed in a child of the worker, so it is seldom to blame: workers are killed by rollouts, by lack of
memory, by hand. Such a job is submitted anew a few times, before its batch, its ingestion or its page fails.
"""

from tasks.item import TextError
from tasks.records.document_jobs import LONGEST_PAUSE_S

MAX_LOSSES = 3
"""So often a job is submitted anew; each time four workers in a row may die of it."""
_LOST = "worker_lost"


def again(error: TextError, losses: int) -> bool:
    """Whether a job that failed with `error`, after so many losses before it, is tried again."""
    return error.code == _LOST and losses < MAX_LOSSES


def pause_s(before: int) -> float:
    """Seconds until the next try, after `before` tries that had to pause before this one."""
    return min(2.0**before, LONGEST_PAUSE_S)
