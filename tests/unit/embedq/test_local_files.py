"""Local sources as documents."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.errors import BadInputError
from embedq.local_files import local_files


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    (folder / "b" / ".git").mkdir(parents=True)
    for name in ("z.md", "b/a.txt", ".hidden", "b/.git/config"):
        (folder / name).write_text("text")
    return folder


def test_a_folder_is_walked_without_what_is_hidden(handbook: Path) -> None:
    files = local_files([handbook])
    assert [file.id for file in files] == ["handbook/z.md", "handbook/b/a.txt"]


def test_a_file_is_one_document_however_it_is_named_from_one_folder(
    handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(handbook.parent)
    whole = {file.path: file.id for file in local_files([Path("handbook")])}
    for source in ("handbook/b", "handbook/z.md", "./handbook/b/a.txt", "handbook//b/"):
        for file in local_files([Path(source)]):
            assert file.id == whole[file.path]
    assert {file.path: file.id for file in local_files([handbook])} == whole, "as an absolute path of the folder"


def test_folders_of_one_name_are_other_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/docs", "b/docs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "readme.md").write_text(name)
    monkeypatch.chdir(tmp_path)
    assert [file.id for file in local_files([Path("a/docs"), Path("b/docs")])] == [
        "a/docs/readme.md",
        "b/docs/readme.md",
    ]
    monkeypatch.chdir(tmp_path / "a")
    assert [file.id for file in local_files([Path("../b/docs")])] == ["docs/readme.md"]


def test_a_link_to_a_folder_does_not_lead_in_circles(handbook: Path) -> None:
    (handbook / "b" / "loop").symlink_to(handbook)
    (handbook / "nowhere").symlink_to(handbook / "gone")
    assert len(local_files([handbook])) == 2


def test_two_documents_of_one_name_are_refused(handbook: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "handbook"
    other.mkdir(parents=True)
    (other / "z.md").write_text("else")
    with pytest.raises(BadInputError, match=r"would both be the document 'handbook/z\.md'"):
        local_files([handbook, other])
    assert len(local_files([handbook / "z.md", handbook])) == 3, "z.md and handbook/z.md are two"


def test_a_file_that_is_named_twice_comes_once(handbook: Path) -> None:
    assert local_files([handbook, handbook / "b" / ".."]) == local_files([handbook])


def test_a_pattern_that_matches_nothing_here_may_be_meant_for_the_server(handbook: Path) -> None:
    with pytest.raises(BadInputError, match="file:///srv/docs/"):
        local_files([handbook / "*.pdf"])


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_nothing_to_ingest_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match=r"does not exist|no files"):
        local_files([tmp_path / name])


def test_a_name_that_is_not_utf8_still_gives_an_id(tmp_path: Path) -> None:
    raw = bytes(tmp_path) + b"/caf\xe9.txt"
    with open(raw, "wb") as file:  # noqa: PTH123 - pathlib takes no bytes
        file.write(b"text")
    assert [file.id for file in local_files([tmp_path])] == [f"{tmp_path.name}/caf\N{REPLACEMENT CHARACTER}.txt"]


def test_a_folder_that_is_left_out_is_not_read(handbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> Iterator[os.DirEntry[str]]:
        read.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    (handbook / "c" / "b").mkdir(parents=True)
    assert [file.id for file in local_files([handbook], exclude=["b"])] == ["handbook/z.md"]
    assert read == [str(handbook), str(handbook / "c")]


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        (["*.md"], [], ["handbook/z.md"]),
        ([], ["*.md"], ["handbook/b/a.txt"]),
        ([], ["b"], ["handbook/z.md"]),
        (["b/*"], [], ["handbook/b/a.txt"]),
        (["handbook"], ["*/a.*"], ["handbook/z.md"]),
        (["*.md", "a.*"], [], ["handbook/z.md", "handbook/b/a.txt"]),
        (["*.MD"], [], []),
    ],
)
def test_some_of_them(include: list[str], exclude: list[str], left: list[str], handbook: Path) -> None:
    if left:
        assert [file.id for file in local_files([handbook], include, exclude)] == left
        return
    with pytest.raises(BadInputError, match="no files that --include and --exclude leave"):
        local_files([handbook], include, exclude)
