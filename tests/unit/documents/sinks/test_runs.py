"""Sorted records outside memory, compared with a dictionary."""

import numpy as np
import pytest

from tasks.documents.sorted_runs import Keys, Runs, keys_of


def numbers(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, np.int64)


def found(records: Runs, keys: Keys) -> dict[int, int]:
    return dict(records.find(keys))


def test_nothing_is_found_in_nothing() -> None:
    records = Runs(np.int64)
    records.add(keys_of([]), numbers())
    records.compact()

    assert found(records, keys_of(["a"])) == {}
    assert records.contains(keys_of([])).tolist() == []


@pytest.mark.parametrize("bucket", [4, 100, 10_000])
def test_what_was_added_is_found_however_runs_were_merged(bucket: int) -> None:
    records = Runs(np.int64, bucket=bucket)
    names = [f"d{i}" for i in range(1500)]
    for first in range(0, 1500, 47):
        some = names[first : first + 47]
        records.add(keys_of(some), np.arange(first, first + len(some)))

    asked = [*reversed(names), "never"]
    expected = {at: 1499 - at for at in range(1500)}
    assert found(records, keys_of(asked)) == expected
    records.compact()
    assert found(records, keys_of(asked)) == expected
    assert records.contains(keys_of(["never", "d7", "d7"])).tolist() == [False, True, True]


def test_what_is_not_kept_is_not_found_and_goes_when_runs_are_merged() -> None:
    dead: set[int] = set()
    records = Runs(np.int64, lambda values: ~np.isin(values, list(dead)))
    for version in range(3):
        records.add(keys_of(["a", "b"]), numbers(10 * version, 10 * version + 1))
        dead |= {10 * version, 10 * version + 1} if version < 2 else {21}

    assert found(records, keys_of(["b", "a"])) == {1: 20}
    records.compact()
    assert len(records) == 1
    dead.add(20)
    records.compact()
    assert len(records) == 0


def test_keys_whose_first_halves_are_the_same() -> None:
    records = Runs(np.int64)
    keys = np.array([[7, second] for second in range(5)] + [[2**64 - 1, 0], [0, 0]], np.uint64)
    records.add(keys, np.arange(len(keys)))

    assert found(records, keys[::-1]) == {at: 6 - at for at in range(7)}
    assert not records.contains(np.array([[7, 9], [2**64 - 1, 1], [8, 0]], np.uint64)).any()
