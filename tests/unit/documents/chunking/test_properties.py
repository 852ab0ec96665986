"""What holds for the chunks of any text, of any model."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tasks.chunk import Chunk
from tasks.documents.chunking.chunk import ChunkSettings
from tasks.documents.chunking.chunker import Chunker
from tasks.documents.parsing.parsed_document import Block, BlockKind
from tests.unit.documents.chunking.tokenizers_of_kinds import TOKENIZERS

pytestmark = pytest.mark.no_cover  # what runs here is covered without it, and is slower when it is traced

WINDOW = 24
PROMPTS = ("", "query: ", "query:")
_KINDS: tuple[BlockKind, ...] = ("heading", "paragraph", "list", "table", "code")
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


@st.composite
def structures(draw: st.DrawFn, text: str) -> Sequence[Block]:
    ends = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    blocks = [Block(draw(st.sampled_from(_KINDS)), a, b) for a, b in pairwise(ends) if text[a:b].strip()]
    return [Block(b.kind, b.start, b.end, draw(st.integers(1, 6)) if b.kind == "heading" else 0) for b in blocks]


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Sequence[Block]]:
    text = draw(TEXTS)
    return text, draw(structures(text))


def check(name: str, prompt: str, how: ChunkSettings, text: str, chunks: Sequence[Chunk]) -> None:
    limit = min(WINDOW, how.max_tokens or WINDOW)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    covered = 0
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
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
@settings(deadline=None)
@given(document=documents(), prompt=st.sampled_from(PROMPTS), overlap=st.integers(0, 9) | st.none())
@example(document=("a\x0cb " * 30, ()), prompt="", overlap=None)
@example(document=("word. " * 40, ()), prompt="", overlap=4)
@example(document=("日本語。" * 40, ()), prompt="query: ", overlap=8)
def test_chunks_are_slices_that_cover_the_text_within_the_limit(
    name: str, document: tuple[str, Sequence[Block]], prompt: str, overlap: int | None
) -> None:
    text, blocks = document
    if "\ufdfa" in text:  # one character, up to 36 tokens: see test_chunker
        text = text.replace("\ufdfa", "a")
    how = ChunkSettings() if overlap is None else ChunkSettings("static", 20, overlap)
    chunks = list(chunker(name, prompt, how).chunks(text, blocks, ()))
    check(name, prompt, how, text, chunks)
    assert chunks == list(chunker(name, prompt, how).chunks(text, blocks, ()))


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(text=TEXTS, prompt=st.sampled_from(PROMPTS))
def test_counts_are_the_models(name: str, text: str, prompt: str) -> None:
    assert chunker(name, prompt, ChunkSettings()).count(text) == tokens(name, prompt + text)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(text=TEXTS, prompt=st.sampled_from(PROMPTS))
def test_uncut_a_document_is_one_chunk(name: str, text: str, prompt: str) -> None:
    chunks = list(chunker(name, prompt, ChunkSettings("none")).chunks(text, (), ()))
    assert [chunk.text for chunk in chunks] == [text.strip()] * bool(text.strip())
    for chunk in chunks:
        full = tokens(name, prompt + chunk.text)
        assert (chunk.token_count, chunk.truncated) == (min(full, WINDOW), full > WINDOW)
