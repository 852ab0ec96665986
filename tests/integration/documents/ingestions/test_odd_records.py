"""A record that nobody can make sense of, of an ingestion or a batch: the others go on. And what is of another try."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.item import TextError
from tasks.ledger.redis_keys import record_key
from tasks.records.batches import BatchStatus
from tasks.records.ingestions import IngestionStatus
from tests.integration.batches.hands import request
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
SECRET = "somebody's words"


@contextmanager
def odd(hands: IngestionHands, kind: str, job_id: str, field: str, text: bytes) -> Iterator[None]:
    """The stored record of a job, changed as a bug might do it; at the end as it was."""
    key = record_key(kind, job_id)
    before = hands.ledger.client.hget(key, field)
    hands.ledger.client.hset(key, field, text)
    yield
    if before is None:
        hands.ledger.client.hdel(key, field)
    else:
        hands.ledger.client.hset(key, field, before)


@pytest.mark.parametrize(
    ("field", "text", "times"),
    [
        ("s", f'{{"{SECRET}', 1),
        ("o1", f'{{"{SECRET}": 1}}', 1),
        ("s", f'{{"record": {{"status": "{SECRET}"}}}}', 0),
    ],
    ids=["unreadable", "senseless", "of another version"],
)
def test_an_odd_ingestion_holds_up_no_other_one(
    hands: IngestionHands, field: str, text: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    made, good = hands.texts({"a": SECRET}), [hands.texts({f"{n}": "text"}) for n in range(3)]
    with odd(hands, "ingestion", made, field, text.encode()), caplog.at_level(logging.WARNING):
        hands.work()
    assert {hands.ingestion(each).status for each in good} == {S.COMPLETED}
    said = [record.getMessage() for record in caplog.records if made in record.getMessage()]
    assert len(said) == times, "not in every round"
    assert SECRET not in caplog.text


def test_an_odd_batch_holds_up_no_other_one(hands: IngestionHands) -> None:
    made, good = (hands.create([request("a", "x")]) for _ in range(2))
    with odd(hands, "batch", made, "created", b"soon"):
        hands.work()
    assert hands.batch(good).status is BatchStatus.COMPLETED


def stored(hands: IngestionHands, ingestion_id: str) -> set[str]:
    return {found.name for found in hands.storage.stored(f"anonymous/{ingestion_id}")}


def test_the_sweep_leaves_what_a_second_try_has_written(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad"})
    hands.work()
    hands.sweep(after_s=30)  # it has seen the end
    before = stored(hands, made)
    hands.bad.clear()
    assert hands.retry(made)
    hands.step()
    hands.work_documents()  # it parses what failed
    written = stored(hands, made)
    assert any(".rows." in name for name in written - before)

    hands.sweep()
    assert stored(hands, made) == written
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 2)
    nothing_is_left(hands, made)
