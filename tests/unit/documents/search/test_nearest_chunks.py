"""Exact search over the parts of a dataset: what it finds, what it reads, and what it keeps."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import numpy.typing as npt
import pytest

from embedq.vector_search import FoundRow, read_vectors
from stack.testing import PATIENCE_S
from tasks.errors import NotReady, NotStored
from tasks.records.datasets import Catalog
from tasks.search.nearest_chunks import model_of, nearest_chunks
from tasks.search.parts import PartReader
from tasks.search.row_filter import RowFilter, Scalar
from tasks.storage.storage import Storage
from tests.unit.documents.search.conftest import CountedFolder
from tests.unit.documents.search.small_datasets import DIMENSION, MARKUP, document, load, random_documents, regrouped

ROOMY = 2**24
QUERY = np.array([1, 2, -1, 0.5], np.float32)


def reader(storage: Storage, max_bytes: int = ROOMY) -> PartReader:
    return PartReader.within(storage, max_bytes)


def kept_bytes(searching: PartReader) -> int:
    return searching.kept.size_bytes + searching.kept_vectors.size_bytes


def names(rows: list[FoundRow]) -> list[tuple[str, int]]:
    return [(row.fields["doc_id"], row.fields["chunk_index"]) for row in rows]


def by_hand(storage: Storage, catalog: Catalog, query: npt.NDArray[np.float32], k: int) -> list[tuple[str, int]]:
    """All rows of all parts, sorted by their cosine."""
    plain = reader(storage, 0)
    scored = []
    for part in catalog.listed:
        rows = plain.rows(part, range(part.rows), ["doc_id", "chunk_index", "embedding"])
        for row in rows.values():
            vector = np.array(row["embedding"], np.float64)
            cosine = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
            scored.append((cosine, row["doc_id"], row["chunk_index"]))
    return [(doc, chunk) for _, doc, chunk in sorted(scored, key=lambda one: -one[0])[:k]]


@pytest.fixture
def catalog(storage: Storage) -> Catalog:
    """Three parts with 90, 60 and 3 rows."""
    load(storage, *random_documents(30, 3))
    load(storage, *random_documents(90, 2, seed=2)[30:60])
    return load(storage, document("last", [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, -1], metadata={"tags": ["x", "a"]}))


@pytest.mark.parametrize("max_bytes", [ROOMY, 0, 1000])
def test_the_nearest_are_the_same_whatever_is_kept(storage: Storage, catalog: Catalog, max_bytes: int) -> None:
    searching = reader(storage, max_bytes)
    expected = by_hand(storage, catalog, QUERY, 25)
    for _ in range(2):
        found = nearest_chunks(searching, catalog, QUERY, 25)
        assert names(found) == expected
        scores = [row.score for row in found]
        assert scores == sorted(scores, reverse=True)
    assert kept_bytes(searching) <= max_bytes
    assert len(nearest_chunks(searching, catalog, QUERY, 1000)) == 153


def test_a_found_chunk_comes_back_unchanged(storage: Storage) -> None:
    metadata = {"title": MARKUP, "n": 1, "deep": [{"a": None}]}
    catalog = load(storage, document(MARKUP, [1, 2, 3, 4], metadata=metadata, text=MARKUP))
    (row,) = nearest_chunks(reader(storage), catalog, QUERY, 5)
    assert (row.fields["doc_id"], row.fields["text"]) == (MARKUP, f"{MARKUP} 0")
    assert (row.fields["start"], row.fields["end"], row.fields["page"]) == (0, 5, 1)
    assert row.fields["headings"] == ["Top", "Part 0"]
    assert '"deep":[{"a":null}]' in row.fields["metadata"]
    assert model_of(reader(storage), catalog) == "test/model"


def vector_bytes(folder: CountedFolder) -> int:
    """Of all reads since the last call."""
    total = sum(size for _, _, size in folder.reads)
    folder.reads.clear()
    return total


def test_vectors_are_read_once_and_those_of_a_new_version_are_the_new_part(
    storage: Storage, folder: CountedFolder, catalog: Catalog
) -> None:
    searching = reader(storage)
    folder.reads.clear()
    nearest_chunks(searching, catalog, QUERY, 1)
    assert {name for name, _, _ in folder.reads} == {part.stored for part in catalog.listed}
    folder.reads.clear()
    nearest_chunks(searching, catalog, QUERY, 1)
    assert folder.reads == [], "the chunk that was found has stayed too"

    new = load(storage, document("newer", [1, 2, -1, 0.5]))
    folder.reads.clear()
    assert names(nearest_chunks(searching, new, QUERY, 1)) == [("newer", 0)]
    fresh = {part.stored for part in new.listed} - {part.stored for part in catalog.listed}
    assert {name for name, _, _ in folder.reads} == fresh


def test_a_dataset_beyond_the_limit_is_read_each_time_and_the_others_stay(
    storage: Storage, folder: CountedFolder, catalog: Catalog
) -> None:
    small = load(storage, document("small", [1, 1, 1, 1]), name="small")
    searching = reader(storage, 200_000)
    nearest_chunks(searching, small, QUERY, 1)
    vectors = searching.kept_vectors.size_bytes
    large = load(storage, *random_documents(200, 1, dimension=300, seed=3), name="large", dimension=300)
    query = np.ones(300, np.float32)
    for _ in range(2):
        folder.reads.clear()
        nearest_chunks(searching, large, query, 1)
        assert vector_bytes(folder) > 200 * 300 * 3
        assert kept_bytes(searching) <= 200_000
    assert searching.kept_vectors.size_bytes == vectors
    folder.reads.clear()
    nearest_chunks(searching, small, QUERY, 1)
    assert vector_bytes(folder) < 10_000


def test_a_dataset_beyond_the_limit_is_read_piece_by_piece(storage: Storage, folder: CountedFolder) -> None:
    catalog = load(storage, *random_documents(400, 1, dimension=300), name="large", dimension=300)
    (part,) = regrouped(storage, catalog, 50).listed
    with reader(storage, 0).open(part) as file:
        pieces = read_vectors(file, 50)
        folder.reads.clear()
        assert len(next(pieces)) == 50
        assert sum(size for _, _, size in folder.reads) < part.size_bytes / 3
        assert sum(map(len, pieces)) == 350


def test_two_searches_at_once_read_once(storage: Storage, folder: CountedFolder, catalog: Catalog) -> None:
    folder.reads.clear()
    searching, together = reader(storage), Barrier(2)

    def search() -> list[tuple[str, int]]:
        together.wait(PATIENCE_S)
        return names(nearest_chunks(searching, catalog, QUERY, 1))

    with ThreadPoolExecutor(2) as threads:
        first, second = [future.result() for future in [threads.submit(search), threads.submit(search)]]
    assert first == second
    found = next(part for part in catalog.listed if part.stored == folder.reads[-1][0])
    others = [read for read in folder.reads if read[0] != found.stored]  # both may have read the row that was found
    assert len(others) == len(set(others)) == 2 * (len(catalog.listed) - 1), "footer and vectors of each part"


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"team": "a"}, 50),
        ({"team": "a", "number": 3}, 3),
        ({"number": 3.0}, 3),
        ({"number": "3"}, 0),
        ({"number": True}, 0),
        ({"tags": "x"}, 3),
        ({"tags": "y"}, 0),
        ({"nothing": "a"}, 0),
        ({"document_id": "d0040"}, 2),
        ({"document_id": "d0040", "team": "b"}, 2),
        ({"document_id": "d0040", "team": "a"}, 0),
        ({"document_id": "zzz"}, 0),
        ({"document_id": 7}, 0),
    ],
)
def test_a_filter_is_exact(storage: Storage, catalog: Catalog, fields: dict[str, Scalar], count: int) -> None:
    searching = reader(storage)
    everything = names(nearest_chunks(searching, catalog, QUERY, 1000))
    for _ in range(2):
        found = nearest_chunks(searching, catalog, QUERY, 1000, RowFilter(fields))
        assert len(found) == count
        assert names(found) == [name for name in everything if name in names(found)]


def test_what_cannot_be_read_is_said_and_not_remembered(
    storage: Storage, folder: CountedFolder, catalog: Catalog
) -> None:
    searching = reader(storage)
    part = catalog.listed[1]
    whole = storage.read(part.stored)
    storage.delete(part.stored)
    with pytest.raises(NotStored):
        nearest_chunks(searching, catalog, QUERY, 1)
    storage.write(part.stored, b"\x00" * len(whole))
    with pytest.raises(NotStored, match="damaged"):
        nearest_chunks(searching, catalog, QUERY, 1)
    storage.write(part.stored, whole)
    assert len(nearest_chunks(searching, catalog, QUERY, 1000)) == 153
    with pytest.raises(ValueError, match="another model"):
        nearest_chunks(searching, catalog, np.ones(DIMENSION + 1, np.float32), 1)


def test_a_process_that_stops_ends_its_searches(storage: Storage, catalog: Catalog) -> None:
    with pytest.raises(NotReady):
        nearest_chunks(reader(storage).until(lambda: True), catalog, QUERY, 1)
