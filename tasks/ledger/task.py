"""The values that go into and come out of the ledger. All frozen. Times are milliseconds of Redis's clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from tasks.errors import ModelChanged
from tasks.item import FLOAT32_BYTES, Options, TextError, cost
from tasks.unshown import unshown


class State(StrEnum):
    """States of a task, in OpenAI's words."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether a task in this state has ended."""
        return self not in {State.QUEUED, State.IN_PROGRESS}


class Lane(StrEnum):
    """Who waits: `online` somebody does, `bulk` nobody in particular."""

    ONLINE = "online"
    BULK = "bulk"


# ---- what a client brings --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewPiece:
    """Consecutive texts of a task that is submitted; they are claimed and committed together.

    Attributes:
        items: number of texts in it.
        cost: estimated tokens.
        payload: JSON array of the texts, UTF-8, or JSON object of a `rows_file.RowsReference`; the first byte tells.
            For the documents queue the JSON object of a stage.
    """

    items: int
    cost: int
    payload: bytes = field(repr=False)


PIECE_TEXTS = 64
"""Of one piece, at most."""


class PieceCutter:
    """Cuts texts into pieces, one after the other. A single text is a piece whatever it costs.

    Args:
        max_cost: estimated tokens of one piece.
        max_items: texts of one piece; None: `PIECE_TEXTS`.

    Attributes:
        pieces: of each piece so far the number of its first text, how many it has, their cost.
    """

    def __init__(self, max_cost: int, max_items: int | None = None) -> None:
        self._max_items = max_items or PIECE_TEXTS
        self._max_cost = max_cost
        self.pieces: list[tuple[int, int, int]] = []

    def add(self, text_cost: int) -> None:
        """Takes the next text."""
        first, items, spent = self.pieces[-1] if self.pieces else (0, 0, 0)
        if items and items < self._max_items and spent + text_cost <= self._max_cost:
            self.pieces[-1] = (first, items + 1, spent + text_cost)
        else:
            self.pieces.append((first + items, 1, text_cost))


def cut_texts(texts: Sequence[str], *, max_tokens: int, max_cost: int, max_items: int | None = None) -> list[NewPiece]:
    """Pieces of consecutive texts. `max_tokens` is the most that the model reads of one text."""
    cutter = PieceCutter(max_cost, max_items)
    for text in texts:
        cutter.add(cost(text, max_tokens))
    return [
        NewPiece(items=items, cost=spent, payload=orjson.dumps(list(texts[first : first + items])))
        for first, items, spent in cutter.pieces
    ]


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name for a task, scoped to its owner, so that a repetition finds it.

    Attributes:
        name: 32 hexadecimal digits, from `Idempotency-Key` or from the digest of a synchronous request.
        digest: 32 hexadecimal digits of the whole request.
        join: True: a repetition joins a task that is open or completed, prolongs it, and replaces one that ended
            otherwise. False (idempotency): a repetition gets the same task whatever its state, and another digest is
            refused.
    """

    name: str
    digest: str
    join: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits that SUBMIT checks in the same step in which it stores.

    Attributes:
        max_backlog_s: seconds of work, at the workers' measured rate, that may be served before the task has ended: its
            own work, and of that of others in the lane what fair turns let go first.
        max_memory_percent: share of Redis's `maxmemory` above which nothing new is taken, what open tasks will need
            for their vectors included.
        vector_bytes: room to reserve for the vector of one text; 0 reserves nothing.
        owner_share: one owner may fill as many times the memory, and the payload bytes, that it leaves free; 0: all.
        tokens_per_minute: limit of the owner's key, None: it has none. Estimated tokens that come back to its bucket
            within a minute; the bucket holds as many.
        queued_tokens: likewise. Estimated tokens of one lane that have not been encoded.
        open_jobs: likewise. Listed tasks, batches and ingestions that have not ended.
    """

    max_backlog_s: float = 0
    max_memory_percent: float = 100
    vector_bytes: int = 0
    owner_share: float = 0
    tokens_per_minute: int | None = None
    queued_tokens: int | None = None
    open_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """One task to be stored.

    Attributes:
        queue: the served name of its model, or `DOCUMENTS`.
        metadata: JSON object, or empty.
        listed: it appears in its owner's list.
        wakes_driver: its end wakes the driver of jobs: a batch or an ingestion waits for it.
        trace: `traceparent` of the span that submits it; empty when it is not traced.
        answer_to: the process on whose channel (`redis_keys.answers_channel`) a small result comes with the news of the
            end, which the others are not told then; "": none.
    """

    task_id: str
    queue: str
    lane: Lane
    owner: str
    pieces: Sequence[NewPiece]
    options: Options
    ttl_ms: int
    admission: Admission
    deadline_in_ms: int | None = None
    """From now; for a synchronous task the latest moment at which anybody can still want it."""
    metadata: bytes = field(default=b"", repr=False)
    alias: Alias | None = None
    listed: bool = False
    wakes_driver: bool = False
    trace: str = ""
    answer_to: str = ""


# ---- what a worker holds ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece under a claim.

    Attributes:
        task_id, piece_id: its place.
        first: index in the task of its first text.
        items: number of texts.
        cost: estimated tokens.
        deaths: how often a worker died while it held this piece, or the larger one of which it is a part. Above 0 it is
            alone in its claim, and its process holds nothing else.
        offset: position of its first text inside the payload (not 0 for a part).
        options: the task's.
        payload: as in `NewPiece`; a part has that of the whole.
        trace, owner: as in `NewTask`.
    """

    task_id: str
    piece_id: str
    first: int
    items: int
    cost: int
    deaths: int
    offset: int
    options: Options
    payload: bytes = field(repr=False)
    trace: str = ""
    owner: str = ""

    def texts(self) -> list[str]:
        """The texts of this piece, in order; its payload is an array."""
        texts: list[str] = orjson.loads(self.payload)
        return texts[self.offset : self.offset + self.items]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one piece, to be committed.

    Attributes:
        data: little-endian float32 rows of all texts of the piece, NaN rows for failed ones, empty when none has a
            vector; of a piece by reference the JSON object of a `vectors_file.VectorsReference`; of a stage what it
            returned, a JSON object, or nothing if it failed. A reader takes one kind for granted in a task.
        errors: index in the task -> error.
        truncated: indexes in the task.
        tokens: sum over its texts, after truncation, special tokens included.
        failed_in_part: texts that failed and whose errors are in the part, not in `errors`.
    """

    piece: Piece
    data: bytes = field(repr=False)
    tokens: int = 0
    errors: Mapping[int, TextError] = field(default_factory=dict)
    truncated: Sequence[int] = ()
    failed_in_part: int = 0

    @property
    def failed(self) -> int:
        """How many of its texts have failed."""
        return len(self.errors) + self.failed_in_part

    def extra(self) -> bytes:
        """Errors and truncations as stored beside the data; empty when there are none."""
        if not self.errors and not self.truncated:
            return b""
        return orjson.dumps(
            {"errors": [[i, e.code, e.message] for i, e in self.errors.items()], "truncated": list(self.truncated)}
        )


# ---- what is known of a task -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """State of a task.

    Attributes:
        queue: the served name of its model, or `DOCUMENTS`.
        expires_ms: when an ended one is forgotten.
        cost: estimated tokens that were not encoded, of an ended one too.
        trace: as in `NewTask`.
        deaths: how often a worker died while it held texts of this task.
        died_ms: the last time; None: none did.
    """

    id: str
    queue: str
    lane: Lane
    owner: str
    state: State
    total: int
    completed: int
    failed: int
    prompt_tokens: int
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    deadline_ms: int | None
    expires_ms: int | None
    options: Options
    metadata: Mapping[str, str] | None = field(repr=False)
    cost: int = 0
    trace: str = ""
    deaths: int = 0
    died_ms: int | None = None

    @property
    def model_changed(self) -> bool:
        """It ended with work left because workers came to serve another model than the one of its first vectors."""
        return self.state in {State.COMPLETED, State.FAILED} and self.cost > 0


@unshown("data")
class StoredPiece(NamedTuple):
    """One committed piece: texts `first` to `first + items` of the task, and the bytes that a worker committed."""

    first: int
    items: int
    data: bytes


_END_ERRORS = {
    State.CANCELLED: TextError(
        "cancelled", "The task was cancelled before this item was encoded. Submit it again if you need it."
    ),
    State.EXPIRED: TextError(
        "expired", "The task's deadline passed before this item was encoded. Submit it with more time."
    ),
}
_CHANGED = TextError(
    ModelChanged.code,
    "Workers came to serve another model before this item was encoded. Submit all items again: vectors of different "
    "models cannot be compared.",
)
_LOST = TextError("internal_error", "This item ended without a vector. Submit it again, and report it.")


@dataclass(frozen=True)
class Result:
    """Everything committed so far of a task.

    Attributes:
        task: its state at the moment of reading.
        pieces: in the order of their texts, with data.
        stored_errors: index -> error, as workers and the ledger committed them; of those in parts of vectors none.
        truncated: indexes of the texts that were cut at the model's maximum.
    """

    task: Task
    pieces: Sequence[StoredPiece]
    stored_errors: Mapping[int, TextError] = field(default_factory=dict)
    truncated: frozenset[int] = frozenset()

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """float32 [total, dimension], in input order; a row of NaN where there is none. Dimension 0 when none has one.

        Of a task whose outcomes are vectors, and of no other.
        """
        total = self.task.total
        if len(self.pieces) == 1 and self.pieces[0].items == total:  # as of each query: nothing is to be put together
            return np.frombuffer(self.pieces[0].data, dtype="<f4").reshape(total, -1).astype(np.float32)
        dimension = next((len(data) // (FLOAT32_BYTES * items) for _, items, data in self.pieces), 0)
        vectors = np.full((total, dimension), np.nan, dtype=np.float32)
        for first, items, data in self.pieces:
            vectors[first : first + items] = np.frombuffer(data, dtype="<f4").reshape(items, dimension)
        return vectors

    @cached_property
    def errors(self) -> Mapping[int, TextError]:
        """Index -> error: the stored ones, and of an ended task those of all texts that are in no piece."""
        if not self.task.state.terminal:
            return self.stored_errors
        lost = _CHANGED if self.task.model_changed else _LOST
        missing = _END_ERRORS.get(self.task.state, lost)
        done = np.zeros(self.task.total, dtype=bool)
        for first, items, _ in self.pieces:
            done[first : first + items] = True
        return dict.fromkeys(np.flatnonzero(~done).tolist(), missing) | dict(self.stored_errors)

    def returned(self) -> dict[str, Any] | None:
        """What the job of this task returned; None when it has not ended, or failed."""
        if not self.pieces:
            return None
        outcome: dict[str, Any] = orjson.loads(self.pieces[0].data)
        return outcome
