"""A place of objects that dies at a chosen moment, and a ledger whose answers get lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tasks.errors import RedisUnavailable, StorageUnavailable
from tasks.ledger.executor import Ledger
from tasks.ledger.local_folder import LocalFolder
from tasks.ledger.operations import Operation

T = TypeVar("T")


class FailingPlace:
    """A folder that serves `steps` steps and is dead then: one before and one after each object becomes visible."""

    def __init__(self, folder: LocalFolder, steps: int) -> None:
        self._folder = folder
        self._steps = steps

    @property
    def dead(self) -> bool:
        return self._steps <= 0

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        with self._folder.writing(name) as writer:
            yield writer
            self._step()
        self._step()

    def __getattr__(self, name: str) -> Any:
        self._require_life()
        return getattr(self._folder, name)

    def _step(self) -> None:
        self._steps -= 1
        self._require_life()

    def _require_life(self) -> None:
        if self.dead:
            raise StorageUnavailable("dead")


class LosingLedger(Ledger):
    """Loses the answer to the first move of a dataset, after it was made."""

    lost = False

    def run(self, operation: Operation[T]) -> T:
        answer = super().run(operation)
        if operation.script == "dataset_move" and not self.lost:
            self.lost = True
            raise RedisUnavailable("lost")
        return answer
