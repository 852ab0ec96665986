"""What a dataset holds, as it is listed, searched and exported."""

import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.datasets.contents import Contents, DatasetGone, ExportPart, Filter, StoredChunk, StoredDocument
from tasks.datasets.export import write_part
from tasks.datasets.hybrid_search import hybrid
from tasks.datasets.loads import DocumentLoad
from tasks.datasets.sqlite import search
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.load import SqliteStore
from tasks.datasets.sqlite.search import SqliteContents, VectorMemory
from tasks.datasets.store import Store
from tasks.errors import NotReady
from tests.integration.datasets.conftest import rows_of
from tests.integration.datasets.loads import Place, Row, document, load, outcomes, stamp
from tests.pg_server import PgServer
from tests.raises_code import raises_code

PLENTY = 2**30


def contents(file: DatasetFile, max_bytes: int = PLENTY) -> SqliteContents:
    return SqliteContents(file, VectorMemory(max_bytes))


def never() -> bool:
    return False


@pytest.fixture
def in_file(file: DatasetFile) -> SqliteStore:
    return SqliteStore(file)


@pytest.mark.parametrize("limit", [3, 100])
def test_every_document_comes_once_with_its_chunks(store: Store, place: Place, limit: int) -> None:
    given = [document(f"d{n}", f"text {n}", chunks=n % 4, n=n) for n in range(30)]
    load(store, *given)
    reader, found, after, more = place.contents(), list[StoredDocument](), 0, True
    while more:
        page = reader.documents(after, limit)
        found += page.items
        after, more = page.items[-1].number, page.more
    assert [(each.id, each.chunks, each.source_uri, json.loads(each.metadata)) for each in found] == [
        (each.id, len(each.chunks), each.place, each.metadata) for each in given if each.chunks
    ]
    assert json.loads(found[0].headings) == ["Top", "Sub"]


@pytest.mark.parametrize(("of", "limit"), [(None, 3), (None, 100), ("d3", 3), ("d4", 1), ("nobody", 3)])
def test_every_chunk_comes_once_in_order(store: Store, place: Place, limit: int, of: str | None) -> None:
    given = [document(f"d{n}", f"text {n}", chunks=n % 4) for n in range(30)]
    load(store, *given)
    reader, found, after, more = place.contents(), list[StoredChunk](), -1, True
    while more:
        page = reader.chunks(after, limit, of)
        found += page.items
        after, more = page.items[-1].number if page.items else after, page.more
    expected = [(d.id, c.index, c.text) for d in given if of in {None, d.id} for c in d.chunks]
    assert [(chunk.document_id, chunk.position, chunk.text) for chunk in found] == expected


def test_a_page_goes_on_when_the_dataset_has_changed(store: Store, place: Place) -> None:
    load(store, *(document(f"d{n}", "one") for n in range(6)))
    reader = place.contents()
    first = reader.documents(0, 3)
    load(store, document("d1", "new"), document("d4", "new"), by=stamp(2))
    second = reader.documents(first.items[-1].number, 100)
    assert [each.id for each in second.items] == ["d3", "d5", "d1", "d4"]


# ---- search


def brute_force(found: Sequence[Row], vector: np.ndarray, k: int, passes: Callable[[Row], bool]) -> list[float]:
    """Cosines of the best."""
    rows = [row for row in found if passes(json.loads(row["metadata"]))]
    vectors = np.array([row["embedding"] for row in rows]).reshape(len(rows), 8)
    cosines = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector) if rows else np.empty(0)
    best: list[float] = np.sort(cosines)[::-1][:k].tolist()
    return best


def check_nearest(store: Store, place: Place, reader: Contents, rounds: int) -> None:
    rng = random.Random(1)  # noqa: S311 - repeatable
    for order in range(1, rounds):
        changed = {f"d{rng.randrange(25)}" for _ in range(rng.choice((1, 5)))}
        new = [document(name, f"{name} {order}", chunks=rng.randrange(4), team=rng.choice("ab")) for name in changed]
        load(store, *new, by=stamp(order))
        vector = np.random.default_rng(order).standard_normal(8)
        for fields, passes in (({}, lambda _: True), ({"team": "a"}, lambda metadata: metadata["team"] == "a")):
            found = reader.nearest(vector, 5, fields, never)
            expected = brute_force(place.rows(), vector, 5, passes)
            assert [each.score for each in found] == pytest.approx(expected, abs=1e-6)
            assert all(passes(json.loads(each.chunk.metadata)) for each in found)


def test_the_nearest_are_found_while_the_dataset_changes(store: Store, place: Place) -> None:
    check_nearest(store, place, place.contents(), 8)


@pytest.mark.parametrize("max_bytes", [PLENTY, 0])
def test_the_nearest_are_the_same_whatever_is_held(
    sqlite: Place, file: DatasetFile, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    monkeypatch.setattr(search, "_READ_ROWS", 7)
    monkeypatch.setattr(search, "_BLOCK_ROWS", 20)
    check_nearest(sqlite.open(), sqlite, contents(file, max_bytes), 20)


def test_an_index_over_vectors_is_used_and_a_filter_leaves_none_out(
    postgresql: Place, postgres: PgServer, database: str
) -> None:
    store = postgresql.open()
    load(store, *(document(f"d{n}", f"{n}", chunks=1, rare=n % 50 == 0) for n in range(2000)))
    postgres.execute("CREATE INDEX ON docs USING hnsw (embedding vector_cosine_ops)", database)
    reader = postgresql.contents()
    found = reader.nearest(np.ones(8), 10, {"rare": True}, never)
    assert len(found) == 10
    assert all(json.loads(each.chunk.metadata)["rare"] for each in found)


def test_a_search_that_reads_block_by_block_sees_one_version(
    in_file: SqliteStore, file: DatasetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.datasets.sqlite.search._READ_ROWS", 2)
    load(in_file, *(document(f"d{n}", f"{n}", chunks=1) for n in range(9)))
    vector, looks = document("d0", "0", chunks=1).vectors[0], 0
    reader = SqliteContents(file, VectorMemory(0))

    def changes() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            load(in_file, document("d0", "0", chunks=1)._replace(content_hash="0" * 64), by=stamp(2))
        return False

    assert [found.chunk.document_id for found in reader.nearest(vector, 1, None, changes)] == ["d0"]
    reader.close()


def test_a_deleted_dataset_is_gone_and_one_made_anew_is_another(in_file: SqliteStore, file: DatasetFile) -> None:
    load(in_file, document("a", "old"))
    reader = contents(file)
    before = reader.head().id
    assert reader.nearest(np.ones(8), 3, None, never)
    assert file.delete()
    assert not file.delete()
    with pytest.raises(DatasetGone):
        reader.nearest(np.ones(8), 3, None, never)
    load(in_file, document("b", "new"))
    assert {each.chunk.document_id for each in reader.nearest(np.ones(8), 3, None, never)} == {"b"}
    assert reader.head().id != before


def test_filters_mean_what_they_say(store: Store, place: Place) -> None:
    rng = random.Random(2)  # noqa: S311 - repeatable
    names = ["team", "a.b", "n", 'quo"te', "größe", "x y", "back\\slash", "$", "[0]", ""]
    scalars = ["red", "1", "true", "", "é", 0, 1, 2, 1.0, 2.5, -3, 2**53, True, False, 'q"x']

    def value() -> object:
        kind = rng.random()
        if kind < 0.6:
            return rng.choice(scalars)
        if kind < 0.7:
            return rng.choice((None, {"red": 1}))
        return [rng.choice([*scalars, None, ["red"], {"red": 1}]) for _ in range(rng.randrange(4))]

    def fits(there: object, wanted: object) -> bool:
        if isinstance(there, list):
            return any(fits(one, wanted) for one in there if not isinstance(one, list))
        return isinstance(there, bool) == isinstance(wanted, bool) and there == wanted

    given: list[dict[str, Any]] = [
        {name: value() for name in rng.sample(names, rng.randrange(1, 5))} for _ in range(120)
    ]
    load(store, *(document(f"d{n}", f"{n}", chunks=1, **each) for n, each in enumerate(given)))
    reader = place.contents()
    for _ in range(50):
        fields: Filter = {name: rng.choice(scalars) for name in rng.sample(names, rng.choice((1, 1, 2)))}  # type: ignore[misc]
        found = {each.chunk.document_id for each in reader.nearest(np.ones(8), 120, fields, never)}
        assert found == {
            f"d{n}" for n, each in enumerate(given) if all(k in each and fits(each[k], v) for k, v in fields.items())
        }, fields
    one = reader.nearest(np.ones(8), 5, {"document_id": "d7"}, never)
    assert [each.chunk.document_id for each in one] == ["d7"]
    assert reader.nearest(np.ones(8), 5, {"document_id": 7}, never) == []


def test_full_text_finds_words_and_follows_the_dataset(store: Store, place: Place) -> None:
    load(
        store,
        document("a", "queues and vectors in Zürich", chunks=1, team="x"),
        document("b", 'queues of "quoted" words', chunks=1, team="y"),
        document("c", "nothing of the kind", chunks=1),
    )
    reader = place.contents()

    def found(text: str, fields: Filter | None = None) -> list[str]:
        return [each.chunk.document_id for each in reader.words(text, 10, fields, never)]

    assert found("vectors queues") == ["a", "b"]
    assert found("QUEUES!", {"team": "y"}) == ["b"]
    assert found("quoted' OR text:*") == ["b"]
    assert found("absent") == found("?!") == found("") == []
    load(store, document("a", "something else", chunks=1), document("d", "queues again", chunks=1), by=stamp(2))
    assert set(found("queues")) == {"b", "d"}
    assert found("vectors") == []
    store.finish(stamp(3), (), lambda: None)
    assert found("queues kind else") == []
    with pytest.raises(NotReady):
        reader.words("queues", 10, None, lambda: True)


def test_both_rankings_together_find_what_either_finds(store: Store, place: Place) -> None:
    load(
        store,
        *(document(f"d{n}", f"common text {n}", chunks=1) for n in range(50)),
        document("rare", "rareword", chunks=1),
    )
    reader = place.contents()
    target = document("d7", "common text 7", chunks=1)
    near = hybrid(reader, "rareword", target.vectors[0], 5, fields=None, stopping=never)
    assert {"d7", "rare"} <= {each.chunk.document_id for each in near[:3]}
    assert [each.score for each in near] == sorted((each.score for each in near), reverse=True)
    both = hybrid(reader, "text 7", target.vectors[0], 5, fields=None, stopping=never)
    assert both[0].chunk.document_id == "d7"
    assert both[0].score == pytest.approx(2 / 61)


# ---- export


def test_the_export_is_the_dataset_and_only_what_has_changed_has_another_name(
    in_file: SqliteStore, file: DatasetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.datasets.sqlite.load._RANGE_CHUNKS", 10)
    load(in_file, *(document(f"d{n:02d}", f"{n}", n=n) for n in range(5)))
    for n in range(5, 30):
        load(in_file, document(f"d{n:02d}", f"{n}", n=n))
    reader = contents(file)
    before = reader.export_parts()
    assert exported(reader, before) == expected(file)
    load(in_file, document("d07", "new", chunks=1), by=stamp(2))
    after = reader.export_parts()
    assert exported(reader, after) == expected(file)
    assert len({part.name for part in after} - {part.name for part in before}) == 2, (
        "that of the old and of the new one"
    )
    changed = next(part for part in before if part.name not in {each.name for each in after})
    assert reader.export_rows(changed) is None
    assert ExportPart.from_name(before[0].name) == before[0]._replace(chunks=0)
    assert ExportPart.from_name("../x") is None


def test_a_part_is_made_of_what_it_names_or_not_at_all(place: Place) -> None:
    store = place.open()
    load(store, *(document(f"d{n}", f"{n}", n=n) for n in range(5)), document("empty", chunks=0))
    reader = place.contents()
    before = reader.export_parts()
    assert texts_of(exported(reader, before)) == texts_of(place.rows())
    load(store, document("d3", "new", chunks=1), by=stamp(2))
    after = reader.export_parts()
    assert texts_of(exported(reader, after)) == texts_of(place.rows())
    (changed,) = {*before} - {*after}
    assert reader.export_rows(changed) is None
    assert reader.export_rows(ExportPart(0, 7)) is None


def texts_of(rows: Sequence[Row]) -> list[tuple[str, int, str, list[float]]]:
    found = ((row["doc_id"], row["chunk_index"], row["text"], list(row["embedding"])) for row in rows)
    return sorted(found)


def exported(reader: Contents, parts: Sequence[ExportPart]) -> list[Row]:
    rows = list[Row]()
    for part in parts:
        found = reader.export_rows(part)
        assert found is not None
        assert len(found.rows) == part.chunks
        assert found.dataset_id == reader.head().id
        data = io.BytesIO()
        write_part(data, [found.rows], found.dimension)
        rows += pq.read_table(data).to_pylist()
    return sorted(rows, key=lambda row: (row["doc_id"], row["chunk_index"]))


def expected(file: DatasetFile) -> list[Row]:
    path = file.path()
    assert path is not None
    return [dict(row) for row in rows_of(path)]


def test_what_is_refused_says_why(file: DatasetFile, in_file: SqliteStore) -> None:
    load(in_file, document("a"))
    path = file.path()
    assert path is not None
    data = bytearray(path.read_bytes())
    path.write_bytes(b"no database" * 1000)
    with raises_code("sink_refused", match="damaged.*backup"):
        SqliteStore(file).known(["a"])
    data[60:64] = (99).to_bytes(4, "big")  # user_version
    path.write_bytes(bytes(data))
    with raises_code("sink_refused", match="format 99"):
        outcomes(SqliteStore(file), *list[DocumentLoad]())
