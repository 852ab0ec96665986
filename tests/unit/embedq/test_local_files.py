"""Local sources as documents."""

import os
from pathlib import Path

import pytest

from embedq.errors import BadInputError
from embedq.local_files import local_files


@pytest.fixture(autouse=True)
def handbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "handbook"
    (folder / "b" / ".git").mkdir(parents=True)
    for name in ("z.md", "b/a.txt", ".hidden", "b/.git/config"):
        (folder / name).write_text("text")
    (folder / "b" / "loop").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "gone")
    (tmp_path / "empty").mkdir()
    for name in ("a/docs", "b/docs"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "readme.md").write_text(name)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("sources", "ids"),
    [
        ("handbook", "handbook/z.md handbook/b/a.txt"),
        ("handbook/b", "handbook/b/a.txt"),
        ("./handbook/b/a.txt", "handbook/b/a.txt"),
        ("handbook//b/", "handbook/b/a.txt"),
        ("TMP/handbook", "handbook/z.md handbook/b/a.txt"),
        ("TMP/handbook/z.md", "z.md"),
        ("handbook/z.md handbook", "handbook/z.md handbook/b/a.txt"),
        ("a/docs b/docs", "a/docs/readme.md b/docs/readme.md"),
        ("handbook/../b/docs", "docs/readme.md"),
    ],
)
def test_a_document_has_one_name(sources: str, ids: str, tmp_path: Path) -> None:
    paths = [Path(source) for source in sources.replace("TMP", str(tmp_path)).split()]
    assert [file.id for file in local_files(paths)] == ids.split()


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ("a/../a/docs b/../b/docs", "would both be the document 'docs/readme.md'"),
        ("handbook/*.pdf", "file:///srv/docs/"),
        ("nowhere", "does not exist"),
        ("empty", "there are no files"),
    ],
)
def test_what_cannot_be_is_said(sources: str, said: str) -> None:
    with pytest.raises(BadInputError) as raised:
        local_files([Path(source) for source in sources.split()])
    assert said in str(raised.value)


def test_a_name_that_is_not_utf8_still_gives_an_id(tmp_path: Path) -> None:
    with open(bytes(tmp_path) + b"/empty/caf\xe9.txt", "wb"):  # noqa: PTH123 - pathlib takes no bytes
        pass
    assert [file.id for file in local_files([Path("empty")])] == ["empty/caf\N{REPLACEMENT CHARACTER}.txt"]


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        (["*.md"], [], ["handbook/z.md"]),
        ([], ["*.md"], ["handbook/b/a.txt"]),
        ([], ["b"], ["handbook/z.md"]),
        (["b/*"], [], ["handbook/b/a.txt"]),
        (["handbook"], ["*/a.*"], ["handbook/z.md"]),
        (["*.md", "a.*"], [], ["handbook/z.md", "handbook/b/a.txt"]),
    ],
)
def test_some_of_them(include: list[str], exclude: list[str], left: list[str], handbook: Path) -> None:
    assert [file.id for file in local_files([handbook], include, exclude)] == left
    with pytest.raises(BadInputError, match="no files that --include and --exclude leave"):
        local_files([handbook], ["*.MD"])


def test_a_folder_that_is_left_out_is_not_read(handbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir
    monkeypatch.setattr(
        os, "scandir", lambda path: scandir(path) if Path(path).name != "b" else pytest.fail("it was read")
    )
    assert [file.id for file in local_files([handbook], exclude=["b"])] == ["handbook/z.md"]
