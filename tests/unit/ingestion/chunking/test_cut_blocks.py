"""A part of a table has the table's header, a part of code its fences: within the limit, or not at all."""

from itertools import pairwise

import pytest

from tasks.chunk import Chunk
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.chunker import Chunker
from tests.unit.ingestion.chunking.tokenizers_of_kinds import TOKENIZERS

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


def test_a_header_stays_with_its_first_row() -> None:
    text = "One two three four five six. Seven eight nine ten.\n\n" + HEADER + "| a | 1 |\n| b | 2 |\n"
    chunks = chunks_of(text, 24)
    assert [chunk.text.partition("\n")[0] for chunk in chunks][1] == "| name | days |"


def test_the_header_of_one_table_is_not_put_before_the_next() -> None:
    text = "\n\n".join(f"| t{n} |\n|---|\n" + "\n".join(f"| r{n} |" for _ in range(6)) for n in range(6))
    for chunk in chunks_of(text, 20):
        assert chunk.text.startswith("| t")
        number = chunk.text[3]
        assert f"| r{number} |" in chunk.text.split("\n\n")[0]


def test_a_header_that_takes_more_than_a_quarter_is_left_out() -> None:
    header = "| " + " | ".join(f"column {n}" for n in range(6)) + " |\n|" + "---|" * 6 + "\n"
    text = header + "\n".join("| " + " | ".join("abcdef") + " |" for _ in range(20))
    first, *others = chunks_of(text, 40)
    assert header in first.text
    assert not any("column" in chunk.text for chunk in others)
    assert all(header in chunk.text for chunk in chunks_of(text, 100))


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


def test_what_has_no_fences_gets_none() -> None:
    for text in ("---\n" + "key: value\n" * 20 + "---\n", "    indented code\n" * 20, "- an item of it\n" * 20):
        for chunk in chunks_of(text, 16):
            assert chunk.text == text[chunk.start : chunk.end]


def test_a_whole_block_is_as_it_is_written() -> None:
    text = HEADER + "| a | 1 |\n\n```py\nx = 1\n```"
    (chunk,) = chunks_of(text, 100)
    assert chunk.text == text


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
