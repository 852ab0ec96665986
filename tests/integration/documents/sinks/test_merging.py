"""Small parts of a dataset become one while nobody sees it, whatever dies or comes in between."""

from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from tasks.documents.sinks.parquet.parquet_sink import BESIDE, Dataset, ParquetSink
from tasks.documents.sinks.sink import LoadOutcome
from tasks.errors import StorageUnavailable
from tasks.records.datasets import Catalog
from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage
from tests.integration.documents.sinks.failing_place import FailingPlace
from tests.integration.documents.sinks.loads import Place, document, load, stamp, texts
from tests.integration.documents.sinks.parquet_reading import DATASET, OWNER, download, present, rows_of

NAMES = [f"d{n}" for n in range(BESIDE + 1)]
"""Loaded one by one, the last of them makes a merge."""


@pytest.fixture
def sink(storage: Storage) -> ParquetSink:
    return ParquetSink(storage, OWNER, DATASET)


def now(storage: Storage, dataset: str = DATASET) -> Catalog:
    catalog = present(storage, dataset)
    assert catalog is not None
    return catalog


def test_many_small_loads_make_few_parts(sink: ParquetSink, storage: Storage, parquet: Place, tmp_path: Path) -> None:
    names = [f"d{n}" for n in range(30)]
    for name in names:
        load(sink, document(name, name), document(f"empty-{name}", chunks=0))

    parts = now(storage).parts
    assert len(parts) <= 3 * BESIDE
    assert texts(parquet.rows()) == {name: [f"{name} 0", f"{name} 1"] for name in names}
    for asked in (sink, parquet.open()):
        assert asked.known([*names, *(f"empty-{name}" for name in names)]).keys() == {
            *names,
            *(f"empty-{name}" for name in names),
        }
    largest = max(download(storage, now(storage), tmp_path / "out"), key=lambda file: file.stat().st_size)
    assert pq.read_metadata(largest).num_row_groups == 1
    # Nothing of it is the last word: what was merged is replaced and deleted like anything else.
    load(sink, document("d3", "new", chunks=1), by=stamp(2))
    assert sink.keep_only(lambda: iter(["d3", "d4"]), stamp(2), lambda: None) == 58
    assert texts(parquet.rows()) == {"d3": ["new 0"], "d4": ["d4 0", "d4 1"]}


def test_parts_that_were_merged_can_be_read_for_a_while(sink: ParquetSink, storage: Storage) -> None:
    for name in NAMES[:-1]:
        load(sink, document(name))
    before = now(storage).listed
    load(sink, document(NAMES[-1]))

    after = now(storage)
    assert [part.number for part in after.parts] == [len(NAMES)]
    for part in before:
        assert after.find(part.name) == part
        assert storage.read(part.stored)


def test_whenever_a_writer_dies_a_load_and_its_merge_are_whole(tmp_path: Path, storage: Storage) -> None:
    deaths = {"loading": 0, "merging": 0}
    for steps in count(1):
        dataset = f"n{steps}"
        healthy = ParquetSink(storage, OWNER, dataset)
        for name in NAMES[:-1]:
            load(healthy, document(name))
        place = FailingPlace(LocalFolder(tmp_path / "storage"), steps)
        dying = ParquetSink(Storage(cast("LocalFolder", place)), OWNER, dataset)
        raised = False
        try:
            load(dying, document(NAMES[-1]))
        except StorageUnavailable:
            raised = True
        catalog = now(storage, dataset)
        rows = rows_of(storage, catalog, tmp_path / f"download-{dataset}")
        # Who dies between a version and the answer that it is there raises as well.
        loaded = NAMES[:-1] if raised and catalog.version == BESIDE else NAMES
        assert texts(rows) == {name: ["one 0", "one 1"] for name in loaded}
        assert ParquetSink(storage, OWNER, dataset).known(NAMES).keys() == set(loaded)
        if not place.dead:
            break
        deaths["merging" if loaded is NAMES else "loading"] += 1
        load(healthy, document(NAMES[-1]))  # whoever repeats it brings it to its end
        assert len(now(storage, dataset).parts) == 1
    # Each writes a part, its receipts and a catalog, with two moments to die at each.
    assert deaths["loading"] >= 5
    assert deaths["merging"] >= 5


def test_a_damaged_part_stops_merges_and_no_load(sink: ParquetSink, storage: Storage) -> None:
    for name in NAMES[:-1]:
        load(sink, document(name))
    storage.write(now(storage).parts[0].stored, b"damaged")

    assert load(sink, document(NAMES[-1])) == {NAMES[-1]: [LoadOutcome.LOADED]}
    assert len(now(storage).parts) == len(NAMES)


def test_a_load_that_comes_in_between_keeps_its_documents(sink: ParquetSink, storage: Storage, parquet: Place) -> None:
    other = parquet.open()
    for name in NAMES[:-1]:
        load(sink, document(name))
    came: list[str] = []

    def progress() -> None:
        if len(now(storage).parts) > BESIDE and not came:  # loaded, and not yet merged
            came.append("other")
            load(other, document("other"), document(NAMES[0], "new"), by=stamp(2))

    sink.load(iter([document(NAMES[-1])]), stamp(), progress)

    assert came
    expected = {name: ["one 0", "one 1"] for name in [*NAMES, "other"]} | {NAMES[0]: ["new 0", "new 1"]}
    assert texts(parquet.rows()) == expected


def test_a_merge_of_which_only_the_answer_was_lost_keeps_its_part(
    sink: ParquetSink, parquet: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES[:-1]:
        load(sink, document(name))
    real, moves = Dataset.move, count()

    def lost(dataset: Dataset, *version: Any) -> bool:
        moved = real(dataset, *version)
        if next(moves) != 1:  # the first is that of the load
            return moved
        load(parquet.open(), document("other"), by=stamp(2))  # so that a repetition finds another version
        return False

    monkeypatch.setattr(Dataset, "move", lost)
    load(sink, document(NAMES[-1]))

    assert texts(parquet.rows()) == {name: ["one 0", "one 1"] for name in [*NAMES, "other"]}
    assert parquet.open().known(NAMES).keys() == set(NAMES)
