"""The map of a dataset: which rows are on it, in which colours, and what is read for it."""

import numpy as np
import orjson
import pytest

from tasks.documents.map_job import MapLimits, draw_map
from tasks.records.dataset_maps import CLUSTER, DatasetMap, is_map, map_name
from tasks.records.datasets import Catalog
from tasks.search.parts import PartReader
from tasks.storage.storage import Storage
from tests.unit.documents.search.conftest import CountedFolder, folder, storage
from tests.unit.documents.search.small_datasets import MARKUP, document, load, random_documents, regrouped

__all__ = ["folder", "storage"]


def drawn(storage: Storage, catalog: Catalog) -> DatasetMap:
    """As the API gets it."""
    first, second = (draw_map(PartReader.within(storage, 0), catalog, lambda: None).to_bytes() for _ in range(2))
    assert first == second
    return DatasetMap.from_bytes(first)


def named(found: DatasetMap) -> list[tuple[str, int]]:
    return [tuple(orjson.loads(one)) for one in found.ids]


def test_every_chunk_of_a_small_dataset_is_a_point(storage: Storage) -> None:
    load(storage, *random_documents(40, 3))
    catalog = load(storage, document(MARKUP, [1, 0, 0, 0], metadata={"team": MARKUP, "deep": {"a": 1}}))
    found = drawn(storage, catalog)
    assert sorted(named(found)) == sorted([(f"d{n:04d}", c) for n in range(40) for c in range(3)] + [(MARKUP, 0)])
    assert found.points.shape == (121, 2)
    assert np.abs(found.points).max() == pytest.approx(1)
    assert 0 < found.explained[1] <= found.explained[0] < 1
    team = found.coloring("team")
    assert team is not None
    assert list(team.colors) == ["a", "b", "c", MARKUP]
    by_name = dict(zip(named(found), team.numbers.tolist(), strict=True))
    assert [by_name[name] for name in [("d0000", 0), ("d0001", 2), ("d0005", 1), (MARKUP, 0)]] == [0, 1, 2, 3]
    cluster = found.coloring(CLUSTER)
    assert cluster is not None
    assert cluster.colors[0] == "cluster 1"
    assert [one.name for one in found.colorings] == [CLUSTER, "team", "number", "deep"]


def test_rare_values_are_others_and_missing_ones_have_a_colour(storage: Storage) -> None:
    documents = [document(f"d{n}", [1.0, n, 0, 0], metadata={"n": n} if n % 2 else {"flag": True}) for n in range(40)]
    documents.append(document("odd", [0, 0, 0, 1], metadata={"n": [1], CLUSTER: "mine", "empty": None}))
    found = drawn(storage, load(storage, *documents))
    numbers = found.coloring("n")
    assert numbers is not None
    assert (len(numbers.colors), list(numbers.colors[-2:])) == (12, ["other", "none"])
    by_name = dict(zip((name for name, _ in named(found)), numbers.numbers.tolist(), strict=True))
    assert numbers.colors[by_name["d1"]] == "1"
    assert numbers.colors[by_name["odd"]] == "other"
    assert numbers.colors[by_name["d2"]] == "none"
    flag = found.coloring("flag")
    assert flag is not None
    assert list(flag.colors) == ["true", "none"]
    assert [one.name for one in found.colorings] == [CLUSTER, "n", "flag"]


def test_a_field_of_countless_values_takes_little_memory(storage: Storage) -> None:
    one = [1.0, 0, 0, 0]
    different = [document(f"d{n:04d}", one, metadata={"n": n, "team": "a"}) for n in range(5000)]
    catalog = load(storage, *different, document("x", one, one, one, metadata={"n": 9999, "team": "b"}))
    found = drawn(storage, catalog)
    field, team = found.coloring("n"), found.coloring("team")
    assert field is not None
    assert team is not None
    assert list(field.colors)[:2] == ["0", "1"]
    assert field.colors[-1] == "other"
    assert "9999" not in field.colors, "it came after 4,096 others"
    assert np.bincount(field.numbers).tolist() == [1] * 11 + [5003 - 11]
    assert list(team.colors) == ["a", "b"]


def test_of_a_large_dataset_some_row_groups_are_read(storage: Storage, folder: CountedFolder) -> None:
    catalog = regrouped(storage, load(storage, *random_documents(1000, 1, dimension=512), dimension=512), 10)
    folder.reads.clear()
    limits = MapLimits(points=60, groups=10, group_rows=10)
    found = draw_map(PartReader.within(storage, 2**20), catalog, lambda: None, limits)
    assert len(found.points) == 60
    assert sum(size for _, _, size in folder.reads) < sum(part.size_bytes for part in catalog.parts) / 3
    tenths = [int(name[1:]) // 100 for name, _ in named(found)]
    assert np.bincount(tenths).tolist() == [6] * 10, "from everywhere in the dataset"
    few = draw_map(PartReader.within(storage, 0), catalog, lambda: None, MapLimits(sample_bytes=40 * 4 * 512))
    assert len(few.points) == 40


def test_a_map_is_recognised_by_its_name(storage: Storage) -> None:
    catalog = load(storage, document("a", [1, 0, 0, 0]))
    assert is_map(map_name(catalog))
    assert not any(is_map(name) for part in catalog.parts for name in (part.stored, part.receipts))
    storage.write(map_name(catalog), b"")
    assert len(drawn(storage, catalog).points) == 1
