"""The storage as the model worker uses it: rows in, parts out, and a place that may be away for a while."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from tasks.embedding.units import RowUnit
from tasks.errors import EmbedqError, NotStored, StorageUnavailable, Unavailable
from tasks.ledger import ClaimedUnit, CommitOutcome, Finished, OutcomeKind
from tasks.records.storage_identity import RunId, open_proved
from tasks.storage.row_file import UnitReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, PartWriter, RowOutcome, part_name
from tasks.storage.write_proof import WriteProof
from tasks.wire.field_aliases import HasPrompts

_log = logging.getLogger(__name__)

_ROW_BYTES = 100
"""Of a part, about, beside a row's vectors."""

Written: TypeAlias = tuple[RowUnit, Sequence[RowOutcome]]
"""A unit and what became of its rows."""


class LateStorage:
    """The storage at a URL, opened when it is first needed: a worker that gets no rows needs none.

    Attributes:
        detail: what keeps it from being opened, for people; "" for nothing.
    """

    def __init__(self, url: str, run: RunId) -> None:
        self._url = url
        self._run = run
        self._lock = threading.Lock()
        self._storage: Storage | None = None
        self.detail = ""

    def __call__(self) -> Storage:
        """The storage, the same one for all threads.

        Raises:
            StorageUnavailable: it cannot be opened now, or is not the one that Redis knows.
            RedisUnavailable: that cannot be known now.
        """
        with self._lock:
            if self._storage is None:
                try:
                    self._storage = open_proved(self._url, self._run)
                except StorageUnavailable as error:
                    self.detail = error.detail
                    raise
                self.detail = ""
            return self._storage


class RowStore:
    """Rows and parts of one model's batches, for all streams of a process."""

    def __init__(self, storage: Callable[[], Storage], model: HasPrompts, revision: str) -> None:
        self._storage = storage
        self._revision = revision
        self._model = model
        self._proof = WriteProof(storage)
        self._away = False
        self._error = ""
        self._failed_last = ""

    @property
    def storage_error(self) -> tuple[str, float]:
        """Code of what keeps rows waiting, and since when in Unix seconds; "" and 0.0 for nothing."""
        since = self._proof.away_since
        return (self._error, since) if since else ("", 0.0)

    def read(self, units: Iterable[tuple[ClaimedUnit, UnitReference]]) -> Iterator[RowUnit]:
        """The units with their rows, in no particular order; where rows are gone, each is an error.

        Units are left out while the storage is away or takes no part. At most one of them is waited for in vain.
        """
        # The folder that failed the last time comes last, or the others would never have their turn.
        for unit, reference in sorted(units, key=lambda pair: pair[1].folder == self._failed_last):
            if not self._proof.holds(reference.folder):
                continue
            row_unit = self._read(unit, reference)
            if row_unit is None:
                return
            yield row_unit

    def _read(self, unit: ClaimedUnit, reference: UnitReference) -> RowUnit | None:
        try:
            lines = read_rows(self._storage(), reference, reference.first + unit.offset, unit.items)
        except NotStored:
            _log.warning("rows of %s are gone", unit.task_id)
            return RowUnit.gone(unit, reference)
        except Unavailable as error:
            self._missed(error, reference.folder)
            return None
        self._away = False
        return RowUnit.from_lines(unit, reference, lines, self._model)

    def write(self, run: str, units: Iterable[Written]) -> list[Finished]:
        """Writes the outcomes of units, one part for each task; what to commit, in no particular order.

        `run` names their parts: what is written with the same one replaces them.

        Units whose part could not be written, because the storage is away, are left out, and those behind them.
        """
        by_task: dict[str, list[Written]] = {}
        for unit, outcomes in units:
            by_task.setdefault(unit.unit.task_id, []).append((unit, outcomes))
        finished: list[Finished] = []
        for group in by_task.values():
            try:
                finished += self._write(run, group)
            except Unavailable as error:
                self._missed(error, group[0][0].reference.folder, _size_of(group))
                break  # each try may take as long as this one did, and all of them together the time of a slice
        return finished

    def _write(self, run: str, units: Sequence[Written]) -> list[Finished]:
        name = part_name(units[0][0].reference, run)
        with self._storage().writing(name) as file:
            part = PartWriter(name, file.write, self._revision)
            references = [part.add(outcomes) for _, outcomes in units]
        return [
            Finished(
                unit=row_unit.unit,
                kind=OutcomeKind.PART,
                outcome=reference.to_json(),
                tokens=sum(row.tokens for row in outcomes),
                failed_in_part=sum(row.error is not None for row in outcomes),
            )
            for (row_unit, outcomes), reference in zip(units, references, strict=True)
        ]

    def _missed(self, error: Unavailable, folder: str, size_bytes: int = 1) -> None:
        self._error = error.code
        self._proof.missed(folder, size_bytes)
        self._failed_last = folder
        if not self._away:
            _log.warning("batches wait: %s", error.detail)
        self._away = True

    def discard_stale(self, parts: Iterable[Finished], outcomes: Iterable[CommitOutcome]) -> None:
        """Deletes those parts of which nothing was committed: their task has ended or another worker has them."""
        kept: dict[str, bool] = {}
        for finished, outcome in zip(parts, outcomes, strict=True):
            name = PartReference.from_json(finished.outcome).part
            kept[name] = kept.get(name, False) or outcome is not CommitOutcome.STALE
        for name in (name for name, keep in kept.items() if not keep):
            with contextlib.suppress(EmbedqError):  # `embedq storage unknown` lists it
                self._storage().delete(name)


def _size_of(units: Iterable[Written]) -> int:
    return sum(row.vectors.nbytes + _ROW_BYTES for _, outcomes in units for row in outcomes)
