"""One rule for the keys of tasks and batches: 1 to 255 printable ASCII characters. Others get a 400 that names it."""

import orjson
import pytest

from api.families.batches import new_batch
from api.request.idempotency import checked_key
from tasks.errors import InvalidValue
from tests.unit.api.embedding_requests import requests

GOOD = ["k", "a b", "~!@#$%^&*()_+{}|:", "x" * 255]
BAD = ["", "x" * 256, "a\nb", "a\tb", "\x7f", "\0", "caf\xe9", "\xa0", "\u4e2d"]
TASK = b'{"input": "a"}'
BATCH = orjson.dumps({"input_file_id": "file-1", "endpoint": "/v1/embeddings", "completion_window": "24h"})


def take(key: str | None) -> list[bool]:
    """Whether a task and a batch keep a key."""
    made_by = requests()
    batch = new_batch(BATCH, owner="me", idempotency_key=key, settings=made_by.settings)
    task = made_by.task(TASK, owner="me", idempotency_key=key)
    return [task.alias is not None, batch.key is not None]


@pytest.mark.parametrize("key", GOOD)
def test_a_printable_key_is_taken_everywhere(key: str) -> None:
    assert take(key) == [True] * 2


def test_without_a_key_nothing_is_kept() -> None:
    assert take(None) == [False] * 2


@pytest.mark.parametrize("key", BAD)
def test_any_other_key_is_refused_everywhere_in_the_same_words(key: str) -> None:
    made_by = requests()
    with pytest.raises(InvalidValue, match="1 to 255 printable ASCII characters") as caught:
        checked_key(key)
    assert caught.value.param == "Idempotency-Key"
    for make in (
        lambda: made_by.task(TASK, owner="me", idempotency_key=key),
        lambda: new_batch(BATCH, owner="me", idempotency_key=key, settings=made_by.settings),
    ):
        with pytest.raises(InvalidValue) as refused:
            make()
        assert (refused.value.detail, refused.value.param) == (caught.value.detail, "Idempotency-Key")
