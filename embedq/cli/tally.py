"""Adds up how far several tasks are."""

from collections.abc import Iterable

from embedq.progress import Progress
from embedq.task import Counts, Task


class Tally:
    """The progress of many tasks as one; `changed` is what `EmbeddingService.wait` calls."""

    def __init__(self, progress: Progress, known: Iterable[Task] = ()) -> None:
        self._progress = progress
        self._counts: dict[str, Counts] = {task.id: task.counts for task in known}
        self.all_succeeded = True

    @property
    def done(self) -> int:
        """Texts of which the outcome is known."""
        return sum(counts.done for counts in self._counts.values())

    @property
    def failed(self) -> int:
        """Texts without a vector."""
        return sum(counts.failed for counts in self._counts.values())

    def changed(self, task: Task) -> None:
        """Takes a task's latest state."""
        self._counts[task.id] = task.counts
        if task.ended and not task.succeeded:
            self.all_succeeded = False
        self._progress.update(self.done, self.failed)
