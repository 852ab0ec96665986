"""Rows of batches and ingestions as a model worker uses them: read as texts, their vectors written as parts.

The storage may be away for a while. Nothing here knows the ledger.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from tasks.encoder.interface import Text
from tasks.errors import EmbedqError, NotStored, StorageUnavailable, Unavailable
from tasks.item import Options, TextError, Vector
from tasks.records.storage_identity import RunId, open_proved
from tasks.storage.row_file import RowReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, PartWriter, part_name
from tasks.storage.write_proof import WriteProof
from tasks.wire.field_aliases import HasPrompts, prompt_for

K = TypeVar("K")

_log = logging.getLogger(__name__)

_ROW_BYTES = 100
"""Of a part, about, beside a row's vector."""
_NO_TEXT = TextError("invalid_request", "This row has no text.")
_GONE = TextError(NotStored.code, "The batch's input file was deleted before this request was executed.")


class RowReader:
    """Reads the rows of a piece, most of which ask for the same: what they ask beside their text is read once.

    `model` has the prompts of rows that say by `input_type` what their texts are.
    """

    def __init__(self, model: HasPrompts) -> None:
        self._model = model
        self._asked: Mapping[str, Any] = {}
        self._options = Options()

    def text(self, row: bytes) -> Text | TextError:
        """The text of a row, or the error of one that has none, such as a line of a batch that was refused."""
        try:
            fields = orjson.loads(row)
            text, asked = fields["text"], fields["options"]
            if asked != self._asked:
                self._options = self._options_of(**asked)
                self._asked = asked
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return _NO_TEXT
        return Text(text, self._options)

    def _options_of(self, prompt_name: str | None = None, input_type: str | None = None, **others: Any) -> Options:
        return Options(prompt_for(input_type, self._model, named=prompt_name), **others)


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
    """Rows and parts of one model's batches and ingestions, for all streams of a process.

    What a caller reads and writes under a key of its own, such as a piece, comes back with this key.
    """

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

    def read(self, wanted: Iterable[tuple[K, RowReference, int]]) -> Iterator[tuple[K, Sequence[Text | TextError]]]:
        """The texts of so many rows from a reference on, or the error of each that has none. In no order of keys.

        Keys are left out while the storage is away or takes no part. At most one of them is waited for in vain.
        """
        # The folder that failed the last time comes last, or the others would never have their turn.
        for key, reference, count in sorted(wanted, key=lambda one: one[1].folder == self._failed_last):
            if not self._proof.holds(reference.folder):
                continue
            texts = self._read(reference, count)
            if texts is None:
                return
            yield key, texts

    def _read(self, reference: RowReference, count: int) -> Sequence[Text | TextError] | None:
        try:
            rows = read_rows(self._storage(), reference, reference.first, count)
        except NotStored:
            _log.warning("rows of %s are gone", reference.folder)
            return [_GONE] * count
        except Unavailable as error:
            self._missed(error, reference.folder)
            return None
        self._away = False
        reader = RowReader(self._model)
        return [reader.text(row) for row in rows]

    def write(
        self, run: str, outcomes: Iterable[tuple[K, RowReference, Sequence[Vector]]]
    ) -> list[tuple[K, PartReference]]:
        """Writes what became of rows, one part for each folder; where it is, in no particular order of keys.

        `run` names the parts: what is written with the same one replaces them.

        Keys whose part could not be written, because the storage is away, are left out, and those behind them.
        """
        by_folder: dict[str, list[tuple[K, RowReference, Sequence[Vector]]]] = {}
        for one in outcomes:
            by_folder.setdefault(one[1].folder, []).append(one)
        written: list[tuple[K, PartReference]] = []
        for folder, group in by_folder.items():
            name = part_name(group[0][1], run)
            try:
                with self._storage().writing(name) as file:
                    part = PartWriter(name, file.write, self._revision)
                    references = [(key, part.add(vectors)) for key, _, vectors in group]
            except Unavailable as error:
                self._missed(error, folder, sum(_size_of(vectors) for _, _, vectors in group))
                break  # each try may take as long as this one did, and callers of other claims wait
            written += references
        return written

    def _missed(self, error: Unavailable, folder: str, size_bytes: int = 1) -> None:
        self._error = error.code
        self._proof.missed(folder, size_bytes)
        self._failed_last = folder
        if not self._away:
            _log.warning("batches wait: %s", error.detail)
        self._away = True

    def discard(self, parts: Iterable[str]) -> None:
        """Deletes parts of these names, of which nothing was committed."""
        for name in parts:
            with contextlib.suppress(EmbedqError):  # `embedq storage unknown` lists it
                self._storage().delete(name)


def _size_of(vectors: Sequence[Vector]) -> int:
    return sum((0 if row.vector is None else row.vector.nbytes) + _ROW_BYTES for row in vectors)
