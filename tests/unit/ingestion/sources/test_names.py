"""Names of files: literal ones with wildcards in them, accents, and characters that nobody sees."""

import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import SourceFailed
from tasks.ingestion.sources.open_source import open_source
from tests.unit.ingestion.sources.reading import below, codes, contents, documents, faults, tree, uploaded

FILES = (
    "report[1].md",
    "report1.md",
    "[2024]/a.md",
    "[2024]/b.txt",
    "2/a.md",
    "100%.md",
    "a b.md",
    "a%20b.md",
    "q?.md",
)


def ids(root: Path, *urls: str) -> list[str]:
    return [ref.id.partition("/")[2] for ref in documents({"urls": [*urls]}, below(root))]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("{}/report[1].md", ["report[1].md"]),
        ("file://{}/report[1].md", ["report[1].md"]),
        ("file://{}/report%5B1%5D.md", ["report[1].md"]),
        ("{}/report[12].md", ["report1.md"]),
        ("{}/report?.md", ["report1.md"]),
        ("{}/[2024]/a.md", ["[2024]/a.md"]),
        ("{}/[2024]", ["[2024]/a.md", "[2024]/b.txt"]),
        ("{}/[2024]/**", ["[2024]/a.md", "[2024]/b.txt"]),
        ("{}/[2024]/*.md", ["[2024]/a.md"]),
        ("file://{}/%5B2024%5D/*.md", ["[2024]/a.md"]),
        ("{}/[23]/a.md", ["2/a.md"]),
        ("file://{}/*%5B1%5D.md", ["report[1].md"]),
        ("{}/100%.md", ["100%.md"]),
        ("file://{}/100%.md", ["100%.md"]),
        ("file://{}/100%25.md", ["100%.md"]),
        ("file://{}/a%20b.md", ["a%20b.md"]),
        ("{}/a b.md", ["a b.md"]),
        ("{}/q?.md", ["q?.md"]),
        ("file://{}/q%3F.md", ["q?.md"]),
    ],
)
def test_a_name_that_exists_is_itself(tmp_path: Path, url: str, expected: list[str]) -> None:
    root = tree(tmp_path / "root", *FILES)
    assert ids(root, url.format(root)) == expected


@pytest.mark.parametrize(
    "url", ["*.pdf", "[357]/a.md", "report[23].md", "nothing.md", "[2024]/nothing/**", "2/**/*.txt"]
)
def test_a_url_that_matches_nothing_fails_and_others_go_on(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", *FILES)
    with pytest.raises(SourceFailed, match=r"matches no file|no such file"):
        ids(root, f"{root}/{url}")
    spec = {"urls": [f"{root}/{url}", f"{root}/report1.md"]}
    assert [ref.id for ref in documents(spec, below(root, files=1))] == ["root/report1.md"]
    [fault] = faults(spec, below(root, files=1))
    assert (fault.error and fault.error.code) == "no_match"
    assert fault.ref.part.startswith(f"file://{root}")


def test_an_empty_folder_is_no_fault(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a.md")
    (root / "empty").mkdir()
    assert ids(root, f"{root}/empty") == []


@pytest.mark.parametrize(
    "url", ["file://{}/%2e%2e/x", "file://{}/%2Egit/a", "file://{}/a%00b", "file://{}/%252e%252e/x"]
)
def test_escapes_lead_nowhere_else(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", ".git/a")
    tree(tmp_path, "x")
    with pytest.raises(SourceFailed):
        ids(root, url.format(root))


def test_escaped_slashes_are_no_way_out(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/b.md")
    tree(tmp_path, "secret.md")
    for url in ("file://{}/a%2Fb.md", "file://{}/a/..%2F..%2Fsecret.md", "file://{}/a%2F..%2F..%2Fsecret.md"):
        try:
            found = ids(root, url.format(root))
        except SourceFailed:
            continue
        assert found == ["a/b.md"]


def test_a_name_with_accents_is_one_document_however_it_is_written(tmp_path: Path) -> None:
    name = "Übersicht.md"
    composed, apart = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    for number, written in enumerate((composed, apart)):
        root = tree(tmp_path / str(number) / "root", written)
        [found] = contents({"urls": [str(root)]}, below(root))
        assert found.ref.id == f"root/{composed}"
        assert found.data == written.encode()
    root = tree(tmp_path / "both" / "root", composed, apart)
    assert [ref.id for ref in documents({"urls": [str(root)]}, below(root))] == [f"root/{composed}"]
    assert codes({"urls": [str(root)]}, below(root)) == {f"root/{composed}": "duplicate_document_id"}


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\n", "\x1b", "\x85", "\u2028"])
def test_characters_that_nobody_sees_are_escaped(tmp_path: Path, letter: str) -> None:
    root = tree(tmp_path / "root", f"a{letter}b.md", f"f{letter}/c.jsonl")
    (root / f"f{letter}" / "c.jsonl").write_text('{"text": "x"}')
    found = contents({"urls": [str(root)]}, below(root))
    assert [one.data or one.text for one in found] == [f"a{letter}b.md".encode(), "x"]
    for one in found:
        assert letter not in one.ref.id + one.ref.uri + one.ref.name
    access = uploaded(tmp_path, {"x": b"x"})
    named = replace(access, files={"x": access.files["x"].model_copy(update={"filename": f"a{letter}b.txt"})})
    [upload] = contents({"files": ["x"]}, named)
    assert upload.data == b"x"
    assert letter not in upload.ref.id + upload.ref.uri


def test_a_file_that_has_become_a_folder_elsewhere_is_not_followed(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/b.md", "c.md")
    tree(tmp_path / "outside", "b.md")
    source = open_source({"urls": [str(root)]}, below(root, files=1))
    first = source.page(None)
    (root / "a" / "b.md").unlink()
    (root / "a").rmdir()
    (root / "a").symlink_to(tmp_path / "outside")
    [one] = source.read(first.lines)
    assert (one.error and one.error.code) == "outside_roots"
