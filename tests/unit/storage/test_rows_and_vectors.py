"""Rows by reference and vectors: what is written is what is read."""

import secrets

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from tasks.errors import NotStored
from tasks.ingestion.rows_writer import new_pieces, writing_rows
from tasks.item import TextError, Vector
from tasks.storage.rows_file import RowsReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference, VectorsWriter, read_vectors

LINES = [b'{"a": 1}', b'{"text": "\xc3\xa4"}', b'{"b": 2}', b'{"c": 3}']
ROWS = "anonymous/batch_1/1.rows.0123"
VECTORS = "anonymous/batch_1/vectors.a"


@pytest.fixture
def storage() -> Storage:
    return Storage.open(f"memory://{secrets.token_hex(4)}")


@pytest.fixture
def references(storage: Storage) -> list[RowsReference]:
    """Of the two pieces of the rows, which have three rows and one."""
    with writing_rows(storage, ROWS) as rows:
        for line in LINES:
            rows.add(line, 10, 30)
            rows.flush()
    pieces = new_pieces(ROWS, orjson.loads(orjson.dumps(rows.pieces)))
    assert (rows.rows, [(piece.items, piece.cost) for piece in pieces]) == (4, [(3, 30), (1, 10)])
    found = [RowsReference.from_payload(piece.payload) for piece in pieces]
    return [reference for reference in found if reference]


@pytest.mark.parametrize(
    ("part", "lines"), [((0, 0, 3), [0, 1, 2]), ((0, 1, 1), [1]), ((0, 1, 2), [1, 2]), ((1, 0, 1), [3])]
)
def test_rows_are_lines(
    storage: Storage, references: list[RowsReference], part: tuple[int, int, int], lines: list[int]
) -> None:
    piece, offset, count = part
    assert read_rows(storage, references[piece], offset, count) == [LINES[line] for line in lines]


def test_rows_that_are_not_there_are_not_stored(storage: Storage, references: list[RowsReference]) -> None:
    storage.write(ROWS, b"\n".join(LINES)[:-1])
    with pytest.raises(NotStored):
        read_rows(storage, references[1], 0, 1)
    storage.delete(ROWS)
    with pytest.raises(NotStored):
        read_rows(storage, references[0], 0, 1)


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
    with storage.writing(VECTORS) as file:
        part = VectorsWriter(VECTORS, file.write, "r1")
        references = [VectorsReference.from_json(part.add(rows).to_json()) for rows in units]
    assert {reference.revision for reference in references} == {"r1"}
    for reference, rows in zip(references, units, strict=True):
        for found, row in zip(read_vectors(storage, reference), rows, strict=True):
            np.testing.assert_array_equal(np.array(found.vector), np.array(row.vector))
            assert found[1:] == row[1:]
    with pytest.raises(NotStored):
        read_vectors(storage, VectorsReference(VECTORS, references[1].at, references[1].size + 1))


@pytest.mark.parametrize("dimensions", [[4, 4], [4, 8]])
@pytest.mark.parametrize("change", [b"\0\0\0\0", None])
def test_a_part_with_more_numbers_or_fewer_is_damaged(
    storage: Storage, dimensions: list[int], change: bytes | None
) -> None:
    name = VECTORS
    with storage.writing(name) as file:
        reference = VectorsWriter(name, file.write, "r1").add([made(np.ones(d, "<f4"), 1) for d in dimensions])
    data = storage.read(name)
    damaged = data[:-4] if change is None else data + change
    storage.write(name, damaged)
    with pytest.raises(NotStored):
        read_vectors(storage, VectorsReference(name, 0, len(damaged), reference.revision))
