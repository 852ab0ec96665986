"""Operations on ingestions: values as in `tasks.ledger.scripts`, each one script and harmless when run twice."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from tasks.ledger.read import fields_of
from tasks.ledger.redis_keys import record_key
from tasks.ledger.scripts import Operation
from tasks.ledger.task import State
from tasks.records.ingestions import (
    ClosedPage,
    Counts,
    Ingestion,
    IngestionFault,
    IngestionStatus,
    NewIngestion,
    PageInFlight,
    PageStage,
    Sample,
    Setback,
    WaitingPage,
)
from tasks.records.jobs import (
    RecordKind,
    create_record,
    delete_record,
    find_record,
    list_records,
    open_records,
)
from tasks.records.store import ANY_ROOM, Room

COUNTS = tuple(field.name for field in dataclasses.fields(Counts))
"""Fields of `Counts`, each a field of the hash."""

JOBS = ("list", "parse", "load", "finish")
"""Kinds of jobs of an ingestion."""


def setback_field(job: str) -> str:
    """Where the hash has the setback of a kind of job."""
    return f"setback_{job}"


def away_field(job: str) -> str:
    """Where it has the moment of the first of these setbacks."""
    return f"away_{job}"


def setback_fields(job: str, setback: Setback) -> dict[str, str | int | float]:
    """A setback as fields of the hash."""
    since = {} if setback.since_ms is None else {away_field(job): setback.since_ms}
    return {setback_field(job): setback.to_text(), **since}


def losses_field(job: str) -> str:
    """Where the hash has how often in a row a kind of job was given up because its workers died."""
    return f"losses_{job}"


_OF_A_TRY = (
    *("estimate_s", "s0", "s1", f"t_{IngestionStatus.FINALIZING}"),
    *map(setback_field, JOBS),
    *map(away_field, JOBS),
    *map(losses_field, JOBS),
)
"""Fields that another try begins without."""
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
    put: Sequence[PageInFlight] = ()
    drop: Sequence[int] = ()
    wait: Sequence[WaitingPage] = ()
    close: Sequence[ClosedPage] = ()

    def to_json(self) -> bytes:
        """For the script, and as a job leaves it."""
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
                "put": [[str(page.number), page.to_json()] for page in self.put],
                "drop": [str(page) for page in self.drop],
                "wait": [page.to_text() for page in self.wait],
                "close": [[str(page.number), page.to_json()] for page in self.close],
            }
        )


def create_ingestion(ingestion: NewIngestion, room: Room = ANY_ROOM) -> Operation[str]:
    """Stores an ingestion, or finds the one that its key names, see `create_record`; the id of either."""
    fields = {"spec": orjson.dumps(dict(ingestion.spec))}
    if ingestion.roots is not None:
        fields["roots"] = orjson.dumps(list(ingestion.roots))
    if ingestion.shares_table:
        fields["shares_table"] = b"1"
    return create_record(RecordKind.INGESTION, ingestion, room, fields, ingestion.ttl_ms)


delete_ingestion = partial(delete_record, RecordKind.INGESTION)
find_ingestion = partial(find_record, RecordKind.INGESTION)
list_ingestions = partial(list_records, RecordKind.INGESTION)
open_ingestions = partial(open_records, RecordKind.INGESTION)


def read_ingestion(ingestion_id: str) -> Operation[Ingestion | None]:
    """One ingestion; None when the ledger does not hold it."""
    return Operation(lambda rows: ingestion_from_reply(ingestion_id, rows[0]), "ingestion_read", "", (ingestion_id,))


def read_ingestions(ingestion_ids: Sequence[str]) -> Operation[list[Ingestion]]:
    """Several ingestions, in the order asked for; those that are gone are left out."""
    ids = tuple(ingestion_ids)

    def read(rows: list[list[object]]) -> list[Ingestion]:
        read = [ingestion_from_reply(i, row) for i, row in zip(ids, rows, strict=True)]
        return [ingestion for ingestion in read if ingestion is not None]

    return Operation(read, "ingestion_read", "", ids)


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of a move.

    Attributes:
        moved: the ingestion was as the move expected, and was changed.
        status: it is now in; None when there is no such ingestion.
    """

    moved: bool
    status: IngestionStatus | None


def move_ingestion(ingestion_id: str, move: Move | bytes) -> Operation[Moved]:
    """Changes an ingestion, if it is as the move expects. `move`: bytes are its JSON."""

    def read(reply: list[bytes]) -> Moved:
        moved, status = reply
        return Moved(bool(moved), IngestionStatus(status.decode()) if status else None)

    arguments = (ingestion_id, move.to_json() if isinstance(move, Move) else move)
    return Operation(read, "ingestion_move", "", arguments, promised=True)


def cancel_ingestion(ingestion_id: str) -> Operation[Moved]:
    """Lets nothing new begin; what is loaded stays, and what is being loaded."""
    return move_ingestion(ingestion_id, Move(only_from=_RUNNING, to=IngestionStatus.CANCELLING))


def resume_ingestion(ingestion_id: str) -> Operation[Moved]:
    """Goes on with one that has failed through no fault of its request.

    What failed of it before can be tried again at its end.
    """
    move = Move(
        only_from=(IngestionStatus.FAILED,),
        equal={"resumable": "1", "deleted_at": ""},
        to=IngestionStatus.IN_PROGRESS,
        set={"cancelled": 0},
        unset=("resumable", "error", *_OF_A_TRY),
    )
    return move_ingestion(ingestion_id, move)


def retry_ingestion(ingestion_id: str) -> Operation[Moved]:
    """Begins again with the failed documents of one that has ended by itself, under the same id and pipeline.

    Listing faults, such as a malformed line, are not documents: they stay.
    """
    move = Move(
        only_from=(IngestionStatus.COMPLETED, IngestionStatus.FAILED),
        equal={"error": "", "deleted_at": ""},
        to=IngestionStatus.IN_PROGRESS,
        set={"cursor": orjson.dumps({"retry": 0}).decode()},
        unset=("listing_complete", *_OF_A_TRY),
    )
    return move_ingestion(ingestion_id, move)


def read_closed(ingestion_id: str, first: int, count: int) -> Operation[list[ClosedPage]]:
    """Those of the pages `first` to `first + count` that are done, in order; its pages are numbered from 0."""

    def read(replies: list[list[bytes | None]]) -> list[ClosedPage]:
        return [ClosedPage.from_json(first + at, text) for at, text in enumerate(replies[0]) if text]

    pages = range(first, first + count)
    return Operation(read, commands=(("HMGET", record_key("ingestion-closed", ingestion_id), *pages),))


def close_ingestion(ingestion_id: str, *, deleted: bool = False) -> Operation[None]:
    """Nothing is left to do for one that has ended. `deleted`: the caller knew that, so the record goes too."""
    return Operation(lambda _: None, "ingestion_close", "", (ingestion_id, int(deleted)))


# From the replies of scripts.


def ingestion_from_reply(ingestion_id: str, row: Sequence[Any]) -> Ingestion | None:
    """From one row of the reading script; None for one that is not there."""
    flat, now_ms, ends_in_ms, waiting, begin, list_state, load_state, finish_state, *pages = row
    if not flat:
        return None
    f = {name.decode(): value.decode() for name, value in fields_of(flat).items()}
    status = IngestionStatus(f["status"])
    in_flight = sorted(map(PageInFlight.from_reply, pages), key=lambda page: page.number)
    return Ingestion(
        id=ingestion_id,
        owner=f["owner"],
        status=status,
        spec=orjson.loads(f["spec"]),
        created_ms=int(f["created"]),
        now_ms=int(now_ms),
        counts=_counts(f, status, in_flight),
        listing_complete=f.get("listing_complete") == "1",
        dimension=int(f["dimension"]) if "dimension" in f else None,
        waiting_pages=int(waiting),
        begin_next=tuple(WaitingPage.from_text(entry.decode()) for entry in begin),
        pages={page.number: page for page in in_flight},
        loaded_pages=tuple(int(page) for page in f.get("loaded_pages", "").split()),
        loaded_ms=int(f["loaded_ms"]) if "loaded_ms" in f else None,
        samples=tuple(Sample.from_text(f[name]) for name in ("s0", "s1") if name in f),
        base=Sample.from_text(f["base"]) if "base" in f else None,
        times={s: int(f[f"t_{s}"]) for s in IngestionStatus if f"t_{s}" in f},
        error=IngestionFault(**orjson.loads(f["error"])) if "error" in f else None,
        setbacks=(setbacks := _setbacks(f)),
        waiting_for=f.get("waiting_for") or _waiting_for(status, setbacks),
        losses={job: int(f[losses_field(job)]) for job in JOBS if losses_field(job) in f},
        estimate_s=float(f["estimate_s"]) if "estimate_s" in f else None,
        list_state=_state(list_state),
        load_state=_state(load_state),
        finish_state=_state(finish_state),
        expires_ms=int(now_ms) + int(ends_in_ms) if int(ends_in_ms) > 0 else None,
        resumable=f.get("resumable") == "1",
        deleted="deleted_at" in f,
        revision=f.get("revision"),
        fingerprint=f.get("fingerprint"),
        vectors=f.get("vectors"),
        shares_table="shares_table" in f,
        **_as_stored(f),
    )


def _as_stored(fields: Mapping[str, str]) -> dict[str, Any]:
    numbers = {name: int(fields.get(name, 0)) for name in ("list_number", "next_page", "load_number", "order")}
    texts = {name: fields.get(name, "") for name in ("ids", "trace", "warning")}
    parsed = {name: orjson.loads(fields[name]) for name in ("cursor", "roots") if name in fields}
    return {**numbers, **texts, **parsed}


def _setbacks(fields: Mapping[str, str]) -> dict[str, Setback]:
    waits = [job for job in JOBS if setback_field(job) in fields]
    return {job: Setback.from_text(fields[setback_field(job)], fields.get(away_field(job))) for job in waits}


def _waiting_for(status: IngestionStatus, setbacks: Mapping[str, Setback]) -> str | None:
    return None if status.terminal else next((setback.what for setback in setbacks.values()), None)


def _state(text: bytes) -> State | None:
    return State(text.decode()) if text else None


def _counts(fields: Mapping[str, str], status: IngestionStatus, pages: Sequence[PageInFlight]) -> Counts:
    # What has been embedded of pages in flight is nowhere but in their tasks.
    counts = {name: int(fields.get(name, 0)) for name in COUNTS}
    if not status.terminal:
        counts["chunks_embedded"] += sum(page.embedded for page in pages)
        counts["tokens"] += sum(page.embedding_tokens for page in pages)
    return Counts(**counts)
