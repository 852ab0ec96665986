"""Rows by reference and parts: what is written is what is read."""

import secrets

import numpy as np
import numpy.typing as npt
import pytest

from tasks.errors import NotStored
from tasks.item import TextError, Vector
from tasks.storage.row_file import RowReference, read_rows, writing_rows
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, PartWriter, part_name, read_part

LINES = [b'{"a": 1}', b'{"text": "\xc3\xa4"}', b'{"b": 2}']
REFERENCE = RowReference("files/input", "batches/batch_1/index.0123", 0)


@pytest.fixture
def storage() -> Storage:
    storage = Storage.open(f"memory://{secrets.token_hex(4)}")
    with writing_rows(storage, REFERENCE.source, REFERENCE.index) as rows:
        for line in LINES:
            rows.add(line)
            rows.flush()
    return storage


@pytest.mark.parametrize(("first", "count", "lines"), [(0, 3, [0, 1, 2]), (1, 1, [1]), (1, 2, [1, 2]), (0, 0, [])])
def test_rows_are_lines(storage: Storage, first: int, count: int, lines: list[int]) -> None:
    assert read_rows(storage, REFERENCE, first, count) == [LINES[line] for line in lines]


def test_rows_that_are_not_there_are_not_stored(storage: Storage) -> None:
    with pytest.raises(NotStored):
        read_rows(storage, REFERENCE, 2, 2)
    storage.write(REFERENCE.source, b"\n".join(LINES)[:-1])
    with pytest.raises(NotStored):
        read_rows(storage, REFERENCE, 2, 1)
    storage.delete(REFERENCE.source)
    with pytest.raises(NotStored):
        read_rows(storage, REFERENCE, 0, 1)


def test_a_payload_tells_what_it_is() -> None:
    assert RowReference.from_payload(REFERENCE.to_payload()) == REFERENCE
    assert RowReference.from_payload(b'["a text"]') is None
    assert part_name(REFERENCE, "token").startswith("batches/batch_1/parts/")


def made(numbers: npt.NDArray[np.float32], tokens: int, *, truncated: bool = False) -> Vector:
    return Vector(numbers, tokens, truncated)


def test_a_part_gives_back_what_each_unit_wrote(storage: Storage) -> None:
    failed = Vector.failed(TextError("input_too_long", "too long"))
    rng = np.random.default_rng(7)
    units = [
        [made(rng.random(3, dtype=np.float32), 9, truncated=True), failed],
        [made(rng.random(5, dtype=np.float32), 4)],
        [made(rng.random(4, dtype=np.float32), n, truncated=n == 2) for n in range(3)],
        [failed, failed],
    ]
    with storage.writing("batches/batch_1/parts/a") as file:
        part = PartWriter("batches/batch_1/parts/a", file.write, "r1")
        references = [PartReference.from_json(part.add(rows).to_json()) for rows in units]
    assert {reference.revision for reference in references} == {"r1"}
    for reference, rows in zip(references, units, strict=True):
        for found, row in zip(read_part(storage, reference), rows, strict=True):
            np.testing.assert_array_equal(np.array(found.vector), np.array(row.vector))
            assert found[1:] == row[1:]
    with pytest.raises(NotStored):
        read_part(storage, PartReference("batches/batch_1/parts/a", references[1].at, references[1].size + 1))


@pytest.mark.parametrize("dimensions", [[4, 4], [4, 8]])
@pytest.mark.parametrize("change", [b"\0\0\0\0", None])
def test_a_part_with_more_numbers_or_fewer_is_damaged(
    storage: Storage, dimensions: list[int], change: bytes | None
) -> None:
    name = "batches/batch_1/parts/a"
    with storage.writing(name) as file:
        reference = PartWriter(name, file.write, "r1").add([made(np.ones(d, "<f4"), 1) for d in dimensions])
    data = storage.read(name)
    damaged = data[:-4] if change is None else data + change
    storage.write(name, damaged)
    with pytest.raises(NotStored):
        read_part(storage, PartReference(name, 0, len(damaged), reference.revision))
