"""Folders of the server: order, globs, links, and what is not let in."""

import dataclasses
import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import SourceFailed
from tasks.ingestion.sources.allowed_paths import document_id
from tasks.ingestion.sources.open_source import open_source
from tasks.records.documents import Document
from tests.unit.ingestion.sources.reading import (
    below,
    codes,
    contents,
    documents,
    faults,
    lines_of,
    pages,
    tree,
    uploaded,
)

SMALL = {"files": 2}


def ids(folder: Path, *urls: str, **sizes: int) -> list[str]:
    """Without the name of the root."""
    return [within(folder, ref.id) for ref in documents({"urls": [*urls]}, below(folder, **sizes))]


def within(folder: Path, document_id: str) -> str:
    root, _, path = document_id.partition("/")
    assert root == folder.name
    return path


FILES = ("b.md", "a/z.md", "a/b/c.txt", "a.md", "a/b.md", ".hidden.md", ".git/config", "c/d/e/f.md", "z.txt")


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("**", ["a.md", "a/b.md", "a/b/c.txt", "a/z.md", "b.md", "c/d/e/f.md", "z.txt"]),
        ("**/*.md", ["a.md", "a/b.md", "a/z.md", "b.md", "c/d/e/f.md"]),
        ("*.md", ["a.md", "b.md"]),
        ("*/*.md", ["a/b.md", "a/z.md"]),
        ("[ab].md", ["a.md", "b.md"]),
        ("a/**/*.txt", ["a/b/c.txt"]),
        ("?/**", ["a/b.md", "a/b/c.txt", "a/z.md", "c/d/e/f.md"]),
        ("**/d/**", ["c/d/e/f.md"]),
        ("", ["a.md", "a/b.md", "a/b/c.txt", "a/z.md", "b.md", "c/d/e/f.md", "z.txt"]),
        ("a", ["a/b.md", "a/b/c.txt", "a/z.md"]),
        ("a/", ["a/b.md", "a/b/c.txt", "a/z.md"]),
        ("a/z.md", ["a/z.md"]),
    ],
)
def test_globs(tmp_path: Path, glob: str, expected: list[str]) -> None:
    tree(tmp_path, *FILES)
    assert sorted(ids(tmp_path, f"{tmp_path}/{glob}", **SMALL)) == expected
    assert sorted(ids(tmp_path, f"file://{tmp_path}/{glob}", **SMALL)) == expected


@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        (["/data/docs"], "docs/a/b.md"),
        (["/data/docs/"], "docs/a/b.md"),
        (["/data/docs", "/srv", "/data/docs/a"], "docs/a/b.md"),
        (["/data/docs", "/srv/docs"], "file:///data/docs/a/b.md"),
        (["/data/docs", "s3://docs"], "file:///data/docs/a/b.md"),
        (["/"], "data/docs/a/b.md"),
    ],
)
def test_ids_of_two_roots_never_meet(roots: list[str], expected: str) -> None:
    assert document_id("file", "/data/docs/a/b.md", roots) == expected


NAMES = st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(files=st.integers(1, 5), folders=NAMES, names=NAMES)
def test_every_file_comes_once_whatever_the_sizes_of_pages_and_windows(
    tmp_path_factory: pytest.TempPathFactory, files: int, folders: set[str], names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    made = {f"{one}/{name}.txt" for one in folders for name in names} | {f"{name}.txt" for name in names}
    tree(folder, *made)
    found = pages({"urls": [f"{folder}/**"]}, below(folder, files=files))
    assert all(len(lines_of(one)) <= files for one in found)
    listed = [within(folder, ref.id) for one in found for ref in lines_of(one)]
    assert len(listed) == len(made)
    assert set(listed) == made


# ---- what is not let in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["/etc/passwd", "/root/**", "{root}/../**", "{root}x/**", "{root}/a/%2e%2e/b", "s3://bucket/**", "relative/**",
     "simplecache::file://{root}/a", "**", "", "/", "/*", "{root}*/**", "https://example.org/a", "{root}/\ud800"],
)  # fmt: skip
def test_what_is_not_below_the_roots_is_refused_whether_it_exists_or_not(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", "a.md")
    tree(tmp_path / "rootx", "secret")
    with pytest.raises(SourceFailed) as refused:
        documents({"urls": [url.format(root=root)]}, below(root))
    assert refused.value.param == "source.urls[0]"
    assert "EMBEDQ_INGEST_ROOTS" in refused.value.detail


def test_links_within_the_roots_are_followed_and_others_not(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/a.md")
    tree(tmp_path / "outside", "secret.md")
    (root / "in").symlink_to(root / "a")
    (root / "file.md").symlink_to(root / "a" / "a.md")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out.md").symlink_to(tmp_path / "outside" / "secret.md")
    (root / "out-nothing.md").symlink_to(tmp_path / "outside" / "nothing.md")
    (root / "dangling.md").symlink_to(root / "nothing.md")
    (root / "a" / "around").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    spec = {"urls": [f"{root}/**"]}
    assert [within(root, ref.id) for ref in documents(spec, below(root))] == ["a/a.md", "file.md"]
    assert {within(root, name): code for name, code in codes(spec, below(root)).items()} == {
        "in": "link_to_folder",
        "out": "outside_roots",
        "out.md": "outside_roots",
        "out-nothing.md": "outside_roots",
        "dangling.md": "gone",
        "a/around": "link_to_folder",
        "self": "symlink_loop",
    }
    with pytest.raises(SourceFailed, match="EMBEDQ_INGEST_ROOTS"):
        documents({"urls": [f"{root}/out/**"]}, below(root))


def test_pipes_and_sockets_are_passed_over(tmp_path: Path) -> None:
    tree(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")
    assert ids(tmp_path, f"{tmp_path}/**") == ["a.md"]
    assert codes({"urls": [f"{tmp_path}/**"]}, below(tmp_path)) == {}


def test_a_name_that_is_not_utf8_is_a_fault_and_others_go_on(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "z.md")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.md")).write_text("x")
    spec = {"urls": [f"{tmp_path}/**"]}
    access = below(tmp_path, files=1)
    assert [within(tmp_path, ref.id) for ref in documents(spec, access)] == ["a.md", "z.md"]
    assert codes(spec, access) == {f"{tmp_path.name}/m?.md": "invalid_name"}


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * 5000)
    tree(tmp_path, "small.txt")
    found = codes({"urls": [f"{tmp_path}/**"]}, below(tmp_path, limit=4999))
    assert found == {f"{tmp_path.name}/large.txt": "document_too_large"}


def test_what_happens_between_listing_and_reading(tmp_path: Path) -> None:
    tree(tmp_path / "root", "gone.md", "grown.md", "other.md", "moved.md", "folder.md")
    tree(tmp_path, "secret.md")
    root = tmp_path / "root"
    source = open_source({"urls": [f"{root}/**"]}, below(root, limit=1024))
    refs = lines_of(source.page(None))
    (root / "gone.md").unlink()
    (root / "grown.md").write_bytes(b"x" * 1025)
    (root / "other.md").write_text("another version")
    (root / "moved.md").unlink()
    (root / "moved.md").symlink_to(tmp_path / "secret.md")
    (root / "folder.md").unlink()
    (root / "folder.md").mkdir()
    found = {within(root, one.ref.id): one.error.code if one.error else one.data for one in source.read(refs)}
    assert found == {
        "gone.md": "gone",
        "grown.md": "document_too_large",
        "other.md": b"another version",
        "moved.md": "outside_roots",
        "folder.md": "unreadable",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_fault(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "closed/b.md", "shut.md")
    (tmp_path / "closed").chmod(0)
    (tmp_path / "shut.md").chmod(0)
    spec = {"urls": [f"{tmp_path}/**"]}
    try:
        assert codes(spec, below(tmp_path)) == {"closed/": "unreadable"}
        assert [within(tmp_path, one.ref.id) for one in contents(spec, below(tmp_path)) if one.error] == ["shut.md"]
    finally:
        (tmp_path / "closed").chmod(0o700)


@pytest.mark.parametrize(
    "url", [".git/config", ".git/**", ".git", "a/.ssh/id_rsa", ".hidden.md", ".git/./config", "%2egit/config"]
)
def test_what_is_hidden_is_not_read_by_its_name_either(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", *FILES, "a/.ssh/id_rsa")
    with pytest.raises(SourceFailed):
        ids(root, f"{root}/{url}")
    place = {"at": {"url": f"file://{root}/.git/config"}}
    (fetched,) = open_source({"urls": [f"{root}/*.md"]}, below(root)).read(
        [Document("x", "x", name="x", size_bytes=1, place=place)]
    )
    assert fetched.error is not None
    assert fetched.error.code == "outside_roots"


@pytest.mark.parametrize("url", ["link/a.md", "link/link/a.md", "c/up/a.md", "link/**", "link"])
def test_a_link_to_a_folder_is_no_further_name_of_what_is_in_it(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", "a.md", "c/d.md")
    (root / "link").symlink_to(root)
    (root / "c/up").symlink_to("..")
    with pytest.raises(SourceFailed, match="Links to folders are not followed"):
        ids(root, f"{root}/{url}")


@pytest.mark.parametrize("url", ["never", "never/**", "a.md/never", "never/*.md"])
def test_what_never_was_there_is_not_said_to_be_gone(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", "a.md")
    with pytest.raises(SourceFailed, match="There is no such file or folder"):
        ids(root, f"{root}/{url}")


def test_a_key_reads_below_its_own_roots_alone(tmp_path: Path) -> None:
    """The ids stay those below the root of the server: they do not change with what a key may read."""
    root = tmp_path / "docs"
    tree(root, "own/a.md", "foreign/b.md")
    (root / "own" / "link.md").symlink_to(root / "foreign" / "b.md")
    (root / "own" / "folder").symlink_to(root / "foreign")
    limited = dataclasses.replace(below(root), within=[f"{root}/own"])
    spec = {"urls": [f"{root}/own/**"]}

    assert [ref.id for ref in documents(spec, limited)] == ["docs/own/a.md"]
    assert set(codes(spec, limited).values()) == {"outside_roots"}
    for url in (f"{root}/**", f"{root}/foreign/b.md", f"{root}/ow*/a.md", f"{root}/own/../foreign/b.md"):
        with pytest.raises(SourceFailed):
            documents({"urls": [url]}, limited)
    refs = documents({"urls": [f"{root}/foreign/b.md"]}, below(root))
    listed_before = open_source(spec, limited)
    assert [one.error and one.error.code for one in listed_before.read(refs)] == ["outside_roots"]


def test_a_root_of_a_key_that_leads_out_of_the_server_s_roots_reads_nothing(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    tree(root, "a.md")
    tree(tmp_path / "outside", "secret.md")
    (root / "own").symlink_to(tmp_path / "outside")
    limited = dataclasses.replace(below(root), within=[f"{root}/own"])
    with pytest.raises(SourceFailed):
        documents({"urls": [f"{root}/own/**"]}, limited)
    moved = dataclasses.replace(below(root), within=[str(tmp_path / "outside")])
    with pytest.raises(SourceFailed):
        documents({"urls": [f"{tmp_path}/outside/**"]}, moved)


ODD_FILES = (
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
    root = tree(tmp_path / "root", *ODD_FILES)
    assert ids(root, url.format(root)) == expected


@pytest.mark.parametrize(
    "url", ["*.pdf", "[357]/a.md", "report[23].md", "nothing.md", "[2024]/nothing/**", "2/**/*.txt"]
)
def test_a_url_that_matches_nothing_fails_and_others_go_on(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", *ODD_FILES)
    with pytest.raises(SourceFailed, match=r"matches no file|no such file"):
        ids(root, f"{root}/{url}")
    spec = {"urls": [f"{root}/{url}", f"{root}/report1.md"]}
    assert [ref.id for ref in documents(spec, below(root, files=1))] == ["root/report1.md"]
    [fault] = faults(spec, below(root, files=1))
    assert (fault.error and fault.error.code) == "no_match"
    assert fault.ref.part.startswith(f"file://{root}")


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
