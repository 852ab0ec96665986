"""A folder that follows a dataset."""

import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from embedq.errors import BadInputError, NotFoundError
from embedq.output_folder import NOTES, Lists, OutputFolder

ONE, TWO, THREE = (f"part-00000{n}.parquet" for n in (1, 2, 3))


def listing(*lists: list[str], dataset_id: str | None = "an id") -> Lists:
    """The lists of the output one after the other, the last one for ever."""
    left = list(lists)

    async def listed() -> dict[str, Any]:
        return listed_as(dataset_id, left.pop(0) if len(left) > 1 else left[0])

    return listed


def listed_as(dataset_id: str | None, names: list[str]) -> dict[str, Any]:
    return {"dataset_id": dataset_id, "data": [{"name": name} for name in names]}


async def fetch(name: str, into: BinaryIO) -> None:
    into.write(f"{name[7:11]}PAR1".encode())


async def refuse(name: str, _: BinaryIO) -> None:
    raise AssertionError(f"{name} was fetched again")


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text().removesuffix("PAR1") for file in folder.iterdir() if file.name != NOTES}


async def test_it_holds_the_parts_and_later_the_changed_ones_only(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, "http://a")
    assert await folder.follow(listing([ONE, TWO]), fetch) == (2, 2)
    assert contents(tmp_path) == {ONE: "0001", TWO: "0002"}
    again = OutputFolder(tmp_path, "http://a")
    assert again.dataset == folder.dataset
    assert await again.follow(listing([ONE, TWO]), refuse) == (2, 0)
    assert await again.follow(listing([TWO, THREE]), fetch) == (2, 1)
    assert contents(tmp_path) == {TWO: "0002", THREE: "0003"}


async def test_a_part_that_was_cut_short_is_fetched_again(tmp_path: Path) -> None:
    await OutputFolder(tmp_path, "http://a").follow(listing([ONE, TWO]), fetch)
    (tmp_path / ONE).write_text("x")
    assert await OutputFolder(tmp_path, "http://a").follow(listing([ONE, TWO]), fetch) == (2, 1)


@pytest.mark.parametrize("other", ["another id", None])
async def test_another_dataset_of_this_name_deletes_nothing(tmp_path: Path, other: str | None) -> None:
    await OutputFolder(tmp_path, "http://a").follow(listing([ONE, TWO]), fetch)
    notes = (tmp_path / NOTES).read_bytes()
    folder = OutputFolder(tmp_path, "http://b")
    folder.claim()
    with pytest.raises(BadInputError, match=r"holds 2 Parquet files .* Nothing in .* was changed.*--url.*--out"):
        await folder.follow(listing([THREE], dataset_id=other), refuse)
    with pytest.raises(BadInputError):
        folder.require_same(other)
    folder.require_same("an id")
    assert contents(tmp_path) == {ONE: "0001", TWO: "0002"}
    assert json.loads(notes)["parts"] == json.loads((tmp_path / NOTES).read_bytes())["parts"]


async def test_after_a_failure_the_folder_is_as_before(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, "http://a")
    await folder.follow(listing([ONE]), fetch)

    async def broken(name: str, into: BinaryIO) -> None:
        await fetch(name, into)
        if name == THREE:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await OutputFolder(tmp_path, "http://a").follow(listing([TWO, THREE]), broken)
    assert contents(tmp_path) == {ONE: "0001"}


async def test_a_part_that_changes_is_listed_anew_and_what_was_fetched_is_kept(tmp_path: Path) -> None:
    asked: list[str] = []

    async def changing(name: str, into: BinaryIO) -> None:
        asked.append(name)
        if name == TWO:
            raise NotFoundError("Changed.", code="part_changed")
        await fetch(name, into)

    folder = OutputFolder(tmp_path, "http://a")
    assert await folder.follow(listing([ONE], [ONE, THREE]), fetch) == (1, 1)
    assert await folder.follow(listing([THREE, TWO], [ONE, THREE]), changing) == (2, 1)
    assert contents(tmp_path) == {ONE: "0001", THREE: "0003"}
    assert asked.count(THREE) == 1
    with pytest.raises(BadInputError, match="has changed 20 times"):
        await folder.follow(listing([ONE, TWO]), changing)
    assert contents(tmp_path) == {ONE: "0001", THREE: "0003"}


async def test_parts_of_a_dataset_that_was_made_anew_meanwhile_are_fetched_again(tmp_path: Path) -> None:
    ids = ["an id", "another id"]
    asked: list[str] = []

    async def lists() -> dict[str, Any]:
        return listed_as(ids.pop(0) if len(ids) > 1 else ids[0], [ONE])

    async def noted(name: str, into: BinaryIO) -> None:
        asked.append(name)
        await fetch(name, into)

    assert await OutputFolder(tmp_path, "http://a").follow(lists, noted) == (1, 1)
    assert asked == [ONE, ONE]
    assert json.loads((tmp_path / NOTES).read_bytes())["dataset_id"] == "another id"


async def test_what_others_put_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("mine")
    await OutputFolder(tmp_path, "http://a").follow(listing([ONE]), fetch)
    await OutputFolder(tmp_path, "http://a").follow(listing([]), refuse)
    assert contents(tmp_path) == {"mine.parquet": "mine"}


def test_a_killed_run_leaves_the_name_of_its_dataset(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "new", "http://a")
    folder.claim()
    assert json.loads((tmp_path / "new" / NOTES).read_text())["dataset"] == folder.dataset
    assert OutputFolder(tmp_path / "new", "http://a").dataset == folder.dataset


@pytest.mark.parametrize("notes", ["", "[]", '{"parts": {}}', '{"parts": ["../x"]}', '{"parts": [7]}', "\xff"])
def test_damaged_notes_are_said(notes: str, tmp_path: Path) -> None:
    (tmp_path / NOTES).write_text(notes, encoding="latin-1")
    with pytest.raises(BadInputError, match="delete it"):
        OutputFolder(tmp_path, "http://a")


def test_a_folder_of_another_dataset_is_left_alone(tmp_path: Path) -> None:
    OutputFolder(tmp_path, "http://a", "mine").claim()
    with pytest.raises(BadInputError, match="holds the dataset 'mine', not 'yours'"):
        OutputFolder(tmp_path, "http://a", "yours")
    assert OutputFolder(tmp_path, "http://a", "mine").dataset == "mine"


@pytest.mark.parametrize("name", ["../x.parquet", ".hidden", "a/b.parquet"])
async def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="leads out"):
        await OutputFolder(tmp_path, "http://a").follow(listing([name]), refuse)
