"""The Parquet sink: versions are whole whatever dies, other programs read the parts, garbage goes."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tasks.documents.sinks.parquet.dataset_cleanup import sweep_datasets, unnamed_parts
from tasks.documents.sinks.parquet.parquet_sink import Dataset, ParquetSink
from tasks.documents.sinks.parquet.part import GROUP_BYTES, GROUP_ROWS
from tasks.documents.sinks.parquet.receipt_index import index_of
from tasks.documents.sinks.sink import Sink, Stamp
from tasks.documents.sinks.sink_kinds import SinkAccess, open_sink
from tasks.documents.sweep import sweep_litter
from tasks.errors import NotStored, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.records import datasets
from tasks.records.datasets import (
    CATALOGS,
    PARTS,
    catalog_folder,
    catalog_version,
    dataset_folder,
    datasets_of,
    delete_dataset,
)
from tasks.records.ingestion_operations import Move, create_ingestion, delete_ingestion, move_ingestion
from tasks.records.ingestions import IngestionStatus, NewIngestion, new_ingestion_id
from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage
from tests.heavy import duckdb, pl
from tests.integration.documents.sinks.failing_place import FailingPlace
from tests.integration.documents.sinks.loads import Place, document, load, stamp, texts
from tests.integration.documents.sinks.parquet_reading import DATASET, OWNER, download, present, rows_of
from tests.raises_code import raises_code
from worker_config.settings import Settings


@pytest.fixture
def sink(storage: Storage) -> ParquetSink:
    return ParquetSink(storage, OWNER, DATASET)


def replace_some(sink: ParquetSink) -> None:
    load(sink, document("a", "new", chunks=1), document("c", "new"), document("d"), by=stamp(2))


def delete_some(sink: ParquetSink) -> None:
    sink.keep_only(lambda: iter(["a"]), stamp(2), lambda: None)


@pytest.mark.parametrize("change", [replace_some, delete_some])
def test_whenever_a_writer_dies_readers_see_one_version(
    change: Callable[[ParquetSink], None], tmp_path: Path, storage: Storage, parquet: Place
) -> None:
    sink = parquet.open()
    load(sink, document("a", "old"), document("b", "old"))
    load(sink, document("c", "old"))
    before = parquet.rows()
    folder = LocalFolder(tmp_path / "storage")
    deaths = 0
    while parquet.rows() == before:
        place = FailingPlace(folder, deaths + 1)
        dying = ParquetSink(Storage(cast("LocalFolder", place)), OWNER, DATASET)
        with suppress(StorageUnavailable):
            change(dying)
        assert place.dead
        deaths += 1
    # Objects that a change writes: at least a part, its receipts and a catalog, each with two moments to die, of which
    # the last one is that between the version and the answer that it is there.
    assert deaths >= 6
    for _ in range(2):
        assert texts(parquet.rows()) == (
            {"a": ["new 0"], "b": ["old 0", "old 1"], "c": ["new 0", "new 1"], "d": ["one 0", "one 1"]}
            if change is replace_some
            else {"a": ["old 0", "old 1"]}
        )
        change(cast("ParquetSink", parquet.open()))  # by whoever takes its work over


def test_receipts_of_an_earlier_version_are_read(
    sink: ParquetSink, storage: Storage, ledger: Ledger, parquet: Place
) -> None:
    load(sink, document("a"), document("b"))
    catalog = present(storage)
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
    catalog = present(storage)
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

    catalog = present(storage)
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

    catalog = present(storage)
    assert catalog is not None
    (file,) = download(storage, catalog, tmp_path / "out")
    groups = pq.read_metadata(file)
    assert groups.num_row_groups == -(-GROUP_ROWS * 64_000 // GROUP_BYTES)


def test_a_replaced_part_can_be_read_for_a_while(sink: ParquetSink, storage: Storage, ledger: Ledger) -> None:
    load(sink, document("a", "old"), document("b", "old"))
    first = present(storage)
    load(sink, document("a", "new"), by=stamp(2))
    second = present(storage)
    assert first is not None
    assert second is not None

    (old,) = first.listed
    assert [part.number for part in second.listed] == [1, 2]  # a number never means two things
    assert second.find(old.name) == old
    assert sweep_datasets(storage) == 0
    assert storage.read(old.stored)

    assert sweep_datasets(storage, grace_s=-60) == 3  # the part, its receipts and the first catalog
    with pytest.raises(NotStored):
        storage.read(old.stored)
    assert second.find("part-000099.parquet") is None


def test_a_sweep_leaves_what_no_version_names(sink: ParquetSink, storage: Storage, parquet: Place) -> None:
    """A load may be writing it, also by the clock of another host."""
    load(sink, document("a"))
    half = f"{dataset_folder(OWNER, DATASET)}/part-000001.00ff.parquet"
    storage.write(half, b"half a load")
    aged(storage, 10 * 86_400)

    assert sweep_datasets(storage, grace_s=-60) == 0
    assert [part.name for part in unnamed_parts(storage)] == [half]
    assert texts(parquet.rows()) == {"a": ["one 0", "one 1"]}
    assert parquet.open().known(["a"]).keys() == {"a"}
    assert delete_dataset(storage, OWNER, DATASET)
    sweep_datasets(storage, grace_s=-60)
    assert list(storage.stored(dataset_folder(OWNER, DATASET))) == [], "what was deleted leaves nothing"


def test_a_dataset_outlives_its_redis(
    sink: ParquetSink, storage: Storage, redis_client: "redis.Redis", ledger: Ledger, parquet: Place
) -> None:
    """It goes back by a second, after a load that was acknowledged, or loses everything."""
    load(sink, document("a", "old"))
    aged(storage, 7200)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    load(sink, document("a", "new"), by=stamp(2))
    assert sweep_datasets(storage) == 0  # the old version was replaced just now, though it is hours old
    redis_client.flushall()
    for key, value in before.items():
        redis_client.restore(key, 0, cast("bytes", value))

    again = parquet.open()
    assert again.known(["a"])["a"].ingestion == stamp(2).ingestion
    load(again, document("b"), by=stamp(3))
    assert texts(parquet.rows()) == {"a": ["new 0", "new 1"], "b": ["one 0", "one 1"]}
    redis_client.flushall()
    assert sweep_datasets(storage, grace_s=-60) == 4, "what was replaced, by the word of the catalog"
    assert sweep_datasets(storage, grace_s=-60) == 0
    assert parquet.open().known(["a", "b"]).keys() == {"a", "b"}


def test_a_version_that_came_too_late_leaves_no_catalog(sink: ParquetSink, storage: Storage) -> None:
    mine = Dataset(storage, OWNER, DATASET)
    before = mine.present()
    load(sink, document("a"))

    assert not mine.move(before, [], 8, "")
    catalogs = list(storage.stored(catalog_folder(OWNER, DATASET)))
    assert [catalog_version(each.name) for each in catalogs] == [1]
    catalog = present(storage)
    assert catalog is not None
    assert len(catalog.parts) == 1


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_writer_that_stood_still_for_hours_comes_too_late(
    *,
    first: bool,
    deleted: bool,
    between: bool,
    sink: ParquetSink,
    storage: Storage,
    ledger: Ledger,
    parquet: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number after its version has been given, and was free again when the sweep had removed it."""
    if not first:
        load(sink, document("a"))
    mine = Dataset(storage, OWNER, DATASET)
    before = mine.present()

    def hours() -> None:
        load(sink, document("b"))
        load(sink, document("c"))
        if deleted:
            assert delete_dataset(storage, OWNER, DATASET)
            while any(storage.stored(catalog_folder(OWNER, DATASET))):
                assert sweep_datasets(storage, grace_s=-60)
            load(sink, document("d"))
            load(sink, document("e"))
        sweep_datasets(storage, grace_s=-60)

    def create(self: Storage, name: str, data: bytes) -> bool:
        monkeypatch.undo()
        hours()
        return real(self, name, data)

    real = Storage.create
    if between:
        monkeypatch.setattr(Storage, "create", create)
    else:
        hours()

    assert not mine.move(before, [], 8, "")
    rows = parquet.rows()
    assert texts(rows).keys() >= ({"d", "e"} if deleted else {"b", "c"})
    load(parquet.open(), document("f"))
    assert len(parquet.rows()) == len(rows) + 2


def test_a_dataset_that_was_deleted_is_gone_at_once_and_its_objects_after_the_grace(
    sink: ParquetSink, storage: Storage, ledger: Ledger, parquet: Place
) -> None:
    load(sink, document("a"))
    load(sink, document("b"))
    first = present(storage)
    assert first is not None
    part = first.listed[0]

    assert delete_dataset(storage, OWNER, DATASET)
    assert not delete_dataset(storage, OWNER, DATASET)
    assert parquet.rows() == []
    assert datasets.present(storage, OWNER, DATASET).catalog.find(part.name) is None
    assert parquet.open().known(["a"]) == {}
    assert sweep_datasets(storage) == 0
    load(parquet.open(), document("c"))  # another one under the same name
    second = present(storage)
    assert second is not None
    assert second.id != first.id
    assert first.find(second.listed[0].name) is None
    assert second.find(part.name) is None, "what was deleted stays so"
    load(parquet.open(), document("d"))
    third = present(storage)
    assert third is not None
    assert third.find(part.name) is None

    assert delete_dataset(storage, OWNER, DATASET)
    sweep_datasets(storage, grace_s=-60)
    sweep_datasets(storage, grace_s=-60)
    assert list(storage.stored(dataset_folder(OWNER, DATASET))) == []
    assert list(storage.stored(catalog_folder(OWNER, DATASET))) == []


def test_what_a_host_whose_clock_is_ahead_has_deleted_stays_so(
    sink: ParquetSink, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(sink, document("a"))
    (part,) = datasets.present(storage, OWNER, DATASET).catalog.listed
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 60 * 10**9)
    assert delete_dataset(storage, OWNER, DATASET)
    monkeypatch.undo()
    load(sink, document("b"))
    assert datasets.present(storage, OWNER, DATASET).catalog.find(part.name) is None


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("looked", ["prepare", "known", "load"])
def test_a_dataset_that_is_deleted_under_an_ingestion_does_not_come_back_half(
    *, looked: str, again: bool, storage: Storage
) -> None:
    def opened(by: Stamp) -> Sink:
        spec = {"type": "parquet", "dataset": DATASET}
        return open_sink(spec, SinkAccess(OWNER, by.ingestion, storage, Settings()))

    first, second = stamp(1), stamp(2)
    if looked != "load":
        load(opened(first), document("a"), by=first)
    if looked == "prepare":
        opened(second).prepare(second, lambda: None)
    elif looked == "known":
        assert opened(second).known(["a"])
    else:
        load(opened(second), document("a"), by=second)
    assert delete_dataset(storage, OWNER, DATASET)
    if again:
        load(opened(stamp(3)), document("c"), by=stamp(3))

    for _ in range(2):
        with raises_code("dataset_deleted"):
            load(opened(second), document("b"), by=second)
        with raises_code("dataset_deleted"):
            opened(second).keep_only(lambda: iter(["a"]), second, lambda: None)
    assert opened(stamp(4)).known(["a", "b", "c"]).keys() == ({"c"} if again else set())
    load(opened(stamp(4)), document("b"), by=stamp(4))


def test_one_dataset_that_cannot_be_read_is_no_other_ones_trouble(
    storage: Storage, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        load(ParquetSink(storage, OWNER, name), document("a", name))
        load(ParquetSink(storage, OWNER, name), document("a", "new"), by=stamp(2))
    storage.write(f"{catalog_folder(OWNER, 'b')}/00000003.json", b"damaged")

    assert sweep_datasets(storage, grace_s=-60) == 6  # of two, each a part, its receipts and a catalog
    assert "cannot be read" in caplog.text


def test_the_dataset_of_one_ingestion_goes_with_its_record(storage: Storage, ledger: Ledger) -> None:
    kept, gone, taken_over = new_ingestion_id(), new_ingestion_id(), new_ingestion_id()
    for name in (kept, gone, taken_over):
        ledger.run(create_ingestion(NewIngestion(name, OWNER, {"model": "m"}, 60_000)))
        load(ParquetSink(storage, OWNER, name, anonymous=True), document("a"))
    load(ParquetSink(storage, OWNER, taken_over), document("b"))  # somebody has named it
    load(ParquetSink(storage, OWNER, taken_over, anonymous=True), document("c"))
    load(ParquetSink(storage, OWNER, DATASET), document("a"))
    for name in (gone, taken_over):
        ledger.run(move_ingestion(name, Move([IngestionStatus.QUEUED], to=IngestionStatus.CANCELLED)))
        ledger.run(delete_ingestion(name))

    assert sweep_litter(storage, ledger) == 0  # Redis may go back to before the deletion
    assert {each.dataset for each in datasets_of(storage, OWNER)} == {kept, gone, taken_over, DATASET}
    ledger.clock_offset_ms = 61_000
    assert sweep_litter(storage, ledger) == 2
    assert {each.dataset for each in datasets_of(storage, OWNER)} == {kept, taken_over, DATASET}
    sweep_datasets(storage, grace_s=-60)
    sweep_datasets(storage, grace_s=-60)
    assert list(storage.stored(dataset_folder(OWNER, gone))) == []


def test_the_index_follows_what_other_processes_load(storage: Storage, ledger: Ledger, parquet: Place) -> None:
    mine, other = parquet.open(), parquet.open()
    load(mine, document("a"), document("b"))
    assert other.known(["a", "b", "c"]).keys() == {"a", "b"}
    load(mine, document("a", "new"), document("c"), by=stamp(2))
    assert {name: each.page for name, each in other.known(["a", "b", "c"]).items()} == {"a": 0, "b": 0, "c": 0}
    assert other.known(["a"])["a"].content_hash == document("a", "new").content_hash
    other.keep_only(lambda: iter(["c"]), stamp(2), lambda: None)
    assert mine.known(["a", "b", "c"]).keys() == {"c"}


def test_a_few_datasets_are_remembered_at_once(storage: Storage, ledger: Ledger) -> None:
    def alone(name: str) -> ParquetSink:
        sink = ParquetSink(storage, OWNER, name)
        index_of(storage, dataset_folder(OWNER, name), max_indexes=1)  # forgets those of the others
        return sink

    sinks = [alone(name) for name in ("one", "two", "one")]
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
    sinks = [ParquetSink(storage, owner, dataset) for owner, dataset in places]
    for number, sink in enumerate(sinks):
        load(sink, document(f"d{number}"))

    everything = [f"d{number}" for number in range(len(places))]
    assert [list(sink.known(everything)) for sink in sinks] == [[name] for name in everything]
    assert len({dataset_folder(*place) for place in places}) == len(places)


def test_rows_of_nothing(storage: Storage, ledger: Ledger, tmp_path: Path) -> None:
    assert rows_of(storage, present(storage), tmp_path / "x") == []


def aged(storage: Storage, seconds: float) -> None:
    """Everything of datasets was written so long ago."""
    for folder in (PARTS, CATALOGS):
        for found in storage.stored(folder):
            path = f"{storage._place._root}/{found.name}"  # type: ignore[union-attr]
            os.utime(path, (found.modified_ms / 1000 - seconds,) * 2)
