"""One rule for the keys of tasks, batches and ingestions, wherever a key comes in.

Keys are printable ASCII, 1 to 255 characters. Until now tasks took other printable characters of Latin-1 too, and
batches and ingestions whatever came: such a key gets a 400 that names the rule.
"""

import orjson
import pytest

from api.families.batches import BatchBody, new_batch
from api.families.ingestions import IngestionRequest
from api.families.route import IDEMPOTENCY_KEY
from api.request.idempotency import checked_key
from tasks.errors import InvalidValue
from tests.unit.api.embedding_requests import requests

GOOD = ["k", "a b", "~!@#$%^&*()_+{}|:", "x" * 255]
BAD = ["", "x" * 256, "a\nb", "a\tb", "\x7f", "\0", "caf\xe9", "\xa0", "\u4e2d"]
TASK = b'{"input": "a"}'
BATCH = {"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"}
INGESTION = b'{"source": {"documents": [{"id": "a", "text": "b"}]}}'


def take(key: str | None, *, field: str | None = None) -> list[bool]:
    """Whether a task, a batch and an ingestion keep a key. `field`: the one in a batch's body."""
    made_by = requests()
    body = orjson.dumps(BATCH | ({"idempotency_key": field} if field is not None else {}))
    batch = new_batch(body, owner="me", idempotency_key=key, settings=made_by.settings)
    if field is not None:
        return [batch.key is not None]
    task = made_by.task(TASK, owner="me", idempotency_key=key)
    ingestion = IngestionRequest.from_body(
        INGESTION, owner="me", idempotency_key=key, settings=made_by.settings, registry=made_by.registry
    ).ingestion
    return [task.alias is not None, batch.key is not None, ingestion.key is not None]


@pytest.mark.parametrize("key", GOOD)
def test_a_printable_key_is_taken_everywhere(key: str) -> None:
    assert take(key) == [True] * 3
    assert take(None, field=key) == [True]


def test_without_a_key_nothing_is_kept() -> None:
    assert take(None) == [False] * 3


@pytest.mark.parametrize("key", BAD)
def test_any_other_key_is_refused_everywhere_in_the_same_words(key: str) -> None:
    made_by = requests()
    with pytest.raises(InvalidValue, match="1 to 255 printable ASCII characters") as caught:
        checked_key(key)
    assert caught.value.param == "Idempotency-Key"
    for make in (
        lambda: made_by.task(TASK, owner="me", idempotency_key=key),
        lambda: made_by.openai_task(TASK, owner="me", idempotency_key=key),
        lambda: new_batch(orjson.dumps(BATCH), owner="me", idempotency_key=key, settings=made_by.settings),
        lambda: IngestionRequest.from_body(
            INGESTION, owner="me", idempotency_key=key, settings=made_by.settings, registry=made_by.registry
        ),
    ):
        with pytest.raises(InvalidValue) as refused:
            make()
        assert (refused.value.detail, refused.value.param) == (caught.value.detail, "Idempotency-Key")


@pytest.mark.parametrize("header", [None, "good"])
@pytest.mark.parametrize("key", BAD)
def test_the_key_in_a_batch_s_body_has_the_same_rule_and_is_named_as_it_is_there(key: str, header: str | None) -> None:
    with pytest.raises(InvalidValue, match=r"^idempotency_key must have 1 to 255") as caught:
        take(header, field=key)
    assert caught.value.param == "idempotency_key"


def test_the_rule_is_described_wherever_a_key_comes_in() -> None:
    (of_body, _null) = BatchBody.model_json_schema()["properties"]["idempotency_key"]["anyOf"]
    assert of_body == IDEMPOTENCY_KEY.schema
