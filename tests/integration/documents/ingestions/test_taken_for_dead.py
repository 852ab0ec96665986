"""A worker that was taken for dead in the middle of a load, and goes on after another one has done its work."""

from collections.abc import Callable

from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tasks.records.moves import cancel_job
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
TEXTS = {"a": "first", "b": "second"}


def load_as_zombie(hands: IngestionHands, meanwhile: Callable[[], None]) -> None:
    """Runs the load that is next; once it has begun its worker is taken for dead, and something happens meanwhile."""

    def taken_for_dead() -> None:
        hands.ledger.run(give_back(DOCUMENTS, f"hand/0/{hands.claims}", blame=True))
        meanwhile()

    def begins() -> None:  # it has read nothing; it has read all that it needs when it is about to lock the dataset
        hands.meanwhile = taken_for_dead

    hands.meanwhile = begins
    hands.work_documents()
    assert hands.meanwhile is None


def loading(hands: IngestionHands, ingestion_id: str) -> None:
    hands.until(lambda: [page.at for page in hands.ingestion(ingestion_id).pages.values()] == [Stage.LOAD])


def test_a_load_that_ends_after_its_repetition(hands: IngestionHands) -> None:
    made = hands.texts(TEXTS)
    loading(hands, made)

    def repeated() -> None:
        assert hands.work_documents() == 1
        hands.step()
        assert hands.ingestion(made).counts.loaded == 2

    load_as_zombie(hands, repeated)
    hands.work()
    counts = hands.ingestion(made).counts
    assert hands.ran["1 load"] == 2
    assert (hands.ingestion(made).status, counts.loaded, counts.chunks_loaded) == (S.COMPLETED, 2, 2)
    assert hands.loaded() == TEXTS
    assert set(hands.outcomes(made)) == set(TEXTS)
    nothing_is_left(hands, made)


def test_a_load_that_ends_after_its_ingestion_was_cancelled(hands: IngestionHands) -> None:
    made = hands.texts(TEXTS)
    loading(hands, made)

    def cancelled() -> None:
        assert hands.move(cancel_job, hands.ingestion(made))
        while not hands.ingestion(made).status.terminal:
            hands.work_documents()
            hands.step()

    load_as_zombie(hands, cancelled)
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.loaded, counts.cancelled) == (S.CANCELLED, 2, 0), "it had begun"
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)

    again = hands.texts(TEXTS)
    hands.work()
    assert (hands.ingestion(again).counts.unchanged, hands.loaded()) == (2, TEXTS)


def test_a_load_that_ends_after_its_ingestion_has_failed_and_was_tried_again(hands: IngestionHands) -> None:
    made = hands.texts(TEXTS)
    loading(hands, made)

    def failed_and_tried_again() -> None:
        hands.deadly_stages.add("1 load")
        while not hands.ingestion(made).status.terminal:
            hands.wait(60)
            hands.step()
            hands.work_documents()
        hands.deadly_stages.clear()
        hands.sweep()
        assert hands.retry(made)
        hands.step()
        hands.work_documents()

    load_as_zombie(hands, failed_and_tried_again)
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded, counts.cancelled) == (S.COMPLETED, 2, 2, 0)
    assert counts.chunks == counts.chunks_loaded == 2
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)
