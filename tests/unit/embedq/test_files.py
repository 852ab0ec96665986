"""Local sources as documents, texts from files, and folders of texts and vectors."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from embedq.errors import BadInputError, EmbedqClientError
from embedq.local_files import local_files
from embedq.text_files import TEXTS, VECTORS, Record, read_records, vector_folder


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


# Texts.


BAD: list[tuple[bytes, str]] = [
    (b"{", "not JSON"),
    (b'"text"', "must be an object"),
    (b"{}", "needs a non-empty string"),
    (b'{"text": ""}', "needs a non-empty string"),
    (b'{"text": ["a"]}', "needs a non-empty string"),
    (b'{"text": null, "input": "b"}', "needs a non-empty string"),
    (b'{"text": "a", "id": true}', '"id" must be'),
    (b'{"text": "a", "id": {}}', '"id" must be'),
    (b"[" * 100_000, "not JSON"),
    (b'{"text": "\xff"}', "not UTF-8 (byte 11)"),
]


def records(*texts: str) -> list[Record]:
    return [Record(line, text) for line, text in enumerate(texts, start=1)]


def test_lines_and_json_lines() -> None:
    raw = [b"\xef\xbb\xbffirst\r\n", b"\n", b"  indented \n", b"\t\n", "Ä{}".encode()]
    assert list(read_records(raw)) == [Record(1, "first"), Record(3, "  indented "), Record(5, "Ä{}")]
    raw = [b'{"text": "a", "id": "x"}\n', b"\n", b'{"input": "b", "id": 7, "more": 1}\n', b'{"text":"c"}']
    assert list(read_records(raw, jsonl=True)) == [Record(1, "a", "x"), Record(3, "b", 7), Record(4, "c")]


@pytest.mark.parametrize(("line", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        list(read_records([b'{"text": "fine"}\n', line], jsonl=True))
    assert str(raised.value).startswith("line 2: ")
    assert message in str(raised.value)


def test_a_folder_has_a_row_for_each_text_and_a_failure_leaves_the_older_one_alone(tmp_path: Path) -> None:
    folder, nothing = tmp_path / "made" / "here", np.empty((2, 0), dtype=np.float32)
    with vector_folder(folder) as add:
        add(records("a", "b"), nothing, {1: {"code": "input_too_long", "message": "Too long."}})
        add([Record(9, "c\ud800", "id-9")], np.array([[1, 2, 3]], dtype=np.float32), {})
        add(records("d", "e"), nothing, {})
        add([], np.ones((120_000, 3), dtype=np.float32), {})
    with pytest.raises(EmbedqClientError, match="the model has changed"), vector_folder(folder) as add:  # noqa: PT012
        add(records("new"), np.ones((1, 2), dtype=np.float32), {})
        add(records("new"), np.ones((1, 3), dtype=np.float32), {})
    assert {path.name for path in folder.iterdir()} == {VECTORS, TEXTS}
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    assert (vectors.dtype, vectors.shape) == (np.float32, (120_005, 3))
    assert np.isnan(vectors[[0, 1, 3, 4]]).all()
    np.testing.assert_array_equal(vectors[2], [1, 2, 3])
    texts = [json.loads(line) for line in (folder / TEXTS).read_bytes().splitlines()]
    assert texts[1:3] == [
        {"row": 1, "line": 2, "text": "b", "error": {"code": "input_too_long", "message": "Too long."}},
        {"row": 2, "line": 9, "text": "c\ud800", "id": "id-9"},
    ]
