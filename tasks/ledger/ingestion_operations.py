"""Operations on ingestions: values as in `tasks.ledger.operations`, each one script and harmless when run twice."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from tasks.errors import IdempotencyConflict, TooManyIngestions
from tasks.ledger import ingestion_replies as replies
from tasks.ledger import results
from tasks.ledger.file_operations import quota_arguments
from tasks.ledger.files import Quota
from tasks.ledger.ingestions import ClosedPage, Ingestion, IngestionStatus, NewIngestion, Page, PageStage
from tasks.ledger.operations import Argument, Operation
from tasks.ledger.waiting_pages import WaitingPage

_OF_A_TRY = (
    *("estimate_s", "s0", "s1", f"t_{IngestionStatus.FINALIZING}"),
    *map(replies.setback_field, replies.JOBS),
    *map(replies.losses_field, replies.JOBS),
)
"""Fields that another try begins without."""
_ROOM_AFTER_S = 60
_RUNNING = (IngestionStatus.QUEUED, IngestionStatus.IN_PROGRESS, IngestionStatus.FINALIZING)


@dataclass(frozen=True, slots=True)
class Move:
    """A change of an ingestion, made whole or not at all.

    Attributes:
        only_from: states in which it may be made.
        to: the new state; None: it stays.
        equal: field -> the value it must have; "" and 0 for one that is absent.
        stages: page -> the stage it must be in; None: it must not be in flight.
        begin: the waiting pages that must be the first ones; they wait no more.
        set, unset, add: fields to set, to remove, to increase.
        put, drop: pages in flight, as they shall be; numbers of those that are no more.
        wait: pages to wait behind the others.
        close: pages that are done, also in place of what was said of them before.
    """

    only_from: Collection[IngestionStatus]
    to: IngestionStatus | None = None
    equal: Mapping[str, str | int] = field(default_factory=dict)
    stages: Mapping[int, PageStage | None] = field(default_factory=dict)
    begin: Sequence[WaitingPage] = ()
    set: Mapping[str, str | int | float] = field(default_factory=dict)
    unset: Collection[str] = ()
    add: Mapping[str, int] = field(default_factory=dict)
    put: Sequence[Page] = ()
    drop: Sequence[int] = ()
    wait: Sequence[WaitingPage] = ()
    close: Sequence[ClosedPage] = ()

    def to_json(self) -> bytes:
        """For the script."""
        return orjson.dumps(
            {
                "states": [str(state) for state in self.only_from],
                "to": str(self.to or ""),
                "equal": [[name, str(value)] for name, value in self.equal.items()],
                "stages": [[str(page), str(stage or "")] for page, stage in self.stages.items()],
                "begin": [page.to_text() for page in self.begin],
                "set": [[name, str(value)] for name, value in self.set.items()],
                "unset": list(self.unset),
                "add": [[name, str(number)] for name, number in self.add.items() if number],
                "put": [[str(page.number), replies.page_text(page)] for page in self.put],
                "drop": [str(page) for page in self.drop],
                "wait": [page.to_text() for page in self.wait],
                "close": [[str(page.number), replies.closed_text(page)] for page in self.close],
            }
        )


def create_ingestion(
    ingestion: NewIngestion, *, max_open: int | None = None, quota: Quota | None = None, dataset_bytes: int = 0
) -> Operation[str]:
    """Stores an ingestion, or finds the one that its key names; the id of either.

    Raises on reading:
        IdempotencyConflict: the key belongs to an ingestion of another request.
        TooManyIngestions: `max_open` of its owner have not ended.
        QuotaExceeded: its owner's files, and datasets of `dataset_bytes`, are more than the quota allows.
    """
    name, digest = ingestion.key or ("", "")

    def read(reply: list[bytes]) -> str:
        if reply[0] == b"conflict":
            raise IdempotencyConflict(
                "This idempotency key was used for another ingestion. Use a new key for a new request."
            )
        if reply[0] == b"full":
            raise TooManyIngestions(
                f"You have {int(reply[1]):,} ingestions that have not ended; {max_open or 0:,} are allowed at a time. "
                "Wait for one to end, or cancel one.",
                retry_after_s=_ROOM_AFTER_S,
            )
        if reply[0] == b"quota" and quota:
            raise quota.refused(reply, and_datasets=True)
        return reply[1].decode()

    fields: tuple[Argument, ...] = ("spec", orjson.dumps(dict(ingestion.spec)))
    arguments = (
        ingestion.id,
        ingestion.owner,
        ingestion.ttl_ms,
        name,
        digest,
        -1 if max_open is None else max_open,
        *quota_arguments(quota),
        dataset_bytes,
        *fields,
    )
    return Operation("ingestion_create", "", arguments, read)


def read_ingestion(ingestion_id: str) -> Operation[Ingestion | None]:
    """One ingestion; None when the ledger does not hold it."""
    return Operation("ingestion_read", "", (ingestion_id,), lambda rows: replies.ingestion(ingestion_id, rows[0]))


def read_ingestions(ingestion_ids: Sequence[str]) -> Operation[list[Ingestion]]:
    """Several ingestions, in the order asked for; those that are gone are left out."""
    ids = tuple(ingestion_ids)

    def read(rows: list[list[object]]) -> list[Ingestion]:
        found = [replies.ingestion(i, row) for i, row in zip(ids, rows, strict=True)]
        return [ingestion for ingestion in found if ingestion is not None]

    return Operation("ingestion_read", "", ids, read)


def list_ingestions(owner: str, *, after: str | None, limit: int) -> Operation[tuple[list[str], bool]]:
    """Ids of an owner's ingestions, the newest first and older than `after`, and whether there may be more.

    It looks at few entries at a time, so there may be more although they are less than `limit`: then ask again, behind
    the last one, or as before where there was none.
    """
    return Operation("owned_list", "", (owner, after or "", limit, "ingestion", "ingestions"), results.id_page)


def open_ingestions(limit: int) -> Operation[list[str]]:
    """Ids of some ingestions that need a step, by chance."""
    return Operation("ingestion_open", "", (limit,), lambda reply: [name.decode() for name in reply])


def move_ingestion(ingestion_id: str, move: Move) -> Operation[tuple[bool, IngestionStatus | None]]:
    """Changes an ingestion, if it is as the move expects.

    The reply: whether it was changed, and its status now; None when there is no such ingestion.
    """

    def read(reply: list[bytes]) -> tuple[bool, IngestionStatus | None]:
        return bool(reply[0]), IngestionStatus(reply[1].decode()) if reply[1] else None

    return Operation("ingestion_move", "", (ingestion_id, move.to_json()), read)


def cancel_ingestion(ingestion_id: str) -> Operation[tuple[bool, IngestionStatus | None]]:
    """Lets nothing new begin; what is loaded stays, and what is being loaded. The reply is that of `move_ingestion`."""
    return move_ingestion(ingestion_id, Move(only_from=_RUNNING, to=IngestionStatus.CANCELLING))


def resume_ingestion(ingestion_id: str) -> Operation[tuple[bool, IngestionStatus | None]]:
    """Goes on with one that has failed through no fault of its request. The reply is that of `move_ingestion`.

    What failed of it before can be tried again at its end.
    """
    move = Move(
        only_from=(IngestionStatus.FAILED,),
        equal={"resumable": "1"},
        to=IngestionStatus.IN_PROGRESS,
        set={"cancelled": 0},
        unset=("resumable", "error", *_OF_A_TRY),
    )
    return move_ingestion(ingestion_id, move)


def retry_ingestion(ingestion_id: str) -> Operation[tuple[bool, IngestionStatus | None]]:
    """Begins again with the failed documents of one that has ended by itself, under the same id and pipeline.

    The reply is that of `move_ingestion`. Listing faults, such as a malformed line, are not documents: they stay.
    """
    move = Move(
        only_from=(IngestionStatus.COMPLETED, IngestionStatus.FAILED),
        equal={"error": ""},
        to=IngestionStatus.IN_PROGRESS,
        set={"cursor": orjson.dumps({"retry": 0}).decode()},
        unset=("listing_complete", *_OF_A_TRY),
    )
    return move_ingestion(ingestion_id, move)


def read_closed(ingestion_id: str, first: int, count: int) -> Operation[list[ClosedPage]]:
    """Those of the pages `first` to `first + count` that are done, in order; its pages are numbered from 0."""

    def read(reply: list[bytes]) -> list[ClosedPage]:
        return [replies.closed(first + at, text) for at, text in enumerate(reply) if text]

    return Operation("ingestion_closed", "", (ingestion_id, first, count), read)


def close_ingestion(ingestion_id: str) -> Operation[None]:
    """Nothing is left to do for an ingestion that has ended."""
    return Operation("ingestion_close", "", (ingestion_id,), lambda _: None)
