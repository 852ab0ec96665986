"""Vectors now: OpenAI's call and text-embeddings-inference's (TEI), both synchronous over the queue."""

import time
from typing import NamedTuple

from api.load_limits import Held, RequestRates, rate_limit_headers
from api.offload import offload
from api.render_vectors import embedding_list, matrix, size_bytes
from api.schemas.embeddings import EmbedBody, TEIInfo
from api.served_models import ServedModels
from api.services.service import VERSION
from api.submit import NewTasks
from api.waiting.wait_for_vectors import Gone, SynchronousCalls, wanted_for
from tasks.errors import Invalid, NotReady
from tasks.ledger.overview import PIECE_TOKENS
from tasks.ledger.task import NewTask
from tasks.records.api_keys import Key
from tasks.wire.embeddings_body import EmbeddingsBody
from tasks.wire.field_aliases import in_own_words
from tasks.wire.validation import parse_object
from worker_config.settings import Settings
from worker_config.telemetry import span

TEXT_PER_VECTOR = 3
"""Bytes of JSON for each byte of a vector."""


class TextsCall(NamedTuple):
    """A call with texts.

    Attributes:
        key: of the caller.
        body: its bytes, unparsed.
        patience_s: the caller waits so long.
        gone: returns when the client has left.
        answer: has the bytes of the answer; whoever sends it closes it.
    """

    key: Key
    body: bytes
    patience_s: float
    gone: Gone
    answer: Held


class EmbeddingService:
    """Calls that wait for their vectors.

    Args:
        new_tasks: makes tasks of bodies.
        calls: wait for them.
        models: that are served.
        rates: what keys have left of their requests.
        settings: of this server.
    """

    def __init__(
        self,
        new_tasks: NewTasks,
        calls: SynchronousCalls,
        models: ServedModels,
        rates: RequestRates,
        settings: Settings,
    ) -> None:
        self._new_tasks = new_tasks
        self._calls = calls
        self._models = models
        self._rates = rates
        self._settings = settings

    async def create(self, call: TextsCall) -> tuple[bytes, dict[str, str]]:
        """OpenAI's list of vectors for the texts of a call, and headers of OpenAI.

        Raises:
            RequestError: the subclass that says what is wrong with the body.
            Overloaded: too many large answers are under way.
            Unavailable, TextFailed, CallerGone: as `wait_for_vectors` does.
        """
        began_s = time.perf_counter()
        wait_s = min(call.patience_s, self._settings.max_wait_s)
        submission, base64 = await offload(len(call.body), self._openai, call.key, call.body, wait_s)
        left_s = wait_s - (time.perf_counter() - began_s)
        result, room = await self._calls.wait_for_vectors(submission, left_s, call.gone)
        size = size_bytes(result)
        call.answer.grow_to(size * TEXT_PER_VECTOR)
        with span("answer"):
            content = await offload(size, embedding_list, result, base64=base64)
        queue_room = self._models.room(submission.queue)
        headers = rate_limit_headers(queue_room, room, self._rates.left(call.key))
        headers["openai-processing-ms"] = str(int((time.perf_counter() - began_s) * 1000))
        return content, headers

    async def embed(self, call: TextsCall) -> bytes:
        """The vectors of the server's own model as a list of lists, TEI's form. Raises like `create`."""
        began_s = time.perf_counter()
        wait_s = min(call.patience_s, self._settings.max_wait_s)
        submission = await offload(len(call.body), self._tei, call.key, call.body, wait_s)
        left_s = wait_s - (time.perf_counter() - began_s)
        result, _ = await self._calls.wait_for_vectors(submission, left_s, call.gone)
        size = size_bytes(result)
        call.answer.grow_to(size * TEXT_PER_VECTOR)
        with span("answer"):
            return await offload(size, matrix, result)

    def info(self) -> TEIInfo:
        """The server's own model in TEI's words. Raises `NotReady` before a worker has loaded it."""
        queue = self._models.queue(self._models.own_model)
        model = queue.model
        if model is None:
            raise NotReady("No worker has loaded the model yet.", param="worker", retry_after_s=5)
        return TEIInfo(
            model_id=model.model,
            model_sha=model.revision,
            model_dtype=model.precision,
            served_model_name=model.id,
            max_concurrent_requests=self._models.limit(model.id),
            max_input_length=model.max_tokens,
            max_batch_tokens=PIECE_TOKENS,
            max_client_batch_size=self._settings.max_inputs,
            tokenization_workers=queue.streams,
            version=VERSION,
        )

    def require_worker(self) -> None:
        """Raises `NotReady` unless a worker serves the server's own model, as of about a second ago."""
        if not self._models.redis_up or not self._models.live_workers().get(self._models.own_model):
            raise NotReady("unhealthy", retry_after_s=5)

    def _openai(self, key: Key, content: bytes, wait_s: float) -> tuple[NewTask, bool]:
        body = self._new_tasks.read(EmbeddingsBody, content)
        return self._new_tasks.awaited(key, body, wanted_for(wait_s)), body.encoding_format == "base64"

    def _tei(self, key: Key, content: bytes, wait_s: float) -> NewTask:
        fields = dict(in_own_words(parse_object(content)))
        fields |= {"input": fields.get("inputs"), "model": None}
        body = self._new_tasks.check(EmbedBody, fields, len(content))
        if body.truncation_direction.lower() != "right":
            raise Invalid("invalid_value", "truncation_direction must be 'right'.", param="truncation_direction")
        return self._new_tasks.awaited(key, body, wanted_for(wait_s))
