"""What goes wrong around an engine: storage and store away, an answer that is lost, a process that dies at any call."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from tasks.datasets import who_wins
from tasks.datasets.sqlite import load as sqlite_load
from tasks.datasets.sqlite.load import SqliteStore
from tasks.errors import SinkUnavailable, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage
from tests.simulation.jobs.witness import Witness


class Died(BaseException):
    """The process ends here."""


@dataclass
class Faults:
    """Those there are now. `dies_in`: so many calls of Redis, storage or store; None: it lives."""

    storage_away: bool = False
    sink_away: bool = False
    sink_loses: bool = False
    dies_in: int | None = None

    def call(self) -> None:
        """A moment at which the process may die."""
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise Died

    def storage(self) -> None:
        """The storage is asked."""
        self.call()
        if self.storage_away:
            raise StorageUnavailable("away")

    def sink(self) -> None:
        """The store is asked."""
        self.call()
        if self.sink_away:
            raise SinkUnavailable("away")

    def answer(self) -> None:
        """The store has done what it was asked for."""
        self.call()
        if self.sink_loses:
            self.sink_loses = False
            raise SinkUnavailable("the answer is lost")


class FaultyFolder:
    """A folder of the storage that may be away."""

    def __init__(self, folder: LocalFolder, faults: Faults) -> None:
        self._folder, self._faults = folder, faults

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._folder, name)

        def asked(*arguments: Any, **named: Any) -> Any:
            self._faults.storage()
            return method(*arguments, **named)

        return asked

    @contextmanager
    def writing(self, name: str, moved: Callable[[], None]) -> Iterator[Any]:
        """Dies before, or after, the object is visible."""
        self._faults.storage()
        with self._folder.writing(name, moved) as writer:
            yield writer
            self._faults.storage()
        self._faults.call()


def faulty_storage(folder: Path, faults: Faults) -> Storage:
    """A storage in a folder."""
    place = LocalFolder(folder)
    place.make()
    return Storage(cast("LocalFolder", FaultyFolder(place, faults)))


@contextmanager
def in_the_way(faults: Faults, witness: Witness) -> Iterator[None]:
    """All calls of Redis and of datasets go through the faults; the witness hears what was committed."""
    run, decide = Ledger.run, who_wins.decide

    def asked(ledger: Ledger, operation: Any) -> Any:
        faults.call()
        return run(ledger, operation)

    def decided(document: Any, receipt: Any, by: Any, floor: int) -> Any:
        decision = decide(document, receipt, by, floor)
        if decision.brings:
            witness.brought.append((by.ingestion, document.place))
        return decision

    with ExitStack() as patched:
        patched.enter_context(patch.object(Ledger, "run", asked))
        patched.enter_context(patch.object(sqlite_load, "decide", decided))
        for name in ("prepare", "known"):
            patched.enter_context(patch.object(SqliteStore, name, _asked(getattr(SqliteStore, name), faults)))
        patched.enter_context(patch.object(SqliteStore, "load", _load(SqliteStore.load, faults, witness)))
        patched.enter_context(patch.object(SqliteStore, "finish", _finish(SqliteStore.finish, faults, witness)))
        yield


def _asked(method: Callable[..., Any], faults: Faults) -> Callable[..., Any]:
    def asked(*arguments: Any) -> Any:
        faults.sink()
        return method(*arguments)

    return asked


def _load(method: Callable[..., Any], faults: Faults, witness: Witness) -> Callable[..., Any]:
    def load(store: Any, documents: Any, by: Any, progress: Any) -> Any:
        faults.sink()
        lines = list(documents)
        witness.brought.clear()
        try:
            outcomes = method(store, lines, by, progress)
        except who_wins.StaleError:
            witness.verdicts["stale"] += 1
            raise
        witness.loaded(by, lines, outcomes)
        faults.answer()
        return outcomes

    return load


def _finish(method: Callable[..., Any], faults: Faults, witness: Witness) -> Callable[..., Any]:
    def finish(store: Any, by: Any, roots: Any, progress: Any) -> Any:
        faults.sink()
        witness.finishing(by)
        finished = method(store, by, roots, progress)
        witness.finished(by, roots, finished)
        faults.answer()
        return finished

    return finish
