"""From the bytes of a request to one `Submission`, ready for the ledger. No I/O, so it can run in a thread."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

import orjson

from api.queue.served_models import ServedModels
from api.request.body import parse_object
from api.request.idempotency import DIGEST_CHARS, checked_key
from api.request.schemas import EmbedBody, TaskBody
from api.token_input import texts_of_tokens
from tasks.errors import InputTooLarge, InvalidValue, NotReady
from tasks.item import Options, size_bytes
from tasks.ledger import Alias, Lane, Submission
from tasks.ledger.ids import new_task_id
from tasks.ledger.overview import ServedModel
from tasks.ledger.unit_cutting import cut_texts
from tasks.wire.embeddings_body import EmbeddingFields, EmbeddingsBody, check_options, check_sizes, read_texts
from tasks.wire.foreign_fields import in_own_words
from worker_config.settings import Settings

LINGERING_INTEREST_S = 10.0
"""A synchronous task is still wanted this long after its waiter: a client that repeats the call joins it."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequests:
    """Turns requests for embeddings into submissions, within the server's limits.

    Attributes:
        answer_to: as in `Submission`, for tasks whose callers wait.
    """

    settings: Settings
    registry: ServedModels
    answer_to: str = ""

    def task(self, body: bytes, *, owner: str, idempotency_key: str | None) -> Submission:
        """The task of a `POST /v1/tasks`.

        Raises:
            RequestError: the subclass that says what is wrong with the body or the key.
        """
        parsed = read_texts(TaskBody, parse_object(body), max_inputs=self.settings.max_inputs)
        alias = _idempotency(idempotency_key, body)
        return self._submission(
            self._work(parsed, len(body)),
            owner=owner,
            lane=Lane(parsed.lane),
            ttl_s=self.settings.result_ttl_s,
            deadline_s=parsed.deadline_s,
            metadata=orjson.dumps(parsed.metadata) if parsed.metadata else b"",
            alias=alias,
            listed=True,
        )

    def synchronous(self, body: bytes, *, owner: str, wait_s: float) -> tuple[Submission, bool]:
        """The task behind a `POST /v1/embeddings` that waits, and whether base64 is wanted.

        Raises:
            RequestError: as `task` does.
            VocabularyNotLoaded: token numbers came before `load_vocabulary`.
            NotReady: no worker has told yet which prompt `input_type` means.
        """
        parsed = self._openai(body)
        submission = self._awaited(self._work(parsed, len(body)), owner=owner, wait_s=wait_s)
        return submission, parsed.encoding_format == "base64"

    def embed(self, body: bytes, *, owner: str, wait_s: float) -> Submission:
        """The task behind a `POST /embed`, for the server's own model. Raises like `task`."""
        fields = dict(in_own_words(parse_object(body)))
        fields["input"] = fields.get("inputs")
        fields["model"] = None
        parsed = read_texts(EmbedBody, fields, max_inputs=self.settings.max_inputs)
        if parsed.truncation_direction.lower() != "right":
            raise InvalidValue("truncation_direction must be 'right'.", param="truncation_direction")
        return self._awaited(self._work(parsed, len(body)), owner=owner, wait_s=wait_s)

    def search_query(self, text: str, *, model: str, dimensions: int | None, owner: str, wait_s: float) -> Submission:
        """The task behind a search: the vector of a text as a query, cut to `dimensions`.

        Raises:
            InputTooLarge, ModelNotFound, NotReady: the text or the model cannot be used.
        """
        if size_bytes(text) > self.settings.max_input_bytes:
            raise InputTooLarge(
                f"query has more than {self.settings.max_input_bytes:,} bytes (EMBEDQ_MAX_INPUT_BYTES): shorten it.",
                param="query",
            )
        body = EmbeddingsBody(input=[text], model=model, dimensions=dimensions, input_type="query")
        return self._awaited(self._work(body, 0), owner=owner, wait_s=wait_s)

    def _openai(self, body: bytes) -> EmbeddingsBody:
        decode = partial(
            texts_of_tokens,
            max_input_bytes=self.settings.max_input_bytes,
            max_total_bytes=self.settings.max_body_bytes,
        )
        return EmbeddingsBody.from_fields(parse_object(body), max_inputs=self.settings.max_inputs, decode=decode)

    def _work(self, body: EmbeddingFields, size_bytes: int) -> "_Work":
        """What a body asks of a model. The model is looked up here and nowhere else."""
        served = self.registry.served(body.model)
        if served.entry is None and body.needs_prompts:
            # To leave the prompt out would give vectors that do not fit those of later calls.
            raise NotReady(
                f"No worker has loaded {served.name} yet, so the prompt for input_type is not known; "
                "try again shortly.",
                param="input_type",
                retry_after_s=5,
            )
        options = body.options(served.entry)
        check_options(options, served.name, served.entry)
        if size_bytes > self.settings.max_input_bytes:  # JSON is never shorter than the text in it
            check_sizes(body.input, self.settings.max_input_bytes)
        return _Work(served, options, body.input)

    def _awaited(self, work: "_Work", *, owner: str, wait_s: float) -> Submission:
        return self._submission(
            work,
            owner=owner,
            lane=Lane.ONLINE,
            ttl_s=self.settings.sync_result_ttl_s,
            deadline_s=wait_s + LINGERING_INTEREST_S,
            wait_s=wait_s,
            answer_to=self.answer_to,
            alias=work.alias(),  # so that a client's retries join the task and cost one round of work
        )

    def _submission(
        self,
        work: "_Work",
        *,
        owner: str,
        lane: Lane,
        ttl_s: float,
        deadline_s: float | None = None,
        wait_s: float | None = None,
        metadata: bytes = b"",
        alias: Alias | None = None,
        listed: bool = False,
        answer_to: str = "",
    ) -> Submission:
        served, options, settings = work.served, work.options, self.settings
        return Submission(
            task_id=new_task_id(),
            queue=served.name,
            lane=lane,
            owner=owner,
            units=cut_texts(
                work.texts,
                max_tokens=served.max_tokens,
                max_items=settings.unit_max_items,
                max_cost=served.unit_cost(settings.unit_max_tokens, settings.unit_s),
            ),
            options=options,
            ttl_ms=round(ttl_s * 1000),
            admission=self.registry.admission(served, lane, options.dimensions, listed=listed, wait_s=wait_s),
            deadline_in_ms=None if deadline_s is None else max(1, round(deadline_s * 1000)),
            metadata=metadata,
            alias=alias,
            listed=listed,
            answer_to=answer_to,
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """Texts, and what is asked of a model for each."""

    served: ServedModel
    options: Options
    texts: Sequence[str] = field(repr=False)

    def alias(self) -> Alias:
        """A digest of everything that changes a vector, so that only an equal request joins."""
        entry = self.served.entry
        made_by = f"{entry.revision} {entry.compute} {entry.precision}" if entry else ""
        options = self.options.to_text()
        digest = _digest(
            b"work", self.served.name.encode(), made_by.encode(), options.encode(), orjson.dumps(self.texts)
        )
        return Alias(digest, digest, join=True)


def _idempotency(key: str | None, body: bytes) -> Alias | None:
    if (key := checked_key(key)) is None:
        return None
    # The bytes, not what they mean: orjson reads deeper nesting than it writes, and a client repeats the same bytes.
    return Alias(_digest(b"key", key.encode()), _digest(body), join=False)


def _digest(*parts: bytes) -> str:
    whole = sha256()
    for part in parts:
        # The length first, so that no two lists of parts look the same. It also keeps the kinds of alias apart.
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.hexdigest()[:DIGEST_CHARS]
