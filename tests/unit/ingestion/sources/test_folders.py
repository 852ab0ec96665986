"""Folders of the server: order, globs, links, and what is not let in."""

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import SourceFailed
from tasks.ingestion.sources.allowed_paths import document_id
from tasks.ingestion.sources.open_source import open_source
from tests.unit.ingestion.sources.reading import below, fetched, lines_of, outcome, outcomes, pages, tree, uploaded

SETTING = "EMBEDQ_INGEST_ROOTS"
FILES = ("b.md", "a/z.md", "a/b/c.txt", "a.md", "a/b.md", ".hidden.md", ".git/config", "c/d/e/f.md", "z.txt")
ALL = ["a.md", "a/b.md", "a/b/c.txt", "a/z.md", "b.md", "c/d/e/f.md", "z.txt"]
ODD_FILES = (
    *("report[1].md", "report1.md", "[2024]/a.md", "2/a.md", "100%.md", "a b.md", "a%20b.md", "q?.md", "a/.ssh/id_rsa"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`plain` and `odd` are the roots of it; others are not."""
    tree(tmp_path, "secret.md", "plainx/secret")
    tree(tmp_path / "plain", *FILES)
    tree(tmp_path / "odd", *ODD_FILES)
    return tmp_path


def found(root: Path, url: str) -> list[str] | str:
    """Files of a URL; or why it is refused."""
    try:
        lines = outcomes({"urls": [url]}, below(root / "plain", root / "odd", files=2))
    except SourceFailed as refused:
        return f"{refused.param}: {refused.detail}"
    assert all(name.endswith(f"/{text}") for name, text in lines.items())
    return sorted(lines.values())


GLOBS = {
    "plain/**": ALL,
    "plain": ALL,
    "plain/*.md": ["a.md", "b.md"],
    "plain/a/**/*.txt": ["a/b/c.txt"],
    "plain/?/**": ["a/b.md", "a/b/c.txt", "a/z.md", "c/d/e/f.md"],
    "plain/a/": ["a/b.md", "a/b/c.txt", "a/z.md"],
    "odd/report[1].md": ["report[1].md"],
    "odd/report[12].md": ["report1.md"],
    "odd/[2024]/*.md": ["[2024]/a.md"],
    "odd/q?.md": ["q?.md"],
}
ESCAPED = {
    "odd/%5B2024%5D/*.md": ["[2024]/a.md"],
    "odd/*%5B1%5D.md": ["report[1].md"],
    "odd/100%25.md": ["100%.md"],
    "odd/a%20b.md": ["a%20b.md"],
    "plain/a%2Fb.md": ["a/b.md"],
    "odd/[357]/a.md": "source.urls[0]: The URL matches no file on the server. Look at its wildcards.",
    "plain/a.md/never": "source.urls[0]: There is no such file or folder on the server.",
    "plain/never/**": "source.urls[0]: There is no such file or folder on the server.",
}


@pytest.mark.parametrize(("url", "expected"), GLOBS.items())
def test_globs_and_names(root: Path, url: str, expected: list[str]) -> None:
    assert found(root, f"{root}/{url}") == found(root, f"file://{root}/{url}") == expected


@pytest.mark.parametrize(("url", "expected"), ESCAPED.items())
def test_escapes_and_what_is_not_there(root: Path, url: str, expected: list[str] | str) -> None:
    assert found(root, f"file://{root}/{url}") == expected


@pytest.mark.parametrize(
    "url",
    [
        *("/etc/passwd", "/root/**", "{}/../**", "{}x/**", "{}/a/%2e%2e/b", "s3://bucket/**", "relative/**", "**", ""),
        *("simplecache::file://{}/a", "/", "/*", "{}*/**", "https://example.org/a", "{}/\ud800", "file://{}/a%00b"),
        *("{}/.git/config", "{}/.git/**", "{}/.hidden.md", "{}/.git/./config", "{}/%2egit/config", "{}/../odd/a/.ssh"),
        *("file://{}/%2e%2e/secret.md", "file://{}/%252e%252e/secret.md", "file://{}/a%2F..%2F..%2Fsecret.md"),
    ],
)
def test_what_is_not_below_the_roots_is_refused_whether_it_exists_or_not(root: Path, url: str) -> None:
    said = found(root, url.format(root / "plain"))
    assert said[:16] == "source.urls[0]: "
    assert SETTING in said


def test_ids_of_two_roots_never_meet() -> None:
    for roots, expected in (
        (["/data/docs/"], "docs/a/b.md"),
        (["/data/docs", "/srv", "/data/docs/a"], "docs/a/b.md"),
        (["/data/docs", "/srv/docs"], "file:///data/docs/a/b.md"),
        (["/data/docs", "s3://docs"], "file:///data/docs/a/b.md"),
        (["/"], "data/docs/a/b.md"),
    ):
        assert document_id("file", "/data/docs/a/b.md", roots) == expected


NAMES = st.sets(st.sampled_from("abcdefg"), min_size=1, max_size=6)


@settings(max_examples=20, deadline=None)
@given(files=st.integers(1, 5), folders=NAMES, names=NAMES)
def test_every_file_comes_once_whatever_the_sizes_of_pages_and_windows(
    tmp_path_factory: pytest.TempPathFactory, files: int, folders: set[str], names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    made = {f"{one}/{name}.txt" for one in folders for name in names} | {f"{name}.txt" for name in names}
    tree(folder, *made)
    found = pages({"urls": [f"{folder}/**"]}, below(folder, files=files))
    assert all(len(lines_of(one)) <= files for one in found)
    assert sorted(ref.id for one in found for ref in lines_of(one)) == sorted(f"{folder.name}/{name}" for name in made)


def test_links_within_the_roots_are_followed_and_others_not(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/a.md")
    tree(tmp_path / "outside", "secret.md")
    links = {
        "in": (root / "a", "<link_to_folder>"),
        "file.md": (root / "a" / "a.md", "a/a.md"),
        "dangling.md": (root / "nothing.md", "<gone>"),
        "self": (root / "self", "<symlink_loop>"),
        "out": (tmp_path / "outside", "<outside_roots>"),
        "out.md": (tmp_path / "outside" / "secret.md", "<outside_roots>"),
        "out-no.md": (tmp_path / "no.md", "<outside_roots>"),
        "a/around": (Path(".."), "<link_to_folder>"),
    }
    for name, (target, _) in links.items():
        (root / name).symlink_to(target)
    found = {f"root/{name}": expected for name, (_, expected) in links.items()}
    assert outcomes({"urls": [f"{root}/**"]}, below(root)) == {"root/a/a.md": "a/a.md", **found}
    refused = {"in/a.md": "Links to folders", "a/around/a.md": "Links to folders", "in/**": "Links", "out/**": SETTING}
    for url, said in refused.items():
        with pytest.raises(SourceFailed, match=said):
            outcomes({"urls": [f"{root}/{url}"]}, below(root))


def test_odd_files_are_faults_of_their_own(tmp_path: Path) -> None:
    tree(tmp_path, "a.md", "z.md")
    os.mkfifo(tmp_path / "pipe.md")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff.md")).write_text("x")
    (tmp_path / "large.txt").write_bytes(b"x" * 5000)
    name = tmp_path.name
    spec = {"urls": [f"{tmp_path}/{glob}" for glob in ("**", "*.md", "*.pdf")]}  # a file that two match comes once
    assert outcomes(spec, below(tmp_path, limit=4999, files=1)) == {
        f"{name}/a.md": "a.md",
        f"{name}/large.txt": "<document_too_large>",
        f"{name}/m?.md": "<invalid_name>",
        f"{name}/z.md": "z.md",
        f"{tmp_path}/*.pdf": "<no_match>",
    }


def test_what_happens_between_listing_and_reading(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "gone.md", "grown.md", "other.md", "moved.md", "folder.md", "deep/b.md")
    tree(tmp_path / "outside", "b.md")
    source = open_source({"urls": [f"{root}/**"]}, below(root, limit=1024))
    refs = lines_of(source.page(None))
    for name in ("gone.md", "moved.md", "folder.md", "deep/b.md"):
        (root / name).unlink()
    (root / "grown.md").write_bytes(b"x" * 1025)
    (root / "other.md").write_text("another version")
    (root / "moved.md").symlink_to(tmp_path / "outside" / "b.md")
    (root / "folder.md").mkdir()
    (root / "deep").rmdir()
    (root / "deep").symlink_to(tmp_path / "outside")
    assert {one.ref.id: outcome(one) for one in source.read(refs)} == {
        "root/gone.md": "<gone>",
        "root/grown.md": "<document_too_large>",
        "root/other.md": "another version",
        "root/moved.md": "<outside_roots>",
        "root/folder.md": "<unreadable>",
        "root/deep/b.md": "<outside_roots>",
    }


def test_a_key_reads_below_its_own_roots_alone(tmp_path: Path) -> None:
    """The ids stay those below the root of the server: they do not change with what a key may read."""
    root = tree(tmp_path / "docs", "own/a.md", "foreign/b.md")
    outside = tree(tmp_path / "outside", "secret.md")
    (root / "own" / "link.md").symlink_to(root / "foreign" / "b.md")
    (root / "out").symlink_to(outside)
    spec, limited = {"urls": [f"{root}/own/**"]}, replace(below(root), within=[f"{root}/own"])
    assert outcomes(spec, limited) == {"docs/own/a.md": "own/a.md", "docs/own/link.md": "<outside_roots>"}
    [foreign] = fetched({"urls": [f"{root}/foreign/b.md"]}, below(root))
    hidden = foreign.ref._replace(place={"at": {"url": f"file://{root}/own/.a"}})
    for line in (foreign.ref, hidden):  # whatever an earlier listing has
        assert [outcome(one) for one in open_source(spec, limited).read([line])] == ["<outside_roots>"]
    for within, url in (
        *(("own", url) for url in ("**", "foreign/b.md", "ow*/a.md", "own/../foreign/b.md")),
        *(("out", "out/**"), ("../outside", "../outside/**")),
    ):
        with pytest.raises(SourceFailed):
            outcomes({"urls": [f"{root}/{url}"]}, replace(below(root), within=[f"{root}/{within}"]))


def test_a_name_with_accents_is_one_document_and_characters_that_nobody_sees_are_escaped(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "Übersicht.md") for form in ("NFC", "NFD"))
    root = tree(tmp_path / "root", apart)
    assert outcomes({"urls": [str(root)]}, below(root)) == {f"root/{composed}": apart}
    tree(root, composed)
    found = [(one.ref.id, outcome(one)) for one in fetched({"urls": [str(root)]}, below(root))]
    assert sorted(found) == [(f"root/{composed}", "<duplicate_document_id>"), (f"root/{composed}", apart)]
    for number, letter in enumerate("\u202e\u2066\n\x1b\x85\u2028"):
        root = tree(tmp_path / str(number), f"a{letter}b.md", f"f{letter}/c.jsonl")
        (root / f"f{letter}" / "c.jsonl").write_text('{"text": "x"}')
        access = uploaded({"x": b"x"})
        named = {"x": access.files["x"].model_copy(update={"filename": f"a{letter}b.txt"})}
        listed = fetched({"urls": [str(root)]}, below(root)) + fetched({"files": ["x"]}, replace(access, files=named))
        assert [outcome(one) for one in listed] == [f"a{letter}b.md", "x", "x"]
        assert not any(letter in one.ref.id + one.ref.uri for one in listed)
