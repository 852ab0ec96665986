"""Where chunks begin and end, what they say of themselves, and which texts cannot be cut."""

from itertools import pairwise
from pathlib import Path

import pytest

from tasks.chunk import Chunk
from tasks.document_error import DocumentFailed
from tasks.errors import NotReady
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.chunker import Chunker
from tasks.ingestion.chunking.count_tokens import load_prompt, load_tokenizer
from tasks.ingestion.parsing.extracted import Structure
from tasks.model import Model
from tasks.storage.model_files import Prompts, write_model_files
from tasks.storage.storage import Storage
from tests.raises_code import raises_code
from tests.unit.ingestion.chunking.tokenizers_of_kinds import TOKENIZERS

WORDS = TOKENIZERS["fake"]
"""A token for each word, and two."""


def cut(text: str, window: int, settings: ChunkSettings | None = None, structure: Structure | None = None) -> list[str]:
    chunker = Chunker(WORDS, window, "", settings or ChunkSettings())
    return [chunk.text for chunk in chunker.chunks(text, structure)]


def test_what_fits_is_one_chunk_without_the_white_space_around_it() -> None:
    [chunk] = Chunker(WORDS, 10, "", ChunkSettings()).chunks(" \n one two.\n\nthree \t", None)
    assert chunk == Chunk(0, "one two.\n\nthree", 3, 18, None, (), token_count=5)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("a b c d. E f g h. I j k l m.", ["a b c d. E f g h.", "I j k l m."]),
        ("a b c e.g. d e f g h i j k", ["a b c e.g. d e f g", "h i j k"]),
        ("a b c d\n\ne f g h i j k", ["a b c d", "e f g h i j k"]),
        ("a b c d e\nf g h i j k", ["a b c d e", "f g h i j k"]),
        ("a b c d e\n1. f g h i j k", ["a b c d e", "1. f g h i j k"]),
        ("a b c d! (E f g?) H i j k", ["a b c d! (E f g?)", "H i j k"]),
        ("A. b c d e f g h i j k", ["A. b c d e f g h", "i j k"]),
    ],
    ids=["sentence", "abbreviation", "paragraph", "line", "numbered", "brackets", "too-early"],
)
def test_cut_at_the_best_place_that_leaves_half_a_chunk(text: str, chunks: list[str]) -> None:
    assert cut(text, 10) == chunks


def test_sections_are_kept_together_and_headings_stay_with_what_follows() -> None:
    text = (
        "# Title\n\nOne two three.\n\n## Part one\n\nFour five. Six seven. Eight nine. Ten.\n\n"
        "## Part two\n\n### Deep\n\nTwelve.\n\n# Next\n\nFourteen."
    )
    chunks = list(Chunker(WORDS, 13, "", ChunkSettings()).chunks(text, "markdown"))
    assert [(chunk.text.split("\n\n")[0], chunk.headings) for chunk in chunks] == [
        ("# Title", ("Title",)),
        ("## Part one", ("Title", "Part one")),
        ("## Part two", ("Title", "Part two")),
    ]
    assert chunks[2].text.endswith("Fourteen.")


def test_a_chunk_within_a_section_has_its_headings() -> None:
    text = "Long\n title\n===\n\n" + "One two three four. " * 3
    chunks = list(Chunker(WORDS, 12, "", ChunkSettings()).chunks(text, "markdown"))
    assert len(chunks) == 2
    assert {chunk.headings for chunk in chunks} == {("Long title",)}


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("## Two  words", "Two words"),
        (" # Closed ##", "Closed"),
        ("Underlined\n===", "Underlined"),
        ("Underlined too\n---", "Underlined too"),
        ("#5 of members\n---", "#5 of members"),
        ("# x #", "x"),
        ("C #\n-", "C #"),
    ],
)
def test_headings_come_without_the_marks_of_markdown(text: str, title: str) -> None:
    (chunk,) = Chunker(WORDS, 30, "", ChunkSettings()).chunks(f"{text}\n\nOne two.", "markdown")
    assert chunk.headings == (title,)


def test_pages_are_those_on_which_chunks_begin() -> None:
    text = "a b c d. E f g h. I j k l."
    chunks = Chunker(WORDS, 6, "", ChunkSettings()).chunks(text, None, (0, 5, 18))
    assert [(chunk.text, chunk.page) for chunk in chunks] == [("a b c d.", 1), ("E f g h.", 2), ("I j k l.", 3)]


def test_a_character_of_more_tokens_than_the_window_is_marked() -> None:
    chunker = Chunker(TOKENIZERS["byte-level"], 4, "", ChunkSettings())
    [chunk] = chunker.chunks("\U0001f469", None)
    assert (chunk.token_count, chunk.truncated) == (4, True)
    assert chunker.count("\U0001f469") == 6


@pytest.mark.parametrize("window", [8, 24])
def test_the_beginning_of_a_long_word_says_nothing_of_the_whole_word(window: int) -> None:
    # More than 100 letters are one unknown token. Of the text, its first 16 characters for each token are read first.
    text = "a" + " " * (16 * window - 101) + "e" * 130
    [chunk] = Chunker(TOKENIZERS["word-piece"], window, "", ChunkSettings("none")).chunks(text, None)
    assert (chunk.truncated, chunk.token_count) == (False, 4)


@pytest.mark.parametrize("unit", ["x", "ก", "我", "\u0301", "😀", "\0", ".", "'", "\n.", "x ", "\x0c"])
@pytest.mark.parametrize("name", ["word-piece", "byte-level"])
def test_long_lines_of_anything(name: str, unit: str) -> None:
    text = "begin " + unit * (20_000 // len(unit)) + " end"
    chunks = list(Chunker(TOKENIZERS[name], 256, "", ChunkSettings()).chunks(text, None))
    assert sum(len("".join(chunk.text.split())) for chunk in chunks) == len("".join(text.split()))
    assert all(len(chunk.text) <= 64 * 256 and chunk.token_count <= 256 for chunk in chunks)


@pytest.mark.parametrize("kind", ["auto", "none"])
def test_half_a_surrogate_pair_is_said(kind: str) -> None:
    chunker = Chunker(WORDS, 10, "", ChunkSettings.from_json({"type": kind}))
    with pytest.raises(DocumentFailed) as caught:
        list(chunker.chunks("some \ud800 text", None))
    assert (caught.value.error.code, caught.value.error.stage) == ("invalid_unicode", "chunking")


def test_a_chunk_without_room_for_text_is_refused() -> None:
    with raises_code("invalid_value", match="take 4 tokens, and a chunk may have 4") as caught:
        Chunker(WORDS, 100, "two words ", ChunkSettings("static", 4))
    assert caught.value.param == "chunking.static.max_chunk_size_tokens"


HEADER = "| name | days |\n|---|---|\n"
AUTO = ChunkSettings()


def chunks_of(text: str, window: int, settings: ChunkSettings = AUTO, name: str = "fake") -> list[Chunk]:
    return list(Chunker(TOKENIZERS[name], window, "", settings).chunks(text, "markdown"))


@pytest.mark.parametrize("settings", [AUTO, ChunkSettings("static", 32, 0), ChunkSettings("static", 32, 10)])
def test_each_part_of_a_table_has_its_header(settings: ChunkSettings) -> None:
    rows = [f"| row{n} | {n} |" for n in range(40)]
    text = "Before.\n\n" + HEADER + "\n".join(rows) + "\n\nBehind."
    chunks = chunks_of(text, 32, settings)
    assert len(chunks) > 3
    for chunk in chunks:
        assert chunk.text.count(HEADER) == 1
        own = text[chunk.start : chunk.end]
        assert chunk.text in (own, HEADER + own)
        assert chunk.token_count == 2 + len(chunk.text.split()) <= 32
    assert {row for row in rows if any(row in chunk.text for chunk in chunks)} == set(rows)


@pytest.mark.parametrize("opening", ["```py", "~~~~ {.python}", " ```"])
def test_each_part_of_code_is_fenced(opening: str) -> None:
    mark = opening.split(maxsplit=1)[0].rstrip("py") if opening != " ```" else " ```"
    lines = [f"    call({n}) # and so on" for n in range(30)]
    text = "\n".join(["# Title", "", opening, *lines, mark, "", "Behind."])
    chunks = chunks_of(text, 40)
    assert len(chunks) > 3
    for chunk in chunks:
        marks = [line for line in chunk.text.split("\n") if line.strip().startswith(mark.strip())]
        assert marks[0].strip() == opening.strip()
        assert marks[1].strip() == mark.strip()
        assert len(marks) == 2
        assert chunk.token_count == 2 + len(chunk.text.split()) <= 40
    assert not any(text[a.end : b.start].strip() for a, b in pairwise(chunks))
    assert chunks[-1].text.endswith("Behind.")


def test_code_that_nobody_has_closed_is_closed_where_it_is_cut() -> None:
    chunks = chunks_of("```\n" + "one two three\n" * 12, 20)
    assert [chunk.text.startswith("```\none") for chunk in chunks] == [True] * len(chunks)
    assert [chunk.text.endswith("\n```") for chunk in chunks] == [True] * (len(chunks) - 1) + [False]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("cell", ["x" * 3000, "word " * 600, "我" * 900, "👩" * 100])
def test_a_row_without_end_is_cut_within_the_limit(name: str, cell: str) -> None:
    for text in (f"{HEADER}| {cell} | 1 |\n| b | 2 |", f"```py\n{cell}\n```\n\nBehind."):
        for chunk in chunks_of(text, 64, name=name):
            assert chunk.token_count <= 64
            assert not chunk.truncated


def test_a_header_gives_way_to_a_character_that_needs_all_of_a_chunk() -> None:
    tokenizer, prompt = TOKENIZERS["byte-level"], "of a long prompt " * 9
    window = Chunker(tokenizer, 1000, prompt, AUTO).count("\U0001f469")
    chunks = list(Chunker(tokenizer, window, prompt, AUTO).chunks("|a\n|-\n" + "|\U0001f469\n" * 5, "markdown"))
    assert [chunk.token_count for chunk in chunks if chunk.text == "\U0001f469"] == [window] * 5
    assert not any(chunk.truncated for chunk in chunks)


ENTRY = Model("model", "abc", 4, 100, ("query",), "cpu", "fake", "float32", id="served")


def test_tokenizer_and_prompts_come_from_the_storage(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    write_model_files(storage, "abc", TOKENIZERS["fake"], Prompts({"query": "query: "}, "query"))
    assert load_tokenizer(storage, ENTRY) == TOKENIZERS["fake"]
    assert load_prompt(storage, ENTRY, "query") == "query: "
    assert load_prompt(storage, ENTRY, None) == "query: "


def test_a_tokenizer_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    with pytest.raises(NotReady, match="The tokenizer of served is not in the storage yet"):
        load_tokenizer(storage, ENTRY)
    with pytest.raises(NotReady):
        load_prompt(storage, ENTRY, None)
