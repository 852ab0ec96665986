"""What holds for the chunks of any text, of any model."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tasks.chunk import Chunk
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.chunker import Chunker
from tasks.ingestion.parsing.extracted import Structure, clean
from tests.unit.ingestion.chunking.tokenizers_of_kinds import TOKENIZERS

pytestmark = pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced

WINDOW = 24
PROMPTS = ("", "query: ", "query:")
_FRAGMENTS = (
    *("the", "quick", "e.g.", "End.", "What?", "Yes!", "1.", "3.14", "unbelievable", "x" * 130, "http://a.b/c?d=e"),
    *("我们。你好！", "日本語のテキスト", "ไม่มีช่องว่าง", "שלום", "مرحبا", "\ufdfa", "👩‍👩‍👧‍👦", "\u0301", "\u200d", "\0"),  # noqa: RUF001
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "\x0c",
        "\x1c",
        "\x85",
        "\u00a0",
        "\u3000",
        "\u2028",
        "[SEP]",
        "</s>",
        ". ",
    ),
)
TEXTS = st.lists(st.sampled_from(_FRAGMENTS) | st.text(max_size=5), max_size=60).map("".join) | st.lists(
    st.sampled_from(_FRAGMENTS), max_size=60
).map(" ".join)


@cache
def chunker(name: str, prompt: str, how: ChunkSettings) -> Chunker:
    return Chunker(TOKENIZERS[name], WINDOW, prompt, how)


@cache
def tokenizer(name: str) -> Tokenizer:
    """The judge: the tokenizer as the model has it, but for its maximum."""
    judge = Tokenizer.from_str(TOKENIZERS[name].decode())
    judge.no_truncation()
    judge.no_padding()
    return judge


def tokens(name: str, text: str) -> int:
    return len(tokenizer(name).encode(text).ids)


_LINES = (
    *(
        "# One",
        "## Two words",
        "Under",
        "===",
        "---",
        "- item",
        "1. item",
        "",
        " ",
        "    indented",
        "text. More of it.",
    ),
    *(
        "| a | b |",
        "|---|---|",
        "| c d | e |",
        "```",
        "```py",
        "~~~",
        "  ```",
        "x = 1",
        "```" + "`" * 9,
        "| " + "z" * 50,
    ),
)
MARKDOWN = st.lists(st.sampled_from(_LINES) | TEXTS, max_size=40).map("\n".join).map(clean)


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
    if "\ufdfa" in text:  # one character, up to 36 tokens: see test_chunker
        text = text.replace("\ufdfa", "a")
    how = ChunkSettings() if overlap is None else ChunkSettings("static", 20, overlap)
    chunks = list(chunker(name, prompt, how).chunks(text, structure))
    check(name, prompt, how, text, chunks, framed=structure == "markdown")
    assert chunks == list(chunker(name, prompt, how).chunks(text, structure))


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=40)
@given(text=TEXTS, prompt=st.sampled_from(PROMPTS))
def test_counts_are_the_models(name: str, text: str, prompt: str) -> None:
    assert chunker(name, prompt, ChunkSettings()).count(text) == tokens(name, prompt + text)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=40)
@given(text=TEXTS, prompt=st.sampled_from(PROMPTS))
def test_uncut_a_document_is_one_chunk(name: str, text: str, prompt: str) -> None:
    chunks = list(chunker(name, prompt, ChunkSettings("none")).chunks(text, None))
    assert [chunk.text for chunk in chunks] == [text.strip()] * bool(text.strip())
    for chunk in chunks:
        full = tokens(name, prompt + chunk.text)
        assert (chunk.token_count, chunk.truncated) == (min(full, WINDOW), full > WINDOW)
