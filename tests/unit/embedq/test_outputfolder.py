"""A folder that follows a dataset."""

import json
from pathlib import Path
from typing import BinaryIO

import pytest

from embedq.collection import BadCollectionError
from embedq.ingestion import Part
from embedq.outputfolder import NOTES, OutputFolder

ONE, TWO, THREE = (Part(f"part-00000{n}.parquet", 4, f"e{n}") for n in (1, 2, 3))


async def fetch(name: str, into: BinaryIO) -> None:
    into.write(name[7:11].encode())


async def refuse(name: str, _: BinaryIO) -> None:
    raise AssertionError(f"{name} was fetched again")


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.name != NOTES}


async def test_it_holds_the_parts_and_later_the_changed_ones_only(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, "http://a")
    assert await folder.follow([ONE, TWO], fetch) == 2
    assert contents(tmp_path) == {ONE.name: "0001", TWO.name: "0002"}
    again = OutputFolder(tmp_path, "http://a")
    assert again.dataset == folder.dataset
    assert await again.follow([ONE, TWO], refuse) == 0
    assert await again.follow([TWO, THREE], fetch) == 1
    assert contents(tmp_path) == {TWO.name: "0002", THREE.name: "0003"}


async def test_a_part_that_was_cut_short_or_is_of_another_server_is_fetched_again(tmp_path: Path) -> None:
    await OutputFolder(tmp_path, "http://a").follow([ONE, TWO], fetch)
    (tmp_path / ONE.name).write_text("x")
    assert await OutputFolder(tmp_path, "http://a").follow([ONE, TWO], fetch) == 1
    elsewhere = OutputFolder(tmp_path, "http://b")
    elsewhere.claim()
    assert await OutputFolder(tmp_path, "http://b").follow([ONE], fetch) == 1
    assert contents(tmp_path) == {ONE.name: "0001"}


async def test_after_a_failure_the_folder_is_as_before(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, "http://a")
    await folder.follow([ONE], fetch)

    async def broken(name: str, into: BinaryIO) -> None:
        await fetch(name, into)
        if name == THREE.name:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await OutputFolder(tmp_path, "http://a").follow([TWO, THREE], broken)
    assert contents(tmp_path) == {ONE.name: "0001"}


async def test_what_others_put_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("mine")
    await OutputFolder(tmp_path, "http://a").follow([ONE], fetch)
    await OutputFolder(tmp_path, "http://a").follow([], refuse)
    assert contents(tmp_path) == {"mine.parquet": "mine"}


def test_a_killed_run_leaves_the_name_of_its_dataset(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path / "new", "http://a")
    folder.claim()
    assert json.loads((tmp_path / "new" / NOTES).read_text())["dataset"] == folder.dataset
    assert OutputFolder(tmp_path / "new", "http://a").dataset == folder.dataset


@pytest.mark.parametrize("notes", ["", "[]", '{"parts": []}', "\xff"])
def test_damaged_notes_are_said(notes: str, tmp_path: Path) -> None:
    (tmp_path / NOTES).write_text(notes, encoding="latin-1")
    with pytest.raises(BadCollectionError, match="delete it"):
        OutputFolder(tmp_path, "http://a")


def test_a_folder_of_another_dataset_is_left_alone(tmp_path: Path) -> None:
    OutputFolder(tmp_path, "http://a", "mine").claim()
    with pytest.raises(BadCollectionError, match="holds the dataset 'mine', not 'yours'"):
        OutputFolder(tmp_path, "http://a", "yours")
    assert OutputFolder(tmp_path, "http://a", "mine").dataset == "mine"
