"""Tasks: submit, read and wait, result, cancel, forget."""

from functools import partial

from api.auth import require_scope
from api.idempotency import alias_of_key
from api.load_limits import Held
from api.offload import offload
from api.render_vectors import embedding_list, npy_file
from api.schemas.embeddings import TaskBody
from api.schemas.tasks import Task
from api.served_models import UNKNOWN_MODEL_DIMENSION, ServedModels
from api.services.embeddings import TEXT_PER_VECTOR, TextsCall
from api.services.owned import own
from api.submit import NewTasks, Submitter, missing
from api.waiting.subscription import Subscription
from api.waiting.wait_for_vectors import Gone, read_result
from api.waiting.why_waiting import why_waiting
from tasks.errors import Conflict
from tasks.item import FLOAT32_BYTES
from tasks.ledger import task as ledger_task
from tasks.ledger.cancel import cancel, forget
from tasks.ledger.client import AsyncLedger
from tasks.ledger.ids import created_ms
from tasks.ledger.overview import read_account
from tasks.ledger.read import read_task
from tasks.ledger.task import State
from tasks.records.api_keys import Key
from worker_config.logs import subject_is_task
from worker_config.settings import Settings
from worker_config.telemetry import link_task, span


class TaskService:
    """The tasks of this service.

    Args:
        ledger: has them.
        new_tasks: makes them of bodies.
        submitter: brings them into the ledger.
        subscription: tells of their ends.
        models: that are served.
        settings: of this server.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        *,
        new_tasks: NewTasks,
        submitter: Submitter,
        subscription: Subscription,
        models: ServedModels,
        settings: Settings,
    ) -> None:
        self._ledger = ledger
        self._new_tasks = new_tasks
        self._submitter = submitter
        self._subscription = subscription
        self._models = models
        self._settings = settings

    async def create(self, call: TextsCall, idempotency_key: str | None) -> tuple[Task, int]:
        """Stores the texts of a call, and says after how many seconds the task should be done.

        Raises:
            RequestError: the subclass that says what is wrong with the body.
            Forbidden: the key has not the scope of the lane.
            Unavailable: as `Submitter.submit` does.
        """
        submission = await offload(len(call.body), self._new_task, call.key, call.body, idempotency_key)
        task = await self._submitter.accept(submission)
        return Task.of(task), self._models.retry_after_s(task)

    def _new_task(self, key: Key, content: bytes, idempotency_key: str | None) -> ledger_task.NewTask:
        body = self._new_tasks.read(TaskBody, content)
        require_scope(key, [body.lane])
        return self._new_tasks.listed(key, body, alias_of_key(idempotency_key, content))

    async def read(self, key: Key, task_id: str, wait_s: float, gone: Gone) -> tuple[Task, int | None]:
        """A task, now or at its end, at the latest after `wait_s`; and while it is open, when it should be done.

        Raises:
            NotFound, Refused: the caller has no such task.
            CallerGone: the client left first.
        """
        read = partial(self._own, key, task_id)
        task = await self._subscription.read_at_end(task_id, read, min(wait_s, self._settings.max_wait_s), gone)
        if task.state.terminal:
            return Task.of(task), None
        account = await self._ledger.run(read_account(key.owner))
        [reason] = await why_waiting(self._ledger, self._models, [task], account)
        return Task.of(task, reason), self._models.retry_after_s(task, account)

    async def result(self, key: Key, task_id: str, answer: Held, *, base64: bool, npy: bool) -> bytes:
        """The vectors of an ended task in input order, as OpenAI's list or as a NumPy file.

        Raises:
            NotFound, Refused: the caller has no such task.
            Conflict: it is open.
            Overloaded: too many large answers are under way.
        """
        task = await self._own(key, task_id)
        if not task.state.terminal:
            raise Conflict(
                "task_not_finished",
                f"{task.completed + task.failed} of {task.total} inputs are done; ask again later.",
                retry_after_s=self._models.retry_after_s(task),
            )
        model = self._models.queue(task.queue).model
        dimension = task.options.dimensions or (model.dimension if model else UNKNOWN_MODEL_DIMENSION)
        size = task.total * dimension * FLOAT32_BYTES
        # Before it is read, or a refused one would be in memory.
        answer.grow_to(size if npy else size * TEXT_PER_VECTOR)
        result = await read_result(self._ledger, task_id, task.total)
        if result is None:
            raise missing(task_id, self._settings.result_ttl_s)
        with span("answer"):
            if not npy:
                return await offload(size, embedding_list, result, base64=base64)
            return await offload(size, npy_file, result, dimension)

    async def cancel(self, key: Key, task_id: str) -> Task:
        """Ends a task; finished vectors stay readable.

        Raises:
            NotFound, Refused: the caller has no such task.
            Conflict: there is nothing to cancel.
        """
        task = await self._own(key, task_id)
        before = await self._ledger.run(cancel(task.queue, task_id))
        task = await self._own(key, task_id)
        if before and before.terminal and before is not State.CANCELLED:
            raise Conflict(
                "task_already_ended", f"The task has ended already ({task.state}); there is nothing to cancel."
            )
        return Task.of(task)

    async def delete(self, key: Key, task_id: str) -> None:
        """Deletes a task and everything that belongs to it. An open one is cancelled first.

        Raises:
            NotFound, Refused: the caller has no such task.
        """
        task = await self._own(key, task_id)
        await self._ledger.run(forget(task.queue, task_id))

    async def _own(self, key: Key, task_id: str) -> ledger_task.Task:
        task = None
        if created_ms(task_id) is not None:
            subject_is_task(task_id)
            task = await self._ledger.run(read_task(task_id))
        task = own(key, task, missing(task_id, self._settings.result_ttl_s))
        link_task(task.trace)
        return task
