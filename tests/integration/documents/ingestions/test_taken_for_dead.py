"""A worker that was taken for dead in the middle of a load, and goes on after another one has done its work."""

from collections.abc import Callable

from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.ingestion_operations import cancel_ingestion
from tasks.records.ingestions import IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
TEXTS = {"a": "first", "b": "second"}


def load_as_zombie(hands: IngestionHands, meanwhile: Callable[[], None]) -> None:
    """Runs the load that is next; once it has begun its worker is taken for dead, and something happens meanwhile."""

    def taken_for_dead() -> None:
        hands.ledger.run(give_back(DOCUMENTS, f"hand/0/{hands.claims}", blame=True))
        meanwhile()

    hands.meanwhile = taken_for_dead
    hands.work_documents()
    assert hands.meanwhile is None


def loading(hands: IngestionHands, ingestion_id: str) -> None:
    hands.until(lambda: [page.stage for page in hands.ingestion(ingestion_id).pages.values()] == [PageStage.READY])
    hands.until(lambda: hands.ingestion(ingestion_id).load_state is not None, documents=False)


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
    assert hands.ran[f"load_pages {made}/0"] == 2
    assert (hands.ingestion(made).status, counts.loaded, counts.chunks_loaded) == (S.COMPLETED, 2, 2)
    assert hands.loaded() == TEXTS
    assert set(hands.outcomes(made)) == set(TEXTS)
    nothing_is_left(hands, made)


def test_a_load_that_ends_after_its_ingestion_was_cancelled(hands: IngestionHands) -> None:
    made = hands.texts(TEXTS)
    loading(hands, made)

    def cancelled() -> None:
        hands.ledger.run(cancel_ingestion(made))
        while not hands.ingestion(made).status.terminal:
            hands.work_documents()
            hands.step()

    load_as_zombie(hands, cancelled)
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.loaded, counts.cancelled) == (S.CANCELLED, 0, 2)
    nothing_is_left(hands, made)
    assert hands.loaded() == TEXTS, "it was in the middle of it"

    again = hands.texts(TEXTS)
    hands.work()
    assert (hands.ingestion(again).counts.unchanged, hands.loaded()) == (2, TEXTS)
