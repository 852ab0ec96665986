"""Which parts of a dataset become one."""

import dataclasses

import pytest

from tasks.documents.sinks.parquet.parquet_sink import BESIDE, FULL, to_merge
from tasks.records.datasets import DatasetPart


def part(number: int, rows: int, *, documents: int = 1, size_bytes: int = 0) -> DatasetPart:
    return DatasetPart(number, f"p{number}", f"r{number}", rows, documents, size_bytes)


def one_of(parts: list[DatasetPart], number: int) -> DatasetPart:
    return part(number, sum(p.rows for p in parts), documents=sum(p.documents for p in parts))


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_dataset_of_many_small_loads_has_few_parts_and_rows_are_seldom_written_again(rows: int) -> None:
    parts: list[DatasetPart] = []
    loads, written = 20_000 // rows, 0
    for number in range(loads):
        parts.append(part(2 * number, rows))
        if merging := to_merge(parts):
            merged = one_of(merging, 2 * number + 1)
            assert len(merging) > 1
            assert merged.rows <= 2 * FULL
            parts = [each for each in parts if each not in merging] + [merged]
            written += merged.rows
        small = [each for each in parts if each.rows < FULL]
        assert len(small) <= 7 * BESIDE + 1

    total = sum(each.rows for each in parts)
    assert total == loads * rows
    assert len(parts) - len(small) <= total / FULL
    assert written <= 7 * total


@pytest.mark.parametrize("full", [{"rows": FULL}, {"rows": 1, "documents": FULL}, {"rows": 9, "size_bytes": 2**26}])
def test_full_parts_stay(full: dict[str, int]) -> None:
    assert to_merge([part(n, **full) for n in range(100)]) == []


def test_what_was_left_by_a_large_deletion_is_merged_bit_by_bit() -> None:
    parts = [part(n, 3000) for n in range(500)]
    merges = 0
    while merging := to_merge(parts):
        parts = [each for each in parts if each not in merging] + [one_of(merging, 1000 + merges)]
        merges += 1
    assert sum(each.rows for each in parts) == 1_500_000
    assert len(parts) < 1_500_000 / FULL + BESIDE


def test_parts_without_rows_are_merged_too() -> None:
    empty = [dataclasses.replace(part(n, 0), stored="") for n in range(BESIDE + 1)]
    assert to_merge(empty) == empty
