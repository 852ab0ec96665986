"""The ledger: the single truth about work. Redis keys, changed only by the scripts in `lua/`.

`operations` builds values, `executor` runs them (`Ledger` in workers, `AsyncLedger` in the web tier).
"""

from tasks.ledger.executor import AsyncLedger, Ledger
from tasks.ledger.keys import ANONYMOUS, DOCUMENTS, ENDED_CHANNEL, SCHEMA_VERSION
from tasks.ledger.operations import CommitOutcome, Finished, OutcomeKind
from tasks.ledger.overview import ModelEntry, ModelOverview, WorkerEntry
from tasks.ledger.task import (
    Admission,
    Alias,
    CancelOutcome,
    Claim,
    ClaimedUnit,
    KeyAdmission,
    KeyRoom,
    Lane,
    NewTask,
    NewUnit,
    Result,
    State,
    SubmitReply,
    Task,
    TaskPage,
    Watched,
)

__all__ = [
    "ANONYMOUS",
    "DOCUMENTS",
    "ENDED_CHANNEL",
    "SCHEMA_VERSION",
    "Admission",
    "Alias",
    "AsyncLedger",
    "CancelOutcome",
    "Claim",
    "ClaimedUnit",
    "CommitOutcome",
    "Finished",
    "KeyAdmission",
    "KeyRoom",
    "Lane",
    "Ledger",
    "ModelEntry",
    "ModelOverview",
    "NewTask",
    "NewUnit",
    "OutcomeKind",
    "Result",
    "State",
    "SubmitReply",
    "Task",
    "TaskPage",
    "Watched",
    "WorkerEntry",
]
