"""Pages of documents and chunks: all of them, each once, and few reads for each page."""

from collections.abc import Callable
from typing import Any

import pytest

from tasks.records.datasets import Catalog
from tasks.search.pages import (
    ContentPage,
    Place,
    StoredDocument,
    chunks_of_document,
    page_of_chunks,
    page_of_documents,
)
from tasks.search.parts import PartReader
from tasks.storage.storage import Storage
from tests.raises_code import raises_code
from tests.unit.documents.search.conftest import CountedFolder
from tests.unit.documents.search.small_datasets import MARKUP, document, load, random_documents, regrouped

SIZES = (3, 1, 7, 2, 12, 1, 1, 5)


@pytest.fixture
def reader(storage: Storage) -> PartReader:
    return PartReader.within(storage, 2**24)


@pytest.fixture
def catalog(storage: Storage) -> Catalog:
    """Two parts, in row groups of five rows, so that documents begin and end anywhere in them."""
    made = [document(f"d{n}", *[[1.0, 2, 3, 4]] * size, metadata={"n": n}) for n, size in enumerate(SIZES)]
    load(storage, *made[:5])
    return regrouped(storage, load(storage, document("emptied"), *made[5:]), 5)


def everything(read: Callable[[Place | None], ContentPage[Any]]) -> tuple[list[Any], list[int]]:
    """All items, and how many each page had."""
    items: list[Any] = []
    sizes = []
    after, more = None, True
    while more:
        page = read(after)
        items += page.items
        sizes.append(len(page.items))
        after, more = page.until, page.more
    return items, sizes


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 100])
def test_every_document_comes_once_with_its_chunks(reader: PartReader, catalog: Catalog, limit: int) -> None:
    found, sizes = everything(lambda after: page_of_documents(reader, catalog, after, limit))
    assert [(one.row["doc_id"], one.chunks) for one in found] == [(f"d{n}", size) for n, size in enumerate(SIZES)]
    assert sizes == [limit] * (len(SIZES) // limit) + [len(SIZES) % limit] * (len(SIZES) % limit > 0)


@pytest.mark.parametrize("limit", [1, 4, 5, 32, 100])
def test_every_chunk_comes_once_in_order(reader: PartReader, catalog: Catalog, limit: int) -> None:
    expected = [(f"d{n}", chunk) for n, size in enumerate(SIZES) for chunk in range(size)]
    rows, _ = everything(lambda after: page_of_chunks(reader, catalog, after, limit))
    assert [(row["doc_id"], row["chunk_index"]) for row in rows] == expected
    for n, size in enumerate(SIZES):
        of_one = everything(lambda after, n=n: chunks_of_document(reader, catalog, f"d{n}", after, limit))[0]  # type: ignore[misc]
        assert [row["chunk_index"] for row in of_one] == list(range(size))


def test_what_is_not_there_is_an_empty_page(reader: PartReader, catalog: Catalog, storage: Storage) -> None:
    for unknown in ("d9", "emptied", "", MARKUP, "\udcff"):
        assert chunks_of_document(reader, catalog, unknown, None, 5) == ContentPage((), None, more=False)
    behind = Place(9, 0, 0)
    assert page_of_chunks(reader, catalog, behind, 5) == ContentPage([], None, more=False)
    assert page_of_documents(reader, catalog, behind, 5) == ContentPage([], None, more=False)
    empty = load(storage, document("emptied"), name="empty")
    assert page_of_documents(reader, empty, None, 5) == ContentPage([], None, more=False)


def test_a_page_goes_on_when_the_dataset_has_changed(reader: PartReader, catalog: Catalog, storage: Storage) -> None:
    first = page_of_documents(reader, catalog, None, 3)
    chunks = chunks_of_document(reader, catalog, "d4", None, 5)
    now = regrouped(storage, load(storage, document("d0", [1, 2, 3, 4]), document("new", [1, 2, 3, 4])), 5)
    rest = everything(lambda after: page_of_documents(reader, now, after or first.until, 3))[0]
    names = [one.row["doc_id"] for one in rest]
    assert {"d3", "d4", "d5", "d6", "d7", "new"} <= set(names)
    assert len(names) == len(set(names))
    more = chunks_of_document(reader, now, "d4", chunks.until, 100)
    assert [row["chunk_index"] for row in more.items] == list(range(5, 12))


def test_a_document_comes_unchanged(reader: PartReader, storage: Storage) -> None:
    catalog = load(storage, document(MARKUP, [1, 2, 3, 4], metadata={"title": MARKUP}))
    (found,) = page_of_documents(reader, catalog, None, 5).items
    assert isinstance(found, StoredDocument)
    assert (found.row["doc_id"], found.row["source_uri"]) == (MARKUP, f"file:///{MARKUP}")
    assert found.row["headings"] == ["Top", "Part 0"]


def test_a_page_reads_a_row_group_and_not_a_part(storage: Storage, folder: CountedFolder) -> None:
    catalog = regrouped(storage, load(storage, *random_documents(1000, 2, dimension=64), dimension=64), 100)
    (part,) = catalog.listed
    reader = PartReader.within(storage, 2**24)
    page_of_documents(reader, catalog, None, 1)  # the footer stays
    for read in (
        lambda: page_of_documents(reader, catalog, Place(part.number, 999, 1), 20),
        lambda: page_of_chunks(reader, catalog, Place(part.number, 999, 1), 20),
        lambda: chunks_of_document(reader, catalog, "d0700", None, 20),
    ):
        folder.reads.clear()
        assert read().items
        assert sum(size for _, _, size in folder.reads) < part.size_bytes / 40
    folder.reads.clear()
    chunks_of_document(reader, catalog, "d0700", None, 20)
    assert len(folder.reads) <= 2, "the place of the document is known"


@pytest.mark.parametrize("text", ["1", "1-2", "a-b-c", "1-2-3-4", "-1-2-3", "1-2-9999999999", "١-2-3"])  # noqa: RUF001
def test_other_places_are_refused(text: str) -> None:
    with raises_code("invalid_value", match="after"):
        Place.from_text(text)
    assert Place.from_text(str(Place(1, 22, 3))) == Place(1, 22, 3)
