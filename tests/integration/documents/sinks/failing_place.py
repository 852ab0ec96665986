"""A place of objects that dies at a chosen moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tasks.errors import StorageUnavailable
from tasks.storage.folder import LocalFolder


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

    def create(self, name: str, data: bytes) -> bool:
        self._step()
        created = self._folder.create(name, data)
        self._step()
        return created

    def __getattr__(self, name: str) -> Any:
        self._require_life()
        return getattr(self._folder, name)

    def _step(self) -> None:
        self._steps -= 1
        self._require_life()

    def _require_life(self) -> None:
        if self.dead:
            raise StorageUnavailable("dead")
