"""Chunks: what holds for those of any text and model, where they begin and end, and which texts cannot be cut."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from tasks.chunk import Chunk
from tasks.document_error import DocumentFailed
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.locate import locate
from tasks.errors import Invalid
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.chunker import Chunker
from tasks.ingestion.parsing.extracted import Structure, clean
from tests.made_tokenizers import byte_level, unigram
from worker_config.settings import DEFAULT_MODEL

NO_SPLIT = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
"""As SentencePiece makes them, words not separated: `a  b` and what lies around it may be one piece."""
BLANKS_JOINED = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
TOKENIZERS = {
    "word-piece": Path(locate(DEFAULT_MODEL), "tokenizer.json").read_bytes(),
    "fake": FakeEncoder().text_rules().tokenizer,  # a token for each word, and two
    "byte-level": byte_level(None, pre_tokenizers.ByteLevel(add_prefix_space=False)).to_str().encode(),
    "unigram": unigram(BLANKS_JOINED, NO_SPLIT).to_str().encode(),
}

WINDOW = 24
PROMPTS = ("", "query: ", "query:")
FRAGMENTS = (
    *("the", "quick", "e.g.", "End.", "What?", "Yes!", "1.", "3.14", "unbelievable", "x" * 130, "http://a.b/c?d=e"),
    *("我们。你好！", "日本語のテキスト", "ไม่มีช่องว่าง", "שלום", "مرحبا", "👩‍👩‍👧‍👦", "[SEP]", "</s>"),  # noqa: RUF001
    *("  ", "\n\n", "\r\n", ". ", *" \0\n\t\x0c\x1c\x85\u00a0\u0301\u200d\u2028\u3000"),
)
# One character of up to 36 tokens is marked as truncated: see below.
ANY = st.text(st.characters(exclude_characters="\ufdfa"), max_size=5)
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | ANY, max_size=60).map("".join)
LINES = [
    *("# One", "## Two words", "Under", "===", "---", "- item", "1. item", "", " ", "    indented", "text. More."),
    *("| a | b |", "|---|---|", "| c d | e |", "```", "```py", "~~~", "  ```", "x = 1", "`" * 12, "| " + "z" * 50),
]
MARKDOWN = st.lists(st.sampled_from(LINES) | TEXTS, max_size=40).map("\n".join).map(clean)


@cache
def chunker(name: str, prompt: str, how: ChunkSettings) -> Chunker:
    return Chunker(TOKENIZERS[name], WINDOW, prompt, how)


@cache
def judge(name: str) -> Tokenizer:
    """The tokenizer as the model has it, but for its maximum."""
    found = Tokenizer.from_str(TOKENIZERS[name].decode())
    found.no_truncation()
    found.no_padding()
    return found


def tokens(name: str, text: str) -> int:
    return len(judge(name).encode(text).ids)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Structure | None]:
    structure: Structure | None = draw(st.sampled_from(("markdown", "markdown", "paragraphs", None)))
    return draw(TEXTS if structure is None else MARKDOWN), structure


def check(name: str, prompt: str, how: ChunkSettings, text: str, chunks: Sequence[Chunk], *, framed: bool) -> None:
    limit = min(WINDOW, how.max_tokens or WINDOW)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    covered = 0
    for chunk in chunks:
        own = text[chunk.start : chunk.end]
        assert own == own.strip() != ""
        head, _, tail = chunk.text.partition(own)
        assert chunk.text == own or (framed and (not head or head[-1] == "\n") and (not tail or tail[0] == "\n"))
        assert chunk.start >= covered or how.overlap_tokens
        assert not text[covered : chunk.start].strip()
        assert chunk.end > covered
        covered = chunk.end
        assert not chunk.truncated
        assert chunk.token_count == tokens(name, prompt + chunk.text) <= limit
    assert not text[covered:].strip()
    for before, after in pairwise(chunks):
        assert before.start < after.start
        if after.start < before.end:
            shared = text[after.start : before.end]
            assert tokens(name, prompt + shared) - tokens(name, prompt) <= how.overlap_tokens


@pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=40)
@given(document=documents(), prompt=st.sampled_from(PROMPTS), overlap=st.integers(0, 9) | st.none())
@example(document=("a\x0cb " * 30, None), prompt="", overlap=None)
@example(document=("| a | b |\n|---|---|\n" + "| c d | e |\n" * 20, "markdown"), prompt="", overlap=None)
@example(document=("```py\n" + "x = 1\n" * 30 + "```\n", "markdown"), prompt="query:", overlap=3)
@example(document=("word. " * 40, "paragraphs"), prompt="", overlap=4)
@example(document=("日本語。" * 40, None), prompt="query: ", overlap=8)
def test_chunks_are_slices_that_cover_the_text_within_the_limit(
    name: str, document: tuple[str, Structure | None], prompt: str, overlap: int | None
) -> None:
    text, structure = document
    how = ChunkSettings() if overlap is None else ChunkSettings("static", 20, overlap)
    chunks = list(chunker(name, prompt, how).chunks(text, structure))
    check(name, prompt, how, text, chunks, framed=structure == "markdown")
    assert chunks == list(chunker(name, prompt, how).chunks(text, structure))
    uncut = list(chunker(name, prompt, ChunkSettings("none")).chunks(text, None))
    assert [chunk.text for chunk in uncut] == [text.strip()] * bool(text.strip())
    for chunk in uncut:
        full = tokens(name, prompt + chunk.text)
        assert (chunk.token_count, chunk.truncated) == (min(full, WINDOW), full > WINDOW)
        assert chunker(name, prompt, ChunkSettings()).count(chunk.text) == full


AUTO = ChunkSettings()


def chunks_of(text: str, window: int, structure: Structure | None = "markdown", name: str = "fake") -> list[Chunk]:
    return list(Chunker(TOKENIZERS[name], window, "", AUTO).chunks(text, structure))


BEST = {
    " \n a b.\n\nc \t": ["a b.\n\nc"],
    "a b c d. E f g h. I j k l m.": ["a b c d. E f g h.", "I j k l m."],
    "a b c e.g. d e f g h i j k": ["a b c e.g. d e f g", "h i j k"],
    "a b c d\n\ne f g h i j k": ["a b c d", "e f g h i j k"],
    "a b c d e\nf g h i j k": ["a b c d e", "f g h i j k"],
    "a b c d! (E f g?) H i j k": ["a b c d! (E f g?)", "H i j k"],
    "A. b c d e f g h i j k": ["A. b c d e f g h", "i j k"],
}


@pytest.mark.parametrize(("text", "chunks"), BEST.items())
def test_cut_at_the_best_place_that_leaves_half_a_chunk(text: str, chunks: list[str]) -> None:
    assert [chunk.text for chunk in chunks_of(text, 10, None)] == chunks


def test_sections_are_kept_together_with_their_headings_and_pages() -> None:
    text = (
        "# Title\n\nOne two three.\n\n## Part one\n\nFour five. Six seven. Eight nine. Ten.\n\n"
        "## Part two\n\n### Deep\n\nTwelve.\n\n# Next\n\nFourteen."
    )
    chunks = chunks_of(text, 13)
    assert [(chunk.text.split("\n\n")[0], chunk.headings) for chunk in chunks] == [
        ("# Title", ("Title",)),
        ("## Part one", ("Title", "Part one")),
        ("## Part two", ("Title", "Part two")),
    ]
    assert chunks[2].text.endswith("Fourteen.")
    within = chunks_of("Long\n title\n===\n\n" + "One two three four. " * 3, 12)
    assert [chunk.headings for chunk in within] == [("Long title",)] * 2
    for written in (" # x ##", "## x", "# x #", "x\n---", "x\n==="):
        assert chunks_of(f"{written}\n\nOne two.", 30)[0].headings == ("x",)
    paged = Chunker(TOKENIZERS["fake"], 6, "", AUTO).chunks("a b c d. E f g h. I j k l.", None, (0, 5, 18))
    assert [(chunk.text, chunk.page) for chunk in paged] == [("a b c d.", 1), ("E f g h.", 2), ("I j k l.", 3)]


HEADER = "| name | days |\n|---|---|\n"


def test_each_part_of_a_table_has_its_header() -> None:
    rows = [f"| row{n} | {n} |" for n in range(40)]
    text = "Before.\n\n" + HEADER + "\n".join(rows) + "\n\nBehind."
    for how in (AUTO, ChunkSettings("static", 32, 10)):
        chunks = list(Chunker(TOKENIZERS["fake"], 32, "", how).chunks(text, "markdown"))
        assert [chunk.text.count(HEADER) for chunk in chunks] == [1] * len(chunks)
        assert len(chunks) > 3
        assert {row for row in rows if any(row in chunk.text for chunk in chunks)} == set(rows)


def test_each_part_of_code_is_fenced() -> None:
    lines = [f"    call({n}) # and so on" for n in range(30)]
    for opening, mark in (("```py", "```"), ("~~~~ {.python}", "~~~~"), (" ```", "```")):
        chunks = chunks_of("\n".join(["# Title", "", opening, *lines, mark, "", "Behind."]), 40)
        assert len(chunks) > 3
        for chunk in chunks:
            marks = [line.strip() for line in chunk.text.split("\n") if line.strip().startswith(mark)]
            assert marks == [opening.strip(), mark]
    chunks = chunks_of("```\n" + "one two three\n" * 12, 20)  # nobody has closed it
    assert [chunk.text.endswith("\n```") for chunk in chunks] == [True] * (len(chunks) - 1) + [False]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_lines_and_rows_without_end_are_cut_within_the_limit(name: str) -> None:
    for unit in ("x", "word ", "ก", "我", "\u0301", "👩", "\n."):
        much = unit * (5_000 // len(unit))
        chunks = chunks_of(f"begin {much} end", 256, None, name)
        assert sum(len("".join(chunk.text.split())) for chunk in chunks) == len("".join(f"begin{much}end".split()))
        assert all(len(chunk.text) <= 64 * 256 and chunk.token_count <= 256 for chunk in chunks)
        for text in (f"{HEADER}| {much[:3000]} | 1 |\n| b | 2 |", f"```py\n{much[:3000]}\n```\n\nBehind."):
            assert all(chunk.token_count <= 64 and not chunk.truncated for chunk in chunks_of(text, 64, name=name))


def test_a_character_that_needs_all_of_a_chunk_has_it_and_one_of_more_is_marked() -> None:
    tokenizer, prompt = TOKENIZERS["byte-level"], "of a long prompt " * 9
    window = Chunker(tokenizer, 1000, prompt, AUTO).count("\U0001f469")
    chunks = list(Chunker(tokenizer, window, prompt, AUTO).chunks("|a\n|-\n" + "|\U0001f469\n" * 5, "markdown"))
    assert [chunk.token_count for chunk in chunks if chunk.text == "\U0001f469"] == [window] * 5
    assert not any(chunk.truncated for chunk in chunks)
    [chunk] = Chunker(tokenizer, 4, "", AUTO).chunks("\U0001f469", None)
    assert (chunk.token_count, chunk.truncated) == (4, True)


def test_the_beginning_of_a_long_word_says_nothing_of_the_whole_word() -> None:
    # More than 100 letters are one unknown token. Of the text, its first 16 characters for each token are read first.
    text = "a" + " " * (16 * 8 - 101) + "e" * 130
    [chunk] = Chunker(TOKENIZERS["word-piece"], 8, "", ChunkSettings("none")).chunks(text, None)
    assert (chunk.truncated, chunk.token_count) == (False, 4)


def test_what_cannot_be_cut_is_said() -> None:
    with pytest.raises(DocumentFailed, match="chunking: invalid_unicode"):
        chunks_of("a \ud800 b", 10)
    with pytest.raises(Invalid, match="take 4 tokens, and a chunk may have 4"):
        Chunker(TOKENIZERS["fake"], 100, "two words ", ChunkSettings("static", 4))
