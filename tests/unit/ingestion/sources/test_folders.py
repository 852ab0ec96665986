"""Folders of the server: order, globs, links, and what is not let in."""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import SourceFailed
from tasks.ingestion.sources import folder as folder_module
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.roots import document_id
from tasks.ingestion.sources.source import SourceAccess
from tasks.records.documents import Document
from tasks.storage.storage import Storage
from tests.unit.ingestion.sources.reading import ask, below, codes, contents, documents, lines_of, pages, tree

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


def test_a_file_that_several_globs_match_comes_once(tmp_path: Path) -> None:
    tree(tmp_path, "a/readme.md", "b/readme.md", "b/other.txt")
    assert ids(tmp_path, f"{tmp_path}/a/**", f"{tmp_path}/b/*.md", f"{tmp_path}/b/**") == [
        "a/readme.md",
        "b/readme.md",
        "b/other.txt",
    ]


def test_an_id_does_not_depend_on_what_else_is_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, "a/readme.md", "b/readme.md")
    alone = ids(tmp_path, f"{tmp_path}/a")
    assert alone == ["a/readme.md"]
    assert ids(tmp_path, f"{tmp_path}/b", f"{tmp_path}/a") == ["b/readme.md", *alone]
    assert ids(tmp_path, f"{tmp_path}/a/readme.md") == alone


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


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    tree(tmp_path, "a.md")
    [found] = contents({"urls": [f"{tmp_path}/**"]}, below(tmp_path))
    assert (found.data, found.text, found.error) == (b"a.md", None, None)
    assert found.content_hash == hashlib.sha256(b"a.md").hexdigest()
    assert (found.ref.uri, found.ref.name, found.ref.size_bytes) == (f"file://{tmp_path}/a.md", "a.md", 4)


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


def test_the_same_cursor_gives_the_same_page(tmp_path: Path) -> None:
    access = below(tree(tmp_path, *FILES), **SMALL)
    spec = {"urls": [f"{tmp_path}/**"]}
    cursors = [one.cursor for one in pages(spec, access)[:-1]]
    for cursor in cursors:
        assert open_source(spec, access).page(cursor) == open_source(spec, access).page(cursor)


def test_a_large_folder_is_listed_once_for_many_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, *(f"{n:03}.txt" for n in range(100)))
    listings: list[int] = []
    scandir = os.scandir

    def noted(folder: int) -> Any:
        listings.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", noted)
    monkeypatch.setattr(folder_module, "_LARGE", 50)
    assert len(pages({"urls": [f"{tmp_path}/**"]}, below(tmp_path, files=3))) == 34
    assert len(listings) == 1


def test_a_new_listing_sees_new_files(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt")
    assert ids(tmp_path, f"{tmp_path}/**") == ["a.txt"]
    tree(tmp_path, "b.txt")
    assert ids(tmp_path, f"{tmp_path}/**") == ["a.txt", "b.txt"]


def test_a_large_file_is_a_page_of_its_own(tmp_path: Path) -> None:
    tree(tmp_path, "a", "b")
    (tmp_path / "c").write_bytes(b"x" * 11)
    tree(tmp_path, "d", "e")
    found = pages({"urls": [f"{tmp_path}/**"]}, below(tmp_path, file_bytes=10))
    assert [[within(tmp_path, ref.id) for ref in lines_of(one)] for one in found] == [["a", "b"], ["c"], ["d", "e"]]
    assert [one.size_bytes for one in found] == [2, 11, 2]


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


def test_without_roots_the_setting_is_named(tmp_path: Path) -> None:
    access = SourceAccess(Storage.open(f"file://{tmp_path}/storage"), ask)
    with pytest.raises(SourceFailed, match="EMBEDQ_INGEST_ROOTS"):
        open_source({"urls": ["/data/**"]}, access)


@pytest.mark.parametrize("name", ["nothing", "nothing/**"])
def test_what_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceFailed, match=r"no such file|no longer there"):
        documents({"urls": [f"{tmp_path}/{name}"]}, below(tmp_path))


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


def test_the_roots_are_asked_again_when_reading(tmp_path: Path) -> None:
    tree(tmp_path, "a/a.md", "b/b.md")
    spec = {"urls": [f"{tmp_path}/a/**"]}
    refs = lines_of(open_source(spec, below(tmp_path)).page(None))
    elsewhere = open_source({"urls": [f"{tmp_path}/b/**"]}, below(tmp_path / "b"))
    assert [one.error and one.error.code for one in elsewhere.read(refs)] == ["outside_roots"]


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


def test_a_root_may_be_hidden_itself(tmp_path: Path) -> None:
    root = tree(tmp_path / ".docs", "a.md", ".b.md")
    assert ids(root, f"{root}/**", f"{root}/a.md") == ["a.md"]


@pytest.mark.parametrize("url", ["./a.md", "//a.md", "c/.//d/e/f.md", ".", "c/."])
def test_a_file_has_one_id_however_its_path_is_written(tmp_path: Path, url: str) -> None:
    root = tree(tmp_path / "root", "a.md", "c/d/e/f.md")
    assert set(ids(root, f"{root}/{url}")) <= {"a.md", "c/d/e/f.md"}


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
