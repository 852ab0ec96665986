"""What a dataset holds, as it is listed, searched and exported."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.datasets.contents import ExportPart, Filter, StoredChunk, StoredDocument
from tasks.datasets.hybrid_search import hybrid
from tasks.datasets.sqlite import search
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.search import SqliteContents, VectorMemory
from tasks.datasets.store import Store
from tasks.errors import NotReady
from tests.integration.datasets.loads import Place, Row, document, exported, failed, finish, load, stamp


def never() -> bool:
    return False


def test_documents_and_chunks_come_once_and_in_order(store: Store, place: Place) -> None:
    given = [document(f"d{n}", f"text {n}", chunks=n % 4, n=n) for n in range(30)]
    load(store, *given, failed("f"))
    reader = place.contents()
    head = reader.head()
    assert (head.documents, head.chunks) == (22 + 8, sum(len(each.chunks) for each in given))
    for limit in (3, 100):
        documents, after, more = list[StoredDocument](), 0, True
        while more:
            page = reader.documents(after, limit)
            documents += page.items
            after, more = page.items[-1].number, page.more
        assert [(each.id, each.chunks, each.source_uri, json.loads(each.metadata)) for each in documents] == [
            (each.id, len(each.chunks), each.place, each.metadata) for each in given if each.chunks
        ]
        assert json.loads(documents[0].headings) == ["Top", "Sub"]
    for of, limit in ((None, 3), (None, 100), ("d3", 3), ("d4", 1), ("nobody", 3)):
        chunks, last, more = list[StoredChunk](), -1, True
        while more:
            part = reader.chunks(last, limit, of)
            chunks += part.items
            last, more = part.items[-1].number if part.items else last, part.more
        expected = [(d.id, c.index, c.text) for d in given if of in {None, d.id} for c in d.chunks]
        assert [(chunk.document_id, chunk.position, chunk.text) for chunk in chunks] == expected

    first = reader.documents(0, 3)
    load(store, document("d1", "new"), document("d6", "new"), by=stamp(2))
    second = reader.documents(first.items[-1].number, 100)
    assert [each.id for each in second.items][:2] == ["d5", "d7"], "a page goes on when the dataset has changed"
    assert [each.id for each in second.items][-2:] == ["d1", "d6"]
    finish(store, stamp(2))
    assert (reader.head().documents, reader.head().chunks) == (2, 4)


def brute_force(found: Sequence[Row], vector: np.ndarray, k: int, passes: Callable[[Row], bool]) -> list[float]:
    rows = [row for row in found if passes(json.loads(row["metadata"]))]
    vectors = np.array([row["embedding"] for row in rows]).reshape(len(rows), 8)
    cosines = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector) if rows else np.empty(0)
    best: list[float] = np.sort(cosines)[::-1][:k].tolist()
    return best


def test_the_nearest_are_the_same_whatever_is_held(
    store: Store, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_READ_ROWS", 7)
    monkeypatch.setattr(search, "_BLOCK_ROWS", 20)
    rng, readers = random.Random(1), [place.contents()]  # noqa: S311 - repeatable
    if isinstance(readers[0], SqliteContents):
        readers = [SqliteContents(DatasetFile(tmp_path, "me", "docs"), VectorMemory(size)) for size in (0, 2**30)]
    for order in range(1, 12):
        changed = {f"d{rng.randrange(25)}" for _ in range(rng.choice((1, 5)))}
        new = [document(name, f"{name} {order}", chunks=rng.randrange(4), team=rng.choice("ab")) for name in changed]
        load(store, *new, by=stamp(order))
        vector = np.random.default_rng(order).standard_normal(8)
        for fields, passes in (({}, lambda _: True), ({"team": "a"}, lambda metadata: metadata["team"] == "a")):
            expected = brute_force(place.rows(), vector, 5, passes)
            for found in (reader.nearest(vector, 5, fields, never) for reader in readers):
                assert [each.score for each in found] == pytest.approx(expected, abs=1e-6)
                assert all(passes(json.loads(each.chunk.metadata)) for each in found)
    for reader in readers:
        reader.close()


def test_filters_mean_what_they_say(store: Store, place: Place) -> None:
    rng = random.Random(2)  # noqa: S311 - repeatable
    names = ["team", "a.b", "n", 'quo"te', "größe", "x y", "back\\slash", "$", "[0]", "", "'); DROP TABLE docs; --"]
    scalars = ["red", "1", "true", "", "é", 0, 1, 2, 1.0, 2.5, -3, 2**53, True, False, 'q"x', "'); DROP TABLE docs; --"]

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
    near = document("c", "nothing of the kind", chunks=1).vectors[0]
    both = hybrid(reader, "kind", near, 2, fields=None, stopping=never)
    assert both[0].chunk.document_id == "c"
    assert both[0].score == pytest.approx(2 / 61)
    apart = hybrid(reader, "zürich", near, 2, fields=None, stopping=never)
    assert {each.chunk.document_id for each in apart} == {"a", "c"}
    load(store, document("a", "something else", chunks=1), document("d", "queues again", chunks=1), by=stamp(2))
    assert set(found("queues")) == {"b", "d"}
    assert found("vectors") == []
    finish(store, stamp(3))
    assert found("queues kind else") == []
    with pytest.raises(NotReady):
        reader.words("queues", 10, None, lambda: True)


def test_the_export_is_the_dataset_and_only_what_has_changed_has_another_name(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.datasets.sqlite.load._RANGE_CHUNKS", 10)
    texts = {f"d{n:02d}": [f"{n} 0", f"{n} 1"] for n in range(30)}
    for n, name in enumerate(texts):
        load(store, document(name, f"{n}"))
    reader = place.contents()
    before = reader.export_parts()
    assert place.texts() == texts
    load(store, document("d07", "new", chunks=1), by=stamp(2))
    after = reader.export_parts()
    assert place.texts() == texts | {"d07": ["new 0"]}
    kept = {part.name for part in before} & {part.name for part in after}
    assert len(before) == 1 or exported(reader, [part for part in before if part.name in kept])
    for changed in (part for part in before if part.name not in kept):
        assert reader.export_rows(changed) is None
    assert reader.export_rows(ExportPart(0, 7)) is None
    assert ExportPart.from_name(before[0].name) == before[0]._replace(chunks=0)
    assert ExportPart.from_name("../x") is None
