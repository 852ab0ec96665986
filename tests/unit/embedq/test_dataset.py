"""Parquet parts as one dataset."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedq.errors import BadInputError
from embedq.vector_search import ParquetParts, parts_in


def write_part(
    path: Path, vectors: Sequence[Sequence[float]] | npt.NDArray[np.float64], *, group_rows: int = 1000
) -> Path:
    width = len(vectors[0])
    flat = pa.array(np.asarray(vectors, dtype=np.float32).ravel())
    names = [f"{path.stem}-{n}" for n in range(len(vectors))]
    columns = {
        "doc_id": pa.array(names),
        "headings": pa.array([["Top", name] for name in names]),
        "embedding": pa.FixedSizeListArray.from_arrays(flat, width),
    }
    pq.write_table(pa.table(columns), path, row_group_size=group_rows)
    return path


def test_rows_of_all_parts_are_ranked_as_one(tmp_path: Path) -> None:
    parts = [
        write_part(tmp_path / "a.parquet", [[1, 0], [0, 1], [1, 1]], group_rows=1),
        write_part(tmp_path / "b.parquet", [[2, 0.1], [-1, 0]], group_rows=1),
    ]
    rows = ParquetParts(parts).nearest(np.array([1, 0]), 3)
    assert [row.fields["doc_id"] for row in rows] == ["a-0", "b-0", "a-2"]
    assert rows[0].score == pytest.approx(1)
    assert rows[2].fields == {"doc_id": "a-2", "headings": ["Top", "a-2"]}


def test_pieces_and_row_groups_change_nothing(tmp_path: Path) -> None:
    vectors = np.random.default_rng(5).normal(size=(500, 8))
    whole = ParquetParts([write_part(tmp_path / "a.parquet", vectors)]).nearest(vectors[3], 20)
    part = write_part(tmp_path / "a.parquet", vectors, group_rows=33)
    pieces = ParquetParts([part], batch_rows=7).nearest(vectors[3], 20)
    assert [row.fields["doc_id"] for row in pieces] == [row.fields["doc_id"] for row in whole]
    assert whole[0].fields["doc_id"] == "a-3"


def test_a_query_of_another_length_is_of_another_model(tmp_path: Path) -> None:
    part = write_part(tmp_path / "a.parquet", [[1, 0]])
    with pytest.raises(ValueError, match="another model"):
        ParquetParts([part]).nearest(np.array([1, 0, 0]), 1)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 not really")
    with pytest.raises(BadInputError, match=r"broken\.parquet is not a Parquet file"):
        ParquetParts([broken]).nearest(np.array([1.0]), 1)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "else.parquet")
    with pytest.raises(BadInputError, match="no column 'embedding'"):
        ParquetParts([tmp_path / "else.parquet"]).nearest(np.array([1.0]), 1)
    pq.write_table(pa.table({"embedding": [[1.0], [1.0, 2.0]]}), tmp_path / "ragged.parquet")
    with pytest.raises(BadInputError, match="one fixed size"):
        ParquetParts([tmp_path / "ragged.parquet"]).nearest(np.array([1.0]), 1)


def test_the_parts_of_a_place(tmp_path: Path) -> None:
    (tmp_path / "part-000001.parquet").touch()
    (tmp_path / "part-000000.parquet").touch()
    (tmp_path / "_embedq.json").touch()
    assert [part.name for part in parts_in(tmp_path)] == ["part-000000.parquet", "part-000001.parquet"]
    assert parts_in(tmp_path / "part-000000.parquet") == [tmp_path / "part-000000.parquet"]
    assert parts_in(tmp_path / "_embedq.json") == []
    assert parts_in(tmp_path / "nowhere") == []


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(BadInputError, match=r"pip install pyarrow"):
        ParquetParts([])
