"""From a checked body to a task in the ledger, and what callers are told for whom there is no room."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from api.idempotency import alias_of_work
from api.load_limits import InFlight, jitter
from api.metrics import Metrics
from api.schemas.embeddings import TaskBody
from api.served_models import ServedModels
from tasks.errors import BacklogFull, Invalid, NotFound, NotReady, Refused, TooMany, Unavailable
from tasks.item import Options, size_bytes
from tasks.ledger.client import CALL_TIMEOUT_S, AsyncLedger
from tasks.ledger.ids import created_ms, new_task_id
from tasks.ledger.overview import Queue
from tasks.ledger.read import read_task
from tasks.ledger.submit import MAX_RETRY_AFTER_S, SubmitReply, backlog_full, submit
from tasks.ledger.task import Alias, Lane, NewTask, State, Task, cut_texts
from tasks.records.api_keys import Key
from tasks.wire.embeddings_body import EmbeddingsBody, check_options, read_body
from tasks.wire.token_input import texts_of_tokens
from tasks.wire.validation import parse_object
from worker_config.logs import subject_is_task
from worker_config.settings import Settings
from worker_config.telemetry import SpanAttributes, link_task, span, traceparent
from worker_config.wake_up import BellThread

E = TypeVar("E", bound=EmbeddingsBody)

_SMALL_BYTES = 64 * 2**10
_SLOWEST_BYTES_PER_S = 4 * 2**20
"""A submission that is not small gets more time to reach Redis and its disk: as if it moved at this speed."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How long a task is wanted.

    Attributes:
        ttl_s: its result is kept so long.
        deadline_s: it expires if it has not ended by then; None: it has time.
        wait_s: its caller waits so long on an open connection; None: nobody does, and it is listed.
    """

    ttl_s: float
    deadline_s: float | None = None
    wait_s: float | None = None


class NewTasks:
    """Makes tasks of bodies, within the server's limits. No I/O, so it can run in a thread.

    Args:
        settings: with the limits.
        models: that are served.
        answer_to: as in `NewTask`, for tasks whose callers wait.
    """

    def __init__(self, settings: Settings, models: ServedModels, answer_to: str = "") -> None:
        self._settings = settings
        self._models = models
        self._answer_to = answer_to
        self._decode = partial(
            texts_of_tokens, max_input_bytes=settings.max_input_bytes, max_total_bytes=settings.max_body_bytes
        )

    def read(self, kind: type[E], content: bytes) -> E:
        """The checked body, which may hold token numbers in place of texts.

        Raises:
            RequestError: the subclass that says what is wrong with it.
        """
        return self.check(kind, parse_object(content), len(content), tokens=True)

    def check(self, kind: type[E], fields: dict[str, Any], body_bytes: int, *, tokens: bool = False) -> E:
        """The same of an object that is parsed already, of a body of so many bytes; `tokens`: it may hold them."""
        most = self._settings.max_input_bytes
        return read_body(
            kind,
            fields,
            max_inputs=self._settings.max_inputs,
            max_input_bytes=most if body_bytes > most else None,
            decode=self._decode if tokens else None,
        )

    def awaited(self, key: Key, body: EmbeddingsBody, wanted: Wanted) -> NewTask:
        """The task behind a call that waits.

        Equal calls have one alias, so that a client's retries join the task and cost one round of work.

        Raises:
            NotFound, Invalid: there is no such model, or it has no such option.
            NotReady: no worker has told yet which prompt `input_type` means.
        """
        served, options = self._asked(body)
        model = served.model
        made_by = f"{model.revision} {model.compute} {model.precision}" if model else ""
        parts = (served.name.encode(), made_by.encode(), options.to_text().encode(), orjson.dumps(body.input))
        return self._task(
            key=key,
            served=served,
            options=options,
            texts=body.input,
            lane=Lane.ONLINE,
            wanted=wanted,
            alias=alias_of_work(parts),
        )

    def listed(self, key: Key, body: TaskBody, alias: Alias | None) -> NewTask:
        """A task that nobody waits for. Raises like `awaited`."""
        served, options = self._asked(body)
        wanted = Wanted(self._settings.result_ttl_s, body.deadline_s)
        submission = self._task(
            key=key, served=served, options=options, texts=body.input, lane=Lane(body.lane), wanted=wanted, alias=alias
        )
        return replace(submission, metadata=orjson.dumps(body.metadata)) if body.metadata else submission

    def query(self, key: Key, text: str, *, model: str, dimensions: int | None, wanted: Wanted) -> NewTask:
        """The task behind a search: the vector of a text as a query, cut to `dimensions`.

        Raises:
            Invalid, NotFound, NotReady: the text or the model cannot be used.
        """
        most = self._settings.max_input_bytes
        if size_bytes(text) > most:
            raise Invalid(
                "input_too_large", f"query has more than {most:,} bytes (EMBEDQ_MAX_INPUT_BYTES).", param="query"
            )
        body = EmbeddingsBody(input=[text], model=model, dimensions=dimensions, input_type="query")
        return self.awaited(key, body, wanted)

    def _asked(self, body: EmbeddingsBody) -> tuple[Queue, Options]:
        served = self._models.served(body.model)
        if served.model is None and body.needs_prompts:
            # To leave the prompt out would give vectors that do not fit those of later calls.
            raise NotReady(
                f"No worker has loaded {served.name} yet, so the prompt for input_type is not known; "
                "try again shortly.",
                param="input_type",
                retry_after_s=5,
            )
        options = body.options(served.model)
        check_options(options, served.name, served.model)
        return served, options

    def _task(
        self,
        *,
        key: Key,
        served: Queue,
        options: Options,
        texts: Sequence[str],
        lane: Lane,
        wanted: Wanted,
        alias: Alias | None,
    ) -> NewTask:
        listed = wanted.wait_s is None
        return NewTask(
            task_id=new_task_id(),
            queue=served.name,
            lane=lane,
            owner=key.owner,
            pieces=cut_texts(texts, max_tokens=served.max_tokens, max_cost=served.piece_cost),
            options=options,
            ttl_ms=round(wanted.ttl_s * 1000),
            admission=self._models.admission(
                served,
                lane,
                options.dimensions,
                listed=listed,
                wait_s=wanted.wait_s,
                key=key.limits,
            ),
            deadline_in_ms=None if wanted.deadline_s is None else max(1, round(wanted.deadline_s * 1000)),
            alias=alias,
            listed=listed,
            answer_to="" if listed else self._answer_to,
        )


class Submitter:
    """Brings tasks into the ledger.

    Args:
        ledger: takes them.
        bells: are rung if the ledger says so.
        in_flight: limits how many are on their way.
        metrics: counts them.
        settings: of this server.
    """

    def __init__(
        self, ledger: AsyncLedger, bells: BellThread, in_flight: InFlight, metrics: Metrics, settings: Settings
    ) -> None:
        self._ledger = ledger
        self._bells = bells
        self._in_flight = in_flight
        self._metrics = metrics
        self._settings = settings

    async def submit(self, submission: NewTask) -> SubmitReply:
        """Stores the task, or joins the one that its alias names.

        Raises:
            BacklogFull, StorageFull, Refused: nothing was stored.
            TooMany: a limit of the owner's key; likewise.
            Overloaded: as many are under way as this process can handle.
            RedisUnavailable: nothing was stored, or only the reply was lost; a repetition is safe with the same alias.
        """
        owner, bulk = submission.owner, submission.lane is Lane.BULK
        try:
            with self._in_flight.submitting(owner, bulk=bulk), span("submit") as traced:
                submission = replace(submission, trace=traceparent()) if traced.is_recording() else submission
                reply = await self._ledger.run(submit(submission), timeout_s=_timeout_s(submission))
                if traced.is_recording():
                    traced.set_attributes(_described(submission, reply))
        except (Unavailable, TooMany) as error:
            self._metrics.refused(submission, error.code)
            await self._in_flight.pause()  # a caller that is refused may ask again at once
            if isinstance(error, BacklogFull) and error.wait_s < MAX_RETRY_AFTER_S:
                raise backlog_full(jitter(error.wait_s), error.before_s) from None
            raise
        subject_is_task(reply.task_id)
        for queue in reply.bells_due:
            self._bells.send_bell(queue)
        self._metrics.submitted(submission, joined=reply.joined)
        return reply

    async def accept(self, submission: NewTask) -> Task:
        """The new task, or the earlier one that the same `Idempotency-Key` names. Raises like `submit`."""
        reply = await self.submit(submission)
        if not reply.joined:
            return task_of(submission)
        task = await self._ledger.run(read_task(reply.task_id))
        if task is None:
            raise missing(reply.task_id, self._settings.result_ttl_s)
        link_task(task.trace)
        return task


def task_of(submission: NewTask) -> Task:
    """The task that the ledger has just stored, without asking it again. The time is this machine's."""
    created = created_ms(submission.task_id) or 0
    deadline_in_ms = submission.deadline_in_ms
    return Task(
        id=submission.task_id,
        queue=submission.queue,
        lane=submission.lane,
        owner=submission.owner,
        state=State.QUEUED,
        total=sum(piece.items for piece in submission.pieces),
        completed=0,
        failed=0,
        prompt_tokens=0,
        created_ms=created,
        started_ms=None,
        finished_ms=None,
        deadline_ms=None if deadline_in_ms is None else created + deadline_in_ms,
        expires_ms=None,
        options=submission.options,
        metadata=orjson.loads(submission.metadata) if submission.metadata else None,
        cost=sum(piece.cost for piece in submission.pieces),
    )


def _timeout_s(submission: NewTask) -> float:
    size_bytes = sum(len(piece.payload) for piece in submission.pieces)
    return CALL_TIMEOUT_S + (size_bytes / _SLOWEST_BYTES_PER_S if size_bytes > _SMALL_BYTES else 0)


def _described(submission: NewTask, reply: SubmitReply) -> SpanAttributes:
    return {
        "messaging.system": "embedq",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": submission.queue,
        "messaging.message.id": reply.task_id,
        "embedq.lane": submission.lane,
        "embedq.items": sum(piece.items for piece in submission.pieces),
        "embedq.pieces": len(submission.pieces),
        "embedq.joined": reply.joined,
    }


def missing(task_id: str, retention_s: float) -> Refused | NotFound:
    """The error for an id that the ledger does not hold: gone when it is older than the retention, else not found."""
    made = created_ms(task_id)
    if made is not None and made < (time.time() - retention_s) * 1000:
        return Refused(
            "task_expired", "This task is past its retention; its result has been deleted. Submit the texts again."
        )
    return NotFound("task_not_found", "No task has this id. Use the id from the answer to POST /v1/tasks.", param="id")
