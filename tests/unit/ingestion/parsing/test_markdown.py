"""Plain text and Markdown: the text stays as it is written, and its blocks cover it, in time linear in its size."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import MAX_TEXT_CHARS, Extracted, clean
from tasks.ingestion.parsing.markdown import blocks, read_markdown, read_text

_MARKS = [
    *("# a", "## b", "---", "===", "```", "~~~", "```py", "``` a `b`", "- x", "  - y", "- ```", "  ```", "1. z"),
    *("    code", "\tcode", "| a | b |", "|---|---|", "a | b", "-|-", "", " ", "t", "...", "\u3000", "\xa0x"),
]


def shown(extracted: Extracted) -> list[tuple[str, str]]:
    """Kind and text of every block, after a check that blocks are what they promise."""
    text, position = extracted.text, 0
    found = blocks(text, extracted.structure)
    for block in found:
        assert position <= block.start < block.end <= len(text)
        assert not text[position : block.start].strip()
        assert text[block.start : block.end].strip()
        position = block.end
    assert not text[position:].strip()
    return [(f"{b.kind}{b.level or ''}", text[b.start : b.end]) for b in found]


def markdown(source: str) -> list[tuple[str, str]]:
    return shown(Extracted(source, "markdown"))


def test_blocks_of_every_kind() -> None:
    source = (
        "---\nkey: value\n---\n# Title #\ntext\nmore\n\nUnder\n-----\n```py\n# no heading\n\n```\n- a\n\n"
        "  b\n  ```\n  x\n\n  ```\n- c\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n    indented\n\n    code\n\nend\n#hashtag"
    )
    extracted = read_markdown(source.encode())
    assert (extracted.text, extracted.title) == (source, "Title")
    assert shown(extracted) == [
        ("code", "---\nkey: value\n---"),
        ("heading1", "# Title #"),
        ("paragraph", "text\nmore"),
        ("heading2", "Under\n-----"),
        ("code", "```py\n# no heading\n\n```"),
        ("list", "- a\n\n  b\n  ```\n  x\n\n  ```\n- c"),
        ("table", "| a | b |\n|---|:-:|\n| 1 | 2 |"),
        ("code", "    indented\n\n    code"),
        ("paragraph", "end\n#hashtag"),
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("```\n# a\n\nb", [("code", "```\n# a\n\nb")]),
        ("````\n```\nx\n```\n````\ny", [("code", "````\n```\nx\n```\n````"), ("paragraph", "y")]),
        ("```code``` in a line\n# a", [("paragraph", "```code``` in a line"), ("heading1", "# a")]),
        ("text\n```\nx\n```", [("paragraph", "text"), ("code", "```\nx\n```")]),
        ("```\na\n    ```\nb\n```\n# c", [("code", "```\na\n    ```\nb\n```"), ("heading1", "# c")]),
        ("- ```\n  # a\n\nb\n\n# c", [("list", "- ```\n  # a"), ("paragraph", "b"), ("heading1", "# c")]),
        ("- a\n\t```\n\t# b\n\t```\n# c", [("list", "- a\n\t```\n\t# b\n\t```"), ("heading1", "# c")]),
        ("1. a\n  ```\n# b\n  ```\n# c", [("list", "1. a"), ("code", "  ```\n# b\n  ```"), ("heading1", "# c")]),
        (
            "intro\n| a |\n| - |\n| 1 |\nend",
            [("paragraph", "intro"), ("table", "| a |\n| - |\n| 1 |"), ("paragraph", "end")],
        ),
        ("a|b\n-|-\nc|d", [("table", "a|b\n-|-\nc|d")]),
        ("a|b\nc|d", [("paragraph", "a|b\nc|d")]),
        ("two\nlines\n===", [("heading1", "two\nlines\n===")]),
        (
            "---\n\nNo front matter.\n\n---",
            [("paragraph", "---"), ("paragraph", "No front matter."), ("paragraph", "---")],
        ),
        ("#\n#x\n####### y", [("heading1", "#"), ("paragraph", "#x\n####### y")]),
        ("   # in\n    # code", [("heading1", "   # in"), ("code", "    # code")]),
        ("a\n\u3000\nb", [("paragraph", "a"), ("paragraph", "b")]),
    ],
)
def test_one_block_ends_where_another_begins(source: str, expected: list[tuple[str, str]]) -> None:
    assert markdown(source) == expected


def test_paragraphs_are_divided_by_blank_lines_and_by_nothing_else() -> None:
    extracted = read_text(b"\n one\n# two\n \n\n- three  \n")
    assert shown(extracted) == [("paragraph", " one\n# two"), ("paragraph", "- three  ")]
    assert extracted.title is None


def test_pictures_within_markdown_are_left_out() -> None:
    picture = "data:image/png;charset=x;base64," + "iVBORw0KGgo/+" * 5000 + "=="
    extracted = read_markdown(f"# Title\n\nbefore ![a]({picture}) behind, data:text/plain,short stays".encode())
    assert extracted.text == "# Title\n\nbefore ![a](data:image/png) behind, data:text/plain,short stays"


def test_too_much_text_is_refused() -> None:
    assert len(read_text(b"x" * MAX_TEXT_CHARS).text) == MAX_TEXT_CHARS
    for size in (MAX_TEXT_CHARS + 1, 4 * MAX_TEXT_CHARS + 1):
        with pytest.raises(DocumentFailed) as failed:
            read_text(b"x" * size)
        assert failed.value.error.code == "document_too_large"


@given(st.lists(st.sampled_from(_MARKS) | st.text(max_size=5), max_size=30).map("\n".join) | st.text(max_size=200))
@example("a" + " " * 5000 + "b")
def test_blocks_cover_every_text(text: str) -> None:
    data = text.encode(errors="replace")
    for read in (read_text, read_markdown):
        try:
            extracted = read(b"\xef\xbb\xbf" + data)
        except DocumentFailed:
            assert not clean(data.decode()).strip()
        else:
            shown(extracted)
            assert extracted.text == clean(data.decode())


_UNITS = [
    *("\n", " ", "\t", "#", "-", "=", "`", "~~~", "|", "|-", "| - ", "- ", "1", "1. ", "* ", "a | ", ":", "data:a/b;"),
    *(
        "a|b\n",
        "a|b\n---\n",
        "|-|\n",
        "- a\n",
        "- ```\n",
        "```\n",
        "``` \n",
        "    x\n",
        "\n  x\n",
        "---\n",
        " \n",
        "=\n",
    ),
]


@pytest.mark.untraced
@pytest.mark.parametrize("unit", _UNITS)
def test_lines_without_end_are_read(unit: str) -> None:
    """What goes back at each character would need minutes for each of them."""
    for before in ("", "x", "- ", "a|b\n", "```\n", "---\n"):
        text = before + unit * (2**15 // len(unit))
        found = [*blocks(text, "markdown"), *blocks(text, "paragraphs")]
        assert bool(found) == bool(text.strip())
