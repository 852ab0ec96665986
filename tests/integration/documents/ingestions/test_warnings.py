"""What could not be read of a document is told with it, for as long as the dataset has this content."""

from tasks.document_error import DocumentWarning
from tasks.item import TextError
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.records.jobs import Stage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

TEXTS = {"scan": "some of its pages", "whole": "all of it"}
SCANNED = DocumentWarning("pages_without_text", "2 of its pages have no text. Run OCR first.", (2, 9))
FORM = DocumentWarning("xfa_form", "It is a form that only one program shows.")
ERROR = TextError("encoding_failed", "No.")
S = DocumentStatus


def read_in_part(hands: IngestionHands, ingestion_id: str, **warnings: DocumentWarning) -> None:
    """The parser warns of these documents."""
    hands.until(
        lambda: [page.at for page in hands.ingestion(ingestion_id).pages.values()] == [Stage.EMBED], model=False
    )
    [page] = hands.ingestion(ingestion_id).pages.values()
    lines = list(read_documents(hands.storage, page.obj))
    warned = [line.warned([warnings[line.id]]) if line.id in warnings else line for line in lines]
    write_documents(hands.storage, page.obj, warned)


def told(
    hands: IngestionHands, ingestion_id: str
) -> tuple[int, dict[str, tuple[DocumentStatus, tuple[DocumentWarning, ...]]]]:
    """How many documents are counted as warned, and of each its state and warnings."""
    hands.work()
    outcomes: dict[str, Document] = hands.outcomes(ingestion_id)
    said = {name: (line.status, tuple(line.warnings)) for name, line in outcomes.items()}
    return hands.ingestion(ingestion_id).counts.warned, said


def test_a_warning_is_told_as_long_as_the_content_is_the_same(hands: IngestionHands) -> None:
    first = hands.texts(TEXTS)
    read_in_part(hands, first, scan=SCANNED)
    assert told(hands, first) == (1, {"scan": (S.LOADED, (SCANNED,)), "whole": (S.LOADED, ())})
    for mode in ("skip_unchanged", "sync"):
        same = {"scan": (S.UNCHANGED, (SCANNED,)), "whole": (S.UNCHANGED, ())}
        assert told(hands, hands.texts(TEXTS, mode=mode)) == (1, same)
    assert told(hands, hands.texts(TEXTS, dry_run=True))[0] == 1

    other = {"scan": (S.LOADED, ()), "whole": (S.UNCHANGED, ())}
    assert told(hands, hands.texts(TEXTS | {"scan": "now whole"})) == (0, other)
    assert told(hands, hands.texts(TEXTS | {"scan": "now whole"}))[0] == 0


def test_another_try_counts_a_warning_once(hands: IngestionHands) -> None:
    texts = {**TEXTS, "bad": "cannot be encoded"}
    hands.bad["cannot be encoded"] = ERROR
    made = hands.texts(texts)
    read_in_part(hands, made, scan=SCANNED, bad=FORM)
    both = {"scan": (S.LOADED, (SCANNED,)), "whole": (S.LOADED, ())}
    assert told(hands, made) == (1, both | {"bad": (S.FAILED, ())})
    del hands.bad["cannot be encoded"]
    assert hands.retry(made)
    read_in_part(hands, made, bad=FORM)
    assert told(hands, made) == (2, both | {"bad": (S.LOADED, (FORM,))})
    nothing_is_left(hands, made)


def test_a_document_whose_newer_version_stays_tells_no_warnings_of_its_own(hands: IngestionHands) -> None:
    hands.bad["some of its pages"] = ERROR
    old = hands.texts(TEXTS)
    told(hands, old)
    told(hands, hands.texts({"scan": "newer"}))
    hands.bad.clear()
    assert hands.retry(old)
    read_in_part(hands, old, scan=SCANNED)
    assert told(hands, old) == (0, {"scan": (S.UNCHANGED, ()), "whole": (S.LOADED, ())})
