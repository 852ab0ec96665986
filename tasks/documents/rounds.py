"""One step with each of some batches or ingestions: what is wrong with one of them is nobody else's."""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tasks.documents.context import StepContext
from tasks.errors import EmbedqError
from tasks.ledger.scripts import Operation

_ODD_S = 30.0
"""So long one that no step can make sense of is left alone: an operator may mend it, and it must not fill the log."""

_log = logging.getLogger(__name__)


class Stepped(Protocol):
    """What takes steps."""

    @property
    def id(self) -> str:
        """Of it alone."""


T = TypeVar("T", bound=Stepped)


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """One round.

    Attributes:
        read: those with these ids, without those that are gone.
        step: with one of them.
    """

    context: StepContext
    read: Callable[[Sequence[str]], Operation[list[T]]]
    step: Callable[[StepContext, T], None]

    def take(self, ids: Sequence[str]) -> list[T]:
        """Takes one step with each; as they were before.

        Raises what the last one raised that could not take its step. What nobody foresaw is logged instead.
        """
        raised: EmbedqError | None = None
        read = self._read(ids)
        for one in read:
            if self.context.stop():
                break
            self.context.moved()
            try:
                self.step(self.context, one)
            except EmbedqError as error:
                raised = error
            except Exception as error:  # noqa: BLE001 - of one of them: the others go on
                self._leave_alone(one.id, error)
        if raised is not None:
            raise raised
        return read

    def _read(self, ids: Sequence[str]) -> list[T]:
        ids = [name for name in ids if not self.context.postponed.waits(name)]
        if not ids:
            return []
        try:
            return self.context.ledger.run(self.read(ids))
        except EmbedqError:
            raise
        except Exception as error:  # noqa: BLE001 - one of them cannot be read
            if len(ids) == 1:
                self._leave_alone(ids[0], error)
                return []
        return [one for name in ids for one in self._read([name])]

    def _leave_alone(self, name: str, error: Exception) -> None:
        _log.error("%s is left alone for a while: %s at %s", name, type(error).__name__, place_of(error))
        self.context.postponed.refused(name, _ODD_S)


def place_of(error: Exception) -> str:
    """Where it was raised. Its message may hold what somebody submitted."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
