"""Ids and names of files."""

import pytest

from tasks.records.files import created_ms, file_id_from, file_id_of, new_file_id, stored_name


def test_a_fresh_id_says_when_it_was_made_and_sorts_by_it() -> None:
    ids = [new_file_id() for _ in range(100)]

    assert ids == sorted(ids)
    assert all(1_700_000_000_000 < (created_ms(one) or 0) < 10_000_000_000_000 for one in ids)


def test_an_id_can_be_made_again() -> None:
    first = file_id_from(1_900_000_000_000, "batch_x output")

    assert first == file_id_from(1_900_000_000_000, "batch_x output")
    assert first != file_id_from(1_900_000_000_000, "batch_x error")
    assert created_ms(first) == 1_900_000_000_000
    assert len(first) == len(new_file_id())


@pytest.mark.parametrize(
    "foreign", ["", "file-", "file-abc123", "task_x", f"file-{'0' * 32}", f"file-{'A' * 32}", "file-../x"]
)
def test_other_ids_are_told(foreign: str) -> None:
    assert created_ms(foreign) is None


def test_a_stored_name_leads_back_to_its_file() -> None:
    file_id = new_file_id()

    assert file_id_of(stored_name("ann", file_id)) == file_id
    assert stored_name("ann", file_id) == f"ann/{file_id}"
    assert file_id_of(f"ann/batch_{'0' * 32}/1.rows") == ""
