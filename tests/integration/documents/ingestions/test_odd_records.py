"""A record that no step can make sense of, of an ingestion or a batch: the others go on."""

import logging

import pytest

from tasks.documents.batches.steps import step_batches
from tasks.documents.sweep import remove_work
from tasks.item import TextError
from tasks.records.batches import BatchStatus
from tasks.records.ingestion_operations import retry_ingestion
from tasks.records.ingestions import IngestionStatus
from tests.integration.batches.hands import request
from tests.integration.documents.ingestions.hands import IngestionHands

S = IngestionStatus
SECRET = "somebody's words"


@pytest.mark.parametrize("spec", ["{", f'{{"secret": "{SECRET}"}}'], ids=["unreadable", "senseless"])
def test_an_odd_ingestion_holds_up_no_other_one(
    hands: IngestionHands, spec: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd, good = hands.texts({"a": SECRET}), [hands.texts({f"{n}": "text"}) for n in range(3)]
    hands.ledger.client.hset(f"eq:ingestion:{odd}", "spec", spec)
    with caplog.at_level(logging.WARNING):
        hands.work()
    assert {hands.ingestion(each).status for each in good} == {S.COMPLETED}
    said = [record.getMessage() for record in caplog.records if odd in record.getMessage()]
    assert len(said) == 1, "not in every round"
    assert SECRET not in caplog.text


def test_an_odd_batch_holds_up_no_other_one(hands: IngestionHands) -> None:
    odd, good = (hands.create([request("a", "x")]) for _ in range(2))
    hands.ledger.client.hset(f"eq:batch:{odd}", "created", "soon")
    for _ in range(6):
        hands.wait(0.5)
        step_batches(hands.step_context)
        hands.work_documents()
        hands.work_model()
    assert hands.batch(good).status is BatchStatus.COMPLETED


def test_tidying_up_leaves_what_a_second_try_has_written(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad"})
    hands.work()
    ended = hands.ingestion(made)
    hands.storage.write(f"{ended.page_folder(0)}zombie", b"x")
    hands.bad.clear()
    hands.ledger.run(retry_ingestion(made))
    hands.step()
    hands.work_documents()  # it lists what failed, and writes a page
    page = f"{ended.page_folder(1)}manifest"

    remove_work(hands.storage, ended)  # by somebody who has not heard of the second try
    assert [stored.name for stored in hands.storage.stored(ended.page_folder(0))] == []
    assert any(stored.name.startswith(page) for stored in hands.storage.stored(ended.page_folder(1)))
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 2)
