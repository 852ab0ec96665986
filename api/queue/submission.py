"""From the bytes of a request to one `Submission`, ready for the ledger. No I/O, so it can run in a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from api.queue.served_models import Registry
from api.request.body import parse_object
from api.request.schemas import EmbedBody, EmbeddingFields, EmbeddingsBody, TaskBody
from api.request.token_input import Vocabulary
from api.request.validation import check_options, check_sizes, checked
from tasks.errors import InvalidValue, NotReady
from tasks.item import Options
from tasks.ledger import Alias, Lane, NewUnit, Submission
from tasks.ledger.ids import new_task_id
from tasks.ledger.task import cut_texts
from tasks.wire import foreign_fields
from tasks.wire.foreign_fields import prompt_for
from worker_config.settings import Settings

LINGERING_INTEREST_S = 10.0
"""A synchronous task is still wanted this long after its waiter: a client that repeats the call joins it."""
_MAX_KEY_CHARS = 255
_DIGEST_CHARS = 32


@dataclass(frozen=True, slots=True)
class Drafter:
    """Makes submissions under the server's limits and what is known of its models.

    Attributes:
        vocabulary: decodes token numbers in OpenAI's calls; None: they are refused.
    """

    settings: Settings
    registry: Registry
    vocabulary: Vocabulary | None = None

    def task(self, body: bytes, *, owner: str, idempotency_key: str | None) -> Submission:
        """The task of a `POST /v1/tasks`.

        Raises:
            RequestError: the subclass that says what is wrong with the body or the key.
        """
        parsed = checked(TaskBody, parse_object(body), max_inputs=self.settings.max_inputs)
        return self._submission(
            parsed,
            len(body),
            owner=owner,
            lane=Lane(parsed.lane),
            ttl_s=self.settings.result_ttl_s,
            deadline_s=parsed.deadline_s,
            metadata=orjson.dumps(parsed.metadata) if parsed.metadata else b"",
            alias=_idempotency(idempotency_key, body),
            listed=True,
        )

    def openai_task(self, body: bytes, *, owner: str, idempotency_key: str | None) -> tuple[Submission, bool]:
        """The task of a `POST /v1/embeddings` whose caller prefers one, and whether base64 is wanted.

        Raises like `synchronous`.
        """
        parsed = self._openai(body)
        alias = _idempotency(idempotency_key, body)
        submission = self._submission(
            parsed, len(body), owner=owner, lane=Lane.ONLINE, ttl_s=self.settings.result_ttl_s, alias=alias, listed=True
        )
        return submission, parsed.encoding_format == "base64"

    def synchronous(self, body: bytes, *, owner: str, wait_s: float) -> tuple[Submission, bool]:
        """The task behind a `POST /v1/embeddings` that waits, and whether base64 is wanted.

        Raises:
            RequestError: as `task` does.
            VocabularyNotLoaded: token numbers came before `vocabulary` was loaded.
            NotReady: no worker has told yet which prompt `input_type` means.
        """
        parsed = self._openai(body)
        return self._waiting(parsed, len(body), owner=owner, wait_s=wait_s), parsed.encoding_format == "base64"

    def embed(self, body: bytes, *, owner: str, wait_s: float) -> Submission:
        """The task behind a `POST /embed`, for the server's own model. Raises like `task`."""
        fields = _in_own_words(parse_object(body))
        fields["input"] = fields.get("inputs")
        fields["model"] = None
        parsed = checked(EmbedBody, fields, max_inputs=self.settings.max_inputs)
        if parsed.truncation_direction.lower() != "right":
            raise InvalidValue("truncation_direction must be 'right'.", param="truncation_direction")
        return self._waiting(parsed, len(body), owner=owner, wait_s=wait_s)

    def _openai(self, body: bytes) -> EmbeddingsBody:
        decode = self.vocabulary.texts if self.vocabulary else None
        fields = _in_own_words(parse_object(body))
        parsed = checked(EmbeddingsBody, fields, max_inputs=self.settings.max_inputs, decode=decode)
        if parsed.input_type is None or parsed.prompt_name is not None:
            return parsed
        model = self.registry.resolve(parsed.model)
        entry = self.registry.entry(model)
        if entry is None:  # to leave the prompt out would give vectors that do not fit those of later calls
            raise NotReady(
                f"No worker has loaded {model} yet, so the prompt for input_type is not known; try again shortly.",
                param="input_type",
                retry_after_s=5,
            )
        return parsed.model_copy(update={"prompt_name": prompt_for(parsed.input_type, entry.prompts)})

    def _waiting(self, parsed: EmbeddingFields, size_bytes: int, *, owner: str, wait_s: float) -> Submission:
        # The same work again joins the task, so that a client's retries cost one round of it.
        return self._submission(
            parsed,
            size_bytes,
            owner=owner,
            lane=Lane.ONLINE,
            ttl_s=self.settings.sync_result_ttl_s,
            deadline_s=wait_s + LINGERING_INTEREST_S,
            alias=self._same_work(parsed),
        )

    def _same_work(self, body: EmbeddingFields) -> Alias:
        """Of everything that changes a vector, so that only the same question joins."""
        model = self.registry.resolve(body.model)
        entry = self.registry.entry(model)
        made_by = f"{entry.revision} {entry.compute} {entry.precision}" if entry else ""
        options = _options(body).to_text()
        digest = _digest(b"work", model.encode(), made_by.encode(), options.encode(), orjson.dumps(body.input))
        return Alias(digest, digest, join=True)

    def _submission(
        self,
        body: EmbeddingFields,
        size_bytes: int,
        *,
        owner: str,
        lane: Lane,
        ttl_s: float,
        deadline_s: float | None = None,
        metadata: bytes = b"",
        alias: Alias | None = None,
        listed: bool = False,
    ) -> Submission:
        model = self.registry.resolve(body.model)
        check_options(body, model, self.registry)
        if size_bytes > self.settings.max_input_bytes:  # JSON is never shorter than the text in it
            check_sizes(body.input, self.settings.max_input_bytes)
        return Submission(
            task_id=new_task_id(),
            queue=model,
            lane=lane,
            owner=owner,
            units=self._units(body.input, model),
            options=_options(body),
            ttl_ms=round(ttl_s * 1000),
            admission=self.registry.admission(model, lane, body.dimensions, listed=listed),
            deadline_in_ms=None if deadline_s is None else max(1, round(deadline_s * 1000)),
            metadata=metadata,
            alias=alias,
            listed=listed,
        )

    def _units(self, texts: Sequence[str], model: str) -> list[NewUnit]:
        return cut_texts(
            texts,
            max_tokens=self.registry.max_tokens(model),
            max_items=self.settings.unit_max_items,
            max_cost=self.registry.unit_cost(model),
        )


def _in_own_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(foreign_fields.in_own_words(fields))
    except foreign_fields.ForeignFieldRefused as refused:
        raise InvalidValue(str(refused), param=refused.field) from None


def _options(body: EmbeddingFields) -> Options:
    return Options(
        prompt_name=body.prompt_name, dimensions=body.dimensions, normalize=body.normalize, truncate=body.truncate
    )


def _idempotency(key: str | None, body: bytes) -> Alias | None:
    if key is None:
        return None
    if not 1 <= len(key) <= _MAX_KEY_CHARS or not key.isprintable():
        raise InvalidValue(
            f"Idempotency-Key must have 1 to {_MAX_KEY_CHARS} printable characters.", param="Idempotency-Key"
        )
    # The bytes, not what they mean: orjson reads deeper nesting than it writes, and a client repeats the same bytes.
    return Alias(_digest(b"key", key.encode()), _digest(body), join=False)


def _digest(*parts: bytes) -> str:
    whole = sha256()
    for part in parts:
        # The length first, so that no two lists of parts look the same. It also keeps the kinds of alias apart.
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.hexdigest()[:_DIGEST_CHARS]
