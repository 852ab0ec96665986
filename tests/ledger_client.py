"""Submitting to the ledger as the web tier does, and reading what became of it, without HTTP."""

from collections.abc import Sequence
from typing import Any

from tasks.item import Options
from tasks.ledger.client import Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.overview import Queue, overview
from tasks.ledger.read import read_result, read_task
from tasks.ledger.redis_keys import ANONYMOUS, queue_key
from tasks.ledger.submit import submit
from tasks.ledger.task import Lane, Result, State, Task, cut_texts
from tests.ledger_builders import new_task
from tests.processes import wait_until
from worker_config.settings import DEFAULT_MODEL


class LedgerClient:
    """One caller on one model's queue. It never sends a bell: the workers' own watch finds the work."""

    def __init__(self, ledger: Ledger, model: str = DEFAULT_MODEL) -> None:
        self.ledger = ledger
        self.model = model

    def submit(
        self,
        texts: Sequence[str],
        *,
        lane: Lane = Lane.ONLINE,
        piece_items: int = 64,
        piece_cost: int = 4096,
        options: Options | None = None,
        owner: str = ANONYMOUS,
    ) -> str:
        pieces = cut_texts(texts, max_tokens=256, max_cost=piece_cost, max_items=piece_items)
        given = {"lane": lane, "owner": owner, "pieces": pieces, "options": options or Options()}
        return self.ledger.run(submit(new_task(task_id=new_task_id(), queue=self.model, **given))).task_id

    def task(self, task_id: str) -> Task:
        task = self.ledger.run(read_task(task_id))
        assert task is not None, f"{task_id} is unknown"
        return task

    def ended(self, task_id: str) -> Task:
        def check() -> Task | None:
            task = self.task(task_id)
            return task if task.state.terminal else None

        return wait_until(check, message=f"the end of {task_id}")

    def result(self, task_id: str) -> Result:
        result = self.ledger.run(read_result(task_id))
        assert result is not None, f"{task_id} is unknown"
        return result

    def completed(self, task_id: str) -> Result:
        task = self.ended(task_id)
        assert task.state is State.COMPLETED, task
        assert task.completed == task.total, task
        return self.result(task_id)

    def overview(self) -> Queue:
        return self.ledger.run(overview(self.model))[self.model]

    @property
    def stamp(self) -> str:
        model = self.overview().model
        assert model is not None
        return model.stamp

    def told(self, name: str) -> int:
        """A counter that workers tell with their heartbeats, once they have told what they have done until now."""
        client: Any = self.ledger.client

        def beats() -> dict[bytes, float]:
            return dict(client.zrange(queue_key(self.model, "workers"), 0, -1, withscores=True))

        for _ in range(2):  # the first one that is seen may have begun before
            before = beats()
            later = lambda before=before: all(beats().get(one, 0) > at for one, at in before.items())  # noqa: E731
            wait_until(later, message="a beat of each worker")
        return self.counter(name)

    def counter(self, name: str) -> int:
        return self.overview().counters.get(name, 0)
