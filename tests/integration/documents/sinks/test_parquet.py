"""The Parquet sink: versions are whole whatever dies, other programs read the parts, garbage goes."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tasks.documents.sinks.parquet import index
from tasks.documents.sinks.parquet.dataset import Dataset
from tasks.documents.sinks.parquet.garbage import sweep_datasets
from tasks.documents.sinks.parquet.rows import GROUP_BYTES, GROUP_ROWS
from tasks.documents.sinks.parquet.sink import ParquetSink
from tasks.documents.sinks.types import LoadOutcome
from tasks.errors import NotStored, RedisUnavailable, StorageUnavailable
from tasks.ledger.datasets import dataset_folder, newest_catalog
from tasks.ledger.executor import Ledger
from tasks.ledger.local_folder import LocalFolder
from tasks.ledger.storage import Storage
from tests.integration.documents.sinks.failing_place import FailingPlace, LosingLedger
from tests.integration.documents.sinks.loads import Place, document, load, stamp, texts
from tests.integration.documents.sinks.parquet_reading import DATASET, OWNER, download, present, rows_of


@pytest.fixture
def sink(storage: Storage, ledger: Ledger) -> ParquetSink:
    return ParquetSink(storage, ledger, OWNER, DATASET)


def replace_some(sink: ParquetSink) -> None:
    load(sink, document("a", "new", chunks=1), document("c", "new"), document("d"), by=stamp(2))


def delete_some(sink: ParquetSink) -> None:
    sink.keep_only(lambda: iter(["a"]), stamp(2), lambda: None)


@pytest.mark.parametrize("change", [replace_some, delete_some])
def test_whenever_a_writer_dies_readers_see_one_version(
    change: Callable[[ParquetSink], None], tmp_path: Path, ledger: Ledger, storage: Storage, parquet: Place
) -> None:
    sink = parquet.open()
    load(sink, document("a", "old"), document("b", "old"))
    load(sink, document("c", "old"))
    before = parquet.rows()
    folder = LocalFolder(tmp_path / "storage")
    deaths = 0
    while True:
        place = FailingPlace(folder, deaths + 1)
        dying = ParquetSink(Storage(cast("LocalFolder", place)), ledger, OWNER, DATASET)
        try:
            change(dying)
        except StorageUnavailable:
            deaths += 1
        else:
            break
        assert place.dead
        assert parquet.rows() == before
    # Objects that a change writes: at least a part, its receipts and a catalog, each with two moments to die.
    assert deaths >= 6
    after = texts(parquet.rows())
    assert after == (
        {"a": ["new 0"], "b": ["old 0", "old 1"], "c": ["new 0", "new 1"], "d": ["one 0", "one 1"]}
        if change is replace_some
        else {"a": ["old 0", "old 1"]}
    )


def test_an_answer_that_was_lost_is_no_second_load(redis_url: str, storage: Storage, parquet: Place) -> None:
    with redis.Redis.from_url(redis_url) as client:
        sink = ParquetSink(storage, LosingLedger(client), OWNER, DATASET)
        with pytest.raises(RedisUnavailable):
            load(sink, document("a"))

        assert load(sink, document("a")) == {"a": [LoadOutcome.LOADED]}
    assert texts(parquet.rows()) == {"a": ["one 0", "one 1"]}


def test_receipts_of_an_earlier_version_are_read(
    sink: ParquetSink, storage: Storage, ledger: Ledger, parquet: Place
) -> None:
    load(sink, document("a"), document("b"))
    catalog = present(storage, ledger)
    assert catalog is not None
    (part,) = catalog.parts
    old = pq.read_table(pa.BufferReader(storage.read(part.receipts))).drop_columns(["origin"])
    buffer = pa.BufferOutputStream()
    pq.write_table(old, buffer)
    storage.write(part.receipts, buffer.getvalue().to_pybytes())

    other = parquet.open()
    assert other.known(["a"])["a"].origin == ""
    load(other, document("a", "new", origin="f"), by=stamp(2))
    assert {name: known.origin for name, known in other.known(["a", "b"]).items()} == {"a": "f", "b": ""}


def test_other_programs_read_the_parts(sink: ParquetSink, storage: Storage, ledger: Ledger, tmp_path: Path) -> None:
    load(sink, *(document(f"d{i}", chunks=3) for i in range(10)))
    load(sink, document("later", colour="red"), by=stamp(2))
    catalog = present(storage, ledger)
    assert catalog is not None
    files = download(storage, catalog, tmp_path / "out")
    assert [file.name for file in files] == ["part-000000.parquet", "part-000001.parquet"]

    assert pl.read_parquet(tmp_path / "out" / "*.parquet")["embedding"].dtype == pl.Array(pl.Float32, 8)
    pattern = str(tmp_path / "out" / "*.parquet")
    asked = "SELECT count(*), count(DISTINCT chunk_id), any_value(typeof(embedding)) FROM read_parquet(?)"
    with duckdb.connect() as database:
        counted = database.execute(asked, [pattern]).fetchone()
        same = database.execute(
            "SELECT array_cosine_similarity(embedding::FLOAT[8], embedding::FLOAT[8]) FROM read_parquet(?)", [pattern]
        ).fetchone()
    assert counted is not None
    assert counted[:2] == (32, 32)
    assert same == (pytest.approx(1),)
    schema = pq.read_schema(files[0])
    assert str(schema.field("embedding").type).startswith("fixed_size_list<")
    assert schema.names == [
        *("doc_id", "chunk_id", "chunk_index", "text", "start", "end", "page", "headings", "token_count", "truncated"),
        *("source_uri", "content_hash", "metadata", "embedding", "model", "model_revision"),
    ]


def test_row_groups_are_bounded(sink: ParquetSink, storage: Storage, ledger: Ledger, tmp_path: Path) -> None:
    load(sink, document("large", chunks=2 * GROUP_ROWS + 10), document("small"))
    load(sink, document("small", "new"), by=stamp(2))

    catalog = present(storage, ledger)
    assert catalog is not None
    files = download(storage, catalog, tmp_path / "out")
    groups = [
        pq.read_metadata(file).row_group(i).num_rows
        for file in files
        for i in range(pq.read_metadata(file).num_row_groups)
    ]
    assert groups == [GROUP_ROWS, GROUP_ROWS, 10, 2]


def test_a_row_group_is_bounded_by_its_metadata_too(
    sink: ParquetSink, storage: Storage, ledger: Ledger, tmp_path: Path
) -> None:
    load(sink, document("large", chunks=GROUP_ROWS, page_of_html="<" * 64_000))

    catalog = present(storage, ledger)
    assert catalog is not None
    (file,) = download(storage, catalog, tmp_path / "out")
    groups = pq.read_metadata(file)
    assert groups.num_row_groups == -(-GROUP_ROWS * 64_000 // GROUP_BYTES)


def test_a_replaced_part_can_be_read_for_a_while(sink: ParquetSink, storage: Storage, ledger: Ledger) -> None:
    load(sink, document("a", "old"), document("b", "old"))
    first = present(storage, ledger)
    load(sink, document("a", "new"), by=stamp(2))
    second = present(storage, ledger)
    assert first is not None
    assert second is not None

    (old,) = first.listed
    assert [part.number for part in second.listed] == [1, 2]  # a number never means two things
    assert second.find(old.name) == old
    assert sweep_datasets(storage, ledger) == 0
    assert storage.read(old.stored)

    assert sweep_datasets(storage, ledger, grace_s=-60) == 3  # the part, its receipts and the first catalog
    with pytest.raises(NotStored):
        storage.read(old.stored)
    assert second.find("part-000099.parquet") is None


def test_a_sweep_leaves_what_a_load_is_writing_and_takes_what_the_dead_left(
    sink: ParquetSink, storage: Storage, ledger: Ledger, parquet: Place
) -> None:
    load(sink, document("a"))
    folder = dataset_folder(OWNER, DATASET)
    storage.write(f"{folder}/part-000001.00ff.parquet", b"half a load")
    storage.write(f"{folder}/catalog-00000002.00ff.json", storage.read(f"{_catalog(storage, folder)}"))

    assert sweep_datasets(storage, ledger) == 0
    assert sweep_datasets(storage, ledger, spare_s=-60) == 1
    assert sweep_datasets(storage, ledger, grace_s=-60, spare_s=-60) == 1
    assert texts(parquet.rows()) == {"a": ["one 0", "one 1"]}
    assert parquet.open().known(["a"]).keys() == {"a"}


def test_a_redis_that_lost_everything_finds_the_newest_version(
    sink: ParquetSink, storage: Storage, redis_client: "redis.Redis", parquet: Place
) -> None:
    load(sink, document("a"))
    load(sink, document("b"))
    folder = dataset_folder(OWNER, DATASET)
    storage.write(f"{folder}/catalog-00000009.00ff.json", _naming_a_lost_part(storage, folder))
    current = present(storage, Ledger(redis_client))
    redis_client.flushall()

    assert sweep_datasets(storage, Ledger(redis_client), grace_s=-60, spare_s=-60) == 0
    found = newest_catalog(storage, OWNER, DATASET)
    assert found is not None
    assert found[1] == current
    assert newest_catalog(storage, OWNER, "never-loaded") is None
    again = parquet.open()
    assert again.known(["a", "b"]).keys() == {"a", "b"}
    load(again, document("c"), by=stamp(2))
    assert texts(parquet.rows()).keys() == {"a", "b", "c"}


def test_a_version_that_came_too_late_leaves_no_catalog(sink: ParquetSink, storage: Storage, ledger: Ledger) -> None:
    mine = Dataset(storage, ledger, OWNER, DATASET)
    before = mine.present()
    load(sink, document("a"))

    assert not mine.move(before, [], 8)
    found = newest_catalog(storage, OWNER, DATASET)  # what a Redis that has lost everything would go on with
    assert found is not None
    assert found[1] == present(storage, ledger)
    assert [each.name for each in storage.stored(mine.folder) if "catalog" in each.name] == [found[0].catalog]


def test_the_index_follows_what_other_processes_load(storage: Storage, ledger: Ledger, parquet: Place) -> None:
    mine, other = parquet.open(), parquet.open()
    load(mine, document("a"), document("b"))
    assert other.known(["a", "b", "c"]).keys() == {"a", "b"}
    load(mine, document("a", "new"), document("c"), by=stamp(2))
    assert {name: each.page for name, each in other.known(["a", "b", "c"]).items()} == {"a": 0, "b": 0, "c": 0}
    assert other.known(["a"])["a"].content_hash == document("a", "new").content_hash
    other.keep_only(lambda: iter(["c"]), stamp(2), lambda: None)
    assert mine.known(["a", "b", "c"]).keys() == {"c"}


def test_a_few_datasets_are_remembered_at_once(
    storage: Storage, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MAX_INDEXES", 1)
    sinks = [ParquetSink(storage, ledger, OWNER, name) for name in ("one", "two", "one")]
    for number, sink in enumerate(sinks[:2]):
        load(sink, document(f"d{number}"))

    assert [sink.known(["d0", "d1"]).keys() for sink in sinks] == [{"d0"}, {"d1"}, {"d0"}]


def test_owners_and_names_do_not_meet(storage: Storage, ledger: Ledger) -> None:
    places = [
        ("alice", "a"),
        ("alice", "A"),
        ("bob", "a"),
        ("alice", "a.b"),
        ("alice", "a-b"),
        ("alice", ".."),
        ("alice", "."),
    ]
    sinks = [ParquetSink(storage, ledger, owner, dataset) for owner, dataset in places]
    for number, sink in enumerate(sinks):
        load(sink, document(f"d{number}"))

    everything = [f"d{number}" for number in range(len(places))]
    assert [list(sink.known(everything)) for sink in sinks] == [[name] for name in everything]
    assert len({dataset_folder(*place) for place in places}) == len(places)


def test_rows_of_nothing(storage: Storage, ledger: Ledger, tmp_path: Path) -> None:
    assert rows_of(storage, present(storage, ledger), tmp_path / "x") == []


def _catalog(storage: Storage, folder: str) -> str:
    return next(found.name for found in storage.stored(folder) if "catalog" in found.name)


def _naming_a_lost_part(storage: Storage, folder: str) -> bytes:
    newest = max(found.name for found in storage.stored(folder) if "catalog" in found.name)
    return storage.read(newest).replace(b".receipts", b".lost")
