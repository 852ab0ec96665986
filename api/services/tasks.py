"""Tasks: submit, list, read and wait, result, cancel, forget."""

from collections.abc import Sequence

from api.answer.why_waiting import Waiting, why_waiting
from api.queue.served_models import ServedModels
from api.request.paging import ListPage, read_page
from api.schemas.common import Page, PagePlace
from api.schemas.tasks import Task
from api.services.owned import own
from tasks import ledger
from tasks.errors import InvalidValue, TaskEnded
from tasks.ledger import AsyncLedger, CancelOutcome, operations
from tasks.ledger.ids import created_ms, missing
from tasks.records.api_keys import Key
from worker_config.settings import Settings
from worker_config.subject import link_task, subject_is_task

_MAX_CALLS = 20
"""For one page. Where few tasks are in the states asked for, it is shorter than that; nobody waits for the search of a
million."""


class TaskService:
    """The tasks of this service."""

    def __init__(self, ledger: AsyncLedger, models: ServedModels, settings: Settings) -> None:
        self._ledger = ledger
        self._models = models
        self._settings = settings

    async def list(self, key: Key, status: Sequence[str], page: PagePlace) -> Page[Task]:
        """A page of the caller's tasks in these states, or all, the newest first.

        It may be shorter than asked for although there are more, and says so. Tasks behind synchronous calls are not
        listed.

        Raises:
            InvalidValue: `status` names another state, or the page begins behind no id of a task.
            RedisUnavailable: no answer.
        """
        states = _states(status)
        if page.after is not None and created_ms(page.after) is None:
            raise InvalidValue("after must be the id of a task, such as last_id of the page before.", param="after")

        async def read(behind: str | None, most: int) -> ListPage[ledger.Task]:
            list_some = operations.list_tasks(key.owner, limit=most, after=behind or "", states=states)
            part = await self._ledger.run(list_some)
            return ListPage(part.tasks, part.until, part.more)

        found = await read_page(read, after=page.after, limit=page.limit, max_calls=_MAX_CALLS)
        reasons = await why_waiting(self._ledger, self._models, found.items)
        tasks = [Task.of(task, _waiting(why)) for task, why in zip(found.items, reasons, strict=True)]
        return Page[Task].of(tasks, more=found.more, until=found.until)

    async def cancel(self, key: Key, task_id: str) -> Task:
        """Ends a task; finished vectors stay readable.

        Raises:
            TaskNotFound, TaskGone: the caller has no such task.
            TaskEnded: there is nothing to cancel.
        """
        task = await self._own(key, task_id)
        outcome = await self._ledger.run(operations.cancel(task.queue, task_id))
        task = await self._own(key, task_id)
        if outcome is CancelOutcome.ENDED:
            raise TaskEnded(f"The task has ended already ({task.state}); there is nothing to cancel.")
        return await self._explained(task)

    async def delete(self, key: Key, task_id: str) -> None:
        """Deletes a task and everything that belongs to it. An open one is cancelled first.

        Raises:
            TaskNotFound, TaskGone: the caller has no such task.
        """
        task = await self._own(key, task_id)
        await self._ledger.run(operations.forget(task.queue, task_id))

    async def _explained(self, task: ledger.Task) -> Task:
        [reason] = await why_waiting(self._ledger, self._models, [task])
        return Task.of(task, _waiting(reason))

    async def _own(self, key: Key, task_id: str) -> ledger.Task:
        task = None
        if created_ms(task_id) is not None:
            subject_is_task(task_id)
            task = await self._ledger.run(operations.read_task(task_id))
        task = own(key, task, missing(task_id, self._settings.result_ttl_s))
        link_task(task.trace)
        return task


def _states(named: Sequence[str]) -> Sequence[ledger.State]:
    names = {name.strip() for part in named for name in part.split(",") if name.strip()}
    if names - set(ledger.State):
        raise InvalidValue(f"status must be some of {', '.join(ledger.State)}.", param="status")
    return [state for state in ledger.State if state in names]


def _waiting(reason: dict[str, object] | None) -> Waiting | None:
    return None if reason is None else Waiting.model_validate(reason)
