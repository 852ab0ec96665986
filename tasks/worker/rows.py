"""Rows of batches and ingestions as a model worker uses them: read as texts, their vectors written as parts.

The storage may be away for a while. Nothing here knows the ledger.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import orjson

from tasks.encoder.interface import Text
from tasks.errors import NotStored, StorageUnavailable, Unavailable
from tasks.item import Options, TextError, Vector
from tasks.storage.rows_file import RowsReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference, VectorsWriter, vectors_name
from tasks.wire.field_aliases import HasPrompts, prompt_for

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
"""After the storage refused something rows of all folders wait so long; each refusal in a row doubles it. A part that
cannot be written has cost a pass of the model."""
TOLD_S = 120.0
"""After the last refusal. Rows are tried again sooner, unless others have done them or nobody wants them any more."""
_NO_TEXT = TextError("invalid_request", "This row has no text.")
_GONE = TextError(NotStored.code, "What was to be encoded is no longer in the storage. Send it again.")


def row_text(row: bytes, model: HasPrompts) -> Text | TextError:
    """The text of a row, or the error of one that has none, such as a line of a batch that was refused.

    `model` has the prompts of rows that say by `input_type` what their texts are.
    """
    try:
        fields = orjson.loads(row)
        asked = fields["options"]
        prompt = prompt_for(asked.pop("input_type", None), model, named=asked.pop("prompt_name", None))
        return Text(fields["text"], Options(prompt, **asked))
    except (orjson.JSONDecodeError, AttributeError, LookupError, TypeError):
        return _NO_TEXT


class Trouble(NamedTuple):
    """What is wrong with the storage.

    Attributes:
        code: of what keeps rows waiting; "": none wait.
        since: when it began, in Unix seconds; 0.0: none wait.
        detail: for people.
    """

    code: str
    since: float
    detail: str


NO_TROUBLE = Trouble("", 0.0, "")


class RowStore:
    """Rows and parts of one model's batches and ingestions, for all streams of a process."""

    def __init__(self, open_storage: Callable[[], Storage], model: HasPrompts, revision: str) -> None:
        self._open, self._model, self._revision = open_storage, model, revision
        self._lock = threading.Lock()
        self._storage: Storage | None = None
        self._trouble = NO_TROUBLE
        self._told_until = self._pause_s = self._again_at = 0.0

    @property
    def trouble(self) -> Trouble:
        """What is wrong with the storage now."""
        return self._trouble if time.monotonic() < self._told_until else NO_TROUBLE

    def storage(self) -> Storage:
        """The storage, opened when it is first needed: a worker that gets no rows needs none.

        Raises:
            StorageUnavailable: it cannot be opened now, or is not the one that Redis knows.
            RedisUnavailable: that cannot be known now.
        """
        with self._lock:
            if self._storage is None:
                try:
                    self._storage = self._open()
                except StorageUnavailable as error:
                    self._tell(error, keeps_waiting=False)
                    raise
                self._told_until = 0.0
            return self._storage

    def texts(self, rows: RowsReference, offset: int, count: int) -> Sequence[Text | TextError] | None:
        """The texts of so many rows of a piece from its row `offset` on, or the error of each that has none.

        None while the storage refuses what is asked of it, and for a while after it did.
        """
        if time.monotonic() < self._again_at:
            return None
        try:
            return [row_text(row, self._model) for row in read_rows(self.storage(), rows, offset, count)]
        except NotStored:
            _log.warning("rows of %s are gone", rows.folder)
            return [_GONE] * count
        except Unavailable as error:
            self._refused(error)
            return None

    def write(
        self, run: str, outcomes: Sequence[tuple[RowsReference, Sequence[Vector]]]
    ) -> list[VectorsReference | None]:
        """Writes what became of rows, one part for each folder; where that of each reference is.

        None for those whose part could not be written, because the storage is away, and for those behind them. `run`
        names the parts: what is written with the same one replaces them.
        """
        by_folder: dict[str, list[int]] = {}
        for n, (rows, _) in enumerate(outcomes):
            by_folder.setdefault(rows.folder, []).append(n)
        written: dict[int, VectorsReference] = {}
        for group in by_folder.values():
            name = vectors_name(outcomes[group[0]][0], run)
            try:
                with self.storage().writing(name) as file:
                    part = VectorsWriter(name, file.write, self._revision)
                    references = {n: part.add(outcomes[n][1]) for n in group}
            except Unavailable as error:
                self._refused(error)
                break  # each try may take as long as this one did, and callers of other claims wait
            self._told_until = self._pause_s = 0.0
            written |= references
        return [written.get(n) for n in range(len(outcomes))]

    def _refused(self, error: Unavailable) -> None:
        if not self.trouble.code:
            _log.warning("batches wait: %s", error.detail)
        self._tell(error, keeps_waiting=True)
        self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
        self._again_at = time.monotonic() + self._pause_s

    def _tell(self, error: Unavailable, *, keeps_waiting: bool) -> None:
        before = self.trouble
        code, since = (error.code, before.since or time.time()) if keeps_waiting else (before.code, before.since)
        self._trouble = Trouble(code, since, error.detail)
        self._told_until = time.monotonic() + TOLD_S
