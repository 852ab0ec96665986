"""A stream asks for work: `lua/claim.lua`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.errors import ModelChanged
from tasks.item import Options
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Lane, Piece
from worker_config.telemetry import ClaimTrace


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a stream asks for.

    Attributes:
        stream: the worker's id, "/" and its number; its wake-up channel carries it too.
        token: unique for this call; used again only to repeat the call after a lost reply. Starts as `stream` does.
        budget: estimated tokens; at least one piece is taken whatever it costs.
        online_budget: the same for the online lane; None: as `budget`.
        max_pieces: at most 1,000.
        lease_ms: from now, by the server's clock.
        linger_ms: 0, or how long the caller is ready to wait if there is nothing.
        rang: a bell message has brought the caller here.
        online_only: take from the online lane or nothing, and do not linger.
        no_lists: the same, and of that lane no pieces of several texts that alone reach `online_budget`.
        rate: the caller's own tokens per second. It takes no more of a lane than its part of the speed of all live
            workers. 0: whatever the budget allows.
        stamp: of the caller's model (`Model.stamp`); "" for a queue that needs no model.
        passes: an owner whose work is passed over, as if it were not there; "": nobody.
    """

    stream: str
    token: str
    budget: int
    max_pieces: int
    lease_ms: int
    linger_ms: int = 0
    rang: bool = False
    online_only: bool = False
    no_lists: bool = False
    online_budget: int | None = None
    rate: float = 0
    stamp: str = ""
    passes: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What CLAIM took, all from one lane, under one token.

    Attributes:
        token: the fence; every later operation on these pieces presents it.
        pieces: empty when there was nothing to take.
        lane: of the pieces; None when there are none.
        more: ready work was left behind, which is not only of the owner that was passed over.
        wait_ms: the caller must wait this long, or until it is woken, and then ask again; 0: at once, or for a bell.
        bell_due: the caller must send one bell message.
        trace: its spans; None unless one of its tasks is traced.
    """

    token: str
    pieces: Sequence[Piece]
    lane: Lane | None
    more: bool
    wait_ms: int
    bell_due: bool
    trace: ClaimTrace | None = None

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Of its pieces, each once."""
        return tuple(dict.fromkeys(piece.task_id for piece in self.pieces))


def claim(queue: str, request: ClaimRequest) -> Operation[Claim]:
    """Takes pieces of one lane up to a cost and leases them, or registers the caller as lingering. One atomic step.

    A repeated call is answered with what the token still holds.

    Raises on reading:
        ModelChanged: the queue's workers serve another model than the caller has.
    """
    r = request
    arguments = (
        r.stream,
        r.token,
        r.budget,
        r.budget if r.online_budget is None else r.online_budget,
        r.max_pieces,
        r.lease_ms,
        r.linger_ms,
        int(r.rang),
        2 if r.no_lists else int(r.online_only),
        r.rate,
        r.stamp,
        r.passes,
    )

    def read(reply: list[Any]) -> Claim:
        if reply[0] == b"changed":
            raise ModelChanged("Workers serve another model under this name than the one that this process has loaded.")
        bell_due, wait_ms, more, lane, *rows = reply
        pieces = tuple(map(_piece, rows))
        return Claim(r.token, pieces, Lane(lane.decode()) if lane else None, bool(more), int(wait_ms), bool(bell_due))

    return Operation(read, "claim", queue, arguments)


def _piece(row: list[Any]) -> Piece:
    task_id, piece_id, *numbers, options, payload, trace, owner = row  # in the order of its fields
    first, items, cost, deaths, offset = map(int, numbers)
    place = (task_id.decode(), piece_id.decode(), first, items, cost, deaths, offset)
    return Piece(*place, Options.from_text(options), payload, trace.decode(), owner.decode())
