"""Where chunks begin and end, what they say of themselves, and which texts cannot be cut."""

from collections.abc import Iterator

import pytest

from tasks.chunk import Chunk
from tasks.document_error import DocumentFailed
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.chunker import MAX_AUTO_TOKENS, MAX_COUNTED_CHARS, MAX_TITLE_CHARS, Chunker
from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.ingestion.chunking.split_text import Splitter, Stretch, pieces
from tasks.ingestion.parsing.extracted import Structure
from tasks.item import UNLIMITED_TOKENS
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


@pytest.mark.parametrize("blank", ["", " \n\t\x0c\u3000"])
def test_a_blank_text_has_no_chunks(blank: str) -> None:
    assert cut(blank, 10) == []
    assert cut(blank, 10, ChunkSettings("none")) == []


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


def test_a_heading_without_end_is_not_written_beside_each_chunk() -> None:
    text = "# " + "word " * 10_000 + "\n\n" + "text " * 1000
    chunks = list(Chunker(WORDS, 50, "", ChunkSettings()).chunks(text, "markdown"))
    assert {len(chunk.headings[0]) for chunk in chunks} == {MAX_TITLE_CHARS - 1}
    assert chunks[-1].headings[0].startswith("word word")


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


@pytest.mark.parametrize("blank", ["#", "## ", "### ###"])
def test_a_heading_without_words_is_not_said(blank: str) -> None:
    (chunk,) = Chunker(WORDS, 30, "", ChunkSettings()).chunks(f"{blank}\n\nOne two.", "markdown")
    assert chunk.headings == ()


def test_without_structure_there_are_no_headings() -> None:
    (chunk,) = Chunker(WORDS, 30, "", ChunkSettings()).chunks("# One\n\nTwo.", "paragraphs")
    assert chunk.headings == ()


def test_pages_are_those_on_which_chunks_begin() -> None:
    text = "a b c d. E f g h. I j k l."
    chunks = Chunker(WORDS, 6, "", ChunkSettings()).chunks(text, None, (0, 5, 18))
    assert [(chunk.text, chunk.page) for chunk in chunks] == [("a b c d.", 1), ("E f g h.", 2), ("I j k l.", 3)]


def test_static_chunks_know_no_structure_and_overlap_in_whole_sentences() -> None:
    text = "# A.\n\nB c d. E f g. H i j. K l m. N o p."
    chunks = cut(text, 20, ChunkSettings("static", 10, 3), "markdown")
    assert chunks == ["# A.\n\nB c d. E f g.", "E f g. H i j.", "H i j. K l m.", "K l m. N o p."]


def test_of_a_sentence_that_is_longer_than_the_overlap_the_last_words_come_again() -> None:
    assert cut("a b c d e f g h i j k l", 20, ChunkSettings("static", 8, 2)) == [
        "a b c d e f",
        "e f g h i j",
        "i j k l",
    ]


def test_an_overlap_gives_way_to_a_text_that_goes_on() -> None:
    long = TOKENIZERS["byte-level"]
    text = "a b c d e f " + "zq" * 40
    chunks = list(Chunker(long, 20, "", ChunkSettings("static", 16, 8)).chunks(text, None))
    assert chunks[-1].end == len(text)
    assert all(chunk.token_count <= 16 for chunk in chunks)


def test_a_character_of_more_tokens_than_the_window_is_marked() -> None:
    chunker = Chunker(TOKENIZERS["byte-level"], 4, "", ChunkSettings())
    [chunk] = chunker.chunks("\U0001f469", None)
    assert (chunk.token_count, chunk.truncated) == (4, True)
    assert chunker.count("\U0001f469") == 6


def test_a_model_without_a_maximum_gets_chunks_that_have_one() -> None:
    chunks = Chunker(WORDS, 2**31 - 1, "", ChunkSettings()).chunks("word " * 20_000, None)
    assert max(chunk.token_count for chunk in chunks) == MAX_AUTO_TOKENS


def test_a_long_text_is_read_little_by_little() -> None:
    text, read = "Some words. " * 10_000, 0

    def counted() -> Iterator[Stretch]:
        nonlocal read
        for piece in pieces(text, (), structured=True):
            read += 1
            yield piece

    next(Splitter(text, counted(), TokenCounter(WORDS), 100, 0).cuts())
    assert 0 < read < 1000


@pytest.mark.parametrize(("chars", "truncated"), [(MAX_COUNTED_CHARS, False), (MAX_COUNTED_CHARS + 1, True)])
def test_a_text_without_end_is_not_tokenized_to_be_counted(chars: int, *, truncated: bool) -> None:
    [chunk] = Chunker(WORDS, 10, "", ChunkSettings("none")).chunks("x" * chars, None)
    assert (chunk.truncated, chunk.token_count) == (truncated, 10 if truncated else 3)


@pytest.mark.parametrize("window", [8, 24])
def test_the_beginning_of_a_long_word_says_nothing_of_the_whole_word(window: int) -> None:
    # More than 100 letters are one unknown token. Of the text, its first 16 characters for each token are read first.
    text = "a" + " " * (16 * window - 101) + "e" * 130
    [chunk] = Chunker(TOKENIZERS["word-piece"], window, "", ChunkSettings("none")).chunks(text, None)
    assert (chunk.truncated, chunk.token_count) == (False, 4)


def test_a_long_text_of_a_model_without_a_maximum_is_one_chunk_that_is_not_truncated() -> None:
    text = "word " * (MAX_COUNTED_CHARS // 4)
    [chunk] = Chunker(WORDS, UNLIMITED_TOKENS, "", ChunkSettings("none")).chunks(text, None)
    assert (chunk.truncated, chunk.text) == (False, text.strip())
    assert 0 <= chunk.token_count - Chunker(WORDS, 10, "", ChunkSettings()).count(text) <= 1


@pytest.mark.parametrize("unit", ["x", "ก", "我", "\u0301", "😀", "\0", ".", "'", "\n.", "x ", "\x0c"])
@pytest.mark.parametrize("name", ["word-piece", "byte-level"])
def test_long_lines_of_anything(name: str, unit: str) -> None:
    text = "begin " + unit * (50_000 // len(unit)) + " end"
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
