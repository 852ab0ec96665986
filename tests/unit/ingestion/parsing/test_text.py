"""Plain text, Markdown and notebooks: encodings; blocks that cover the text, in time linear in its size; cells."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import MAX_TEXT_CHARS, Extracted, clean
from tasks.ingestion.parsing.markdown import blocks, read_markdown, read_text
from tasks.ingestion.parsing.notebook import read_notebook
from tasks.ingestion.parsing.text_encoding import decode
from tests.unit.ingestion.parsing.files import outcome

GERMAN = "Größere Äpfel müssen über die Straße rollen, fünf Stück für schöne Bäuche."
ASIAN = {
    "shift_jis": "日本語の文章です。表示する能力を確認します。",
    "euc_jp": "日本語の文章です。表示する能力を確認します。",
    "gb18030": "这是一个中文句子,我们来检查编码。",
    "big5": "這是一個中文句子我們來檢查編碼",
    "cp949": "이것은 한국어 문장입니다. 인코딩을 확인합니다.",
}


@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", *ASIAN])
def test_an_encoding_is_recognised_wherever_the_sample_of_it_ends(name: str) -> None:
    for shift in range(4):
        text = "x" * shift + "".join(f"{number} {ASIAN.get(name, GERMAN) * 3}\n" for number in range(1000))
        assert decode(text.encode(name)) == text


def test_broken_bytes_declared_encodings_and_control_characters() -> None:
    late = b"plain words\n" * 20_000
    assert decode(late + GERMAN.encode("cp1252")) == late.decode() + GERMAN
    assert decode((GERMAN * 3).encode() + b"\xff") == GERMAN * 3 + "\ufffd"
    assert decode("ń".encode("iso8859-2"), "iso-8859-2") == "ń"
    assert decode(GERMAN.encode("cp1252"), "no such encoding") == decode(GERMAN.encode(), "iso-8859-1") == GERMAN
    assert decode(b"a\r\nb\rc\x00\x07\xef\xbb\xbf\x0cd\xe2\x80\xa8e") == "a\nb\nc\nd\ne"


def test_too_much_text_is_refused_and_a_codec_of_names_of_hosts_is_no_encoding() -> None:
    for size in (MAX_TEXT_CHARS + 1, 4 * MAX_TEXT_CHARS + 1):
        assert outcome(read_text, b"x" * size) == "<document_too_large>"
    # It takes time by the square of what it is given: the suite's time limit would end this.
    data = b"xn--" + b"z9a" * 2_000_000 + b".\xff"
    assert decode(data, "idna") == decode(data)


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


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (
            ["---\nkey: value\n---\n", "# Title #\n", "text\nmore\n\n", "Under\n-----"],
            "code heading1 paragraph heading2",
        ),
        (["- a\n\n  b\n  ```\n  x\n\n  ```\n- c\n\n", "a|b\n-|-\n\n", "    in\n\n    code"], "list table code"),
        (["```\n# a\n\nb"], "code"),
        (["````\n```\nx\n```\n````\n", "y"], "code paragraph"),
        (["```\na\n    ```\nb\n```\n", "# c"], "code heading1"),
        (["- ```\n  # a\n\n", "b\n\n", "# c"], "list paragraph heading1"),
        (["- a\n\t```\n\t# b\n\t```\n", "# c"], "list heading1"),
        (["1. a\n", "  ```\n# b\n  ```\n", "# c"], "list code heading1"),
        (["intro\n", "| a |\n| - |\n| 1 |\n", "end"], "paragraph table paragraph"),
        (["---\n\n", "No front matter.\n\n", "---"], "paragraph paragraph paragraph"),
        (["a\n\u3000\n", "b"], "paragraph paragraph"),
    ],
)
def test_one_block_ends_where_another_begins(source: list[str], kinds: str) -> None:
    found = shown(Extracted("".join(source), "markdown"))
    assert found == [(kind, text.rstrip()) for kind, text in zip(kinds.split(), source, strict=True)]


def test_titles_pictures_and_paragraphs() -> None:
    picture = "data:image/png;charset=x;base64," + "iVBORw0KGgo/+" * 5000 + "=="
    extracted = read_markdown(f"# Title\n\nbefore ![a]({picture}) behind, data:text/plain,short stays".encode())
    assert extracted.title == "Title"
    assert extracted.text == "# Title\n\nbefore ![a](data:image/png) behind, data:text/plain,short stays"
    extracted = read_text(b"\n one\n# two\n \n\n- three  \n")
    assert shown(extracted) == [("paragraph", " one\n# two"), ("paragraph", "- three  ")]
    assert extracted.title is None


MARKS = [
    *("# a", "## b", "---", "===", "```", "~~~", "```py", "``` a `b`", "- x", "  - y", "- ```", "  ```", "1. z"),
    *("    code", "\tcode", "| a | b |", "|---|---|", "a | b", "-|-", "", " ", "t", "...", "\u3000", "\xa0x"),
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=30).map("\n".join) | st.text(max_size=200))
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


UNITS = [
    *("\n", " ", "\t", "#", "-", "=", "`", "~~~", "|", "|-", "| - ", "- ", "1", "1. ", "* ", "a | ", ":", "data:a/b;"),
    *("a|b\n", "a|b\n---\n", "|-|\n", "- a\n", "- ```\n", "```\n", "``` \n", "    x\n", "\n  x\n", "---\n", "=\n"),
]


@pytest.mark.untraced
@pytest.mark.parametrize("unit", UNITS)
def test_lines_without_end_are_read(unit: str) -> None:
    """What goes back at each character would need minutes for each of them."""
    for before in ("", "x", "- ", "a|b\n", "```\n", "---\n"):
        text = before + unit * (2**15 // len(unit))
        found = [*blocks(text, "markdown"), *blocks(text, "paragraphs")]
        assert bool(found) == bool(text.strip())


PROSE = {"cell_type": "markdown", "source": ["Refunds take three days."]}


def notebook(*cells: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"nbformat": 4, "cells": cells, **more}).encode()


def cell(source: Any, kind: str = "markdown", **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "source": source, **more}


def test_a_notebook_is_its_cells_without_their_outputs() -> None:
    picture = "iVBORw0KGgo/" * 1000
    data = notebook(
        cell(["# Title\n", "\n", "- an item\n", f"![x](data:image/png;base64,{picture})"]),
        cell("x = 1\n\ny = 2", "code", outputs=[{"data": {"image/png": picture}}]),
        *(cell(" "), cell(None), cell(" \n", "code"), cell("as it is", "raw")),
        metadata={"kernelspec": {"language": "c++"}, "language_info": {"name": "x"}},
    )
    extracted = read_notebook(data)
    assert (extracted.title, extracted.structure) == ("Title", "markdown")
    assert extracted.text == "# Title\n\n- an item\n![x](data:image/png)\n\n```c++\nx = 1\n\ny = 2\n```\n\nas it is"
    named = notebook(cell("x", "code"), metadata={"language_info": {"name": "julia"}})
    assert read_notebook(named).text == "```julia\nx\n```"


def test_a_fence_ends_with_its_cell_and_odd_outputs_do_no_harm() -> None:
    for source in ("```py\nx", "a\n\n~~~\nx\n```", "````\n# x\n```"):
        text = read_notebook(notebook(cell(source), PROSE)).text
        assert blocks(text, "markdown")[-1].kind == "paragraph"
        assert text.startswith(source)
    odd = ("NaN", "[Infinity]", '"\\ud800"', "9" * 5000, "9" * 400 + ".5e400", '"\t raw control \x01"', "null")
    for encoding in ("utf-8-sig", "utf-16"):
        cells = f'{json.dumps(PROSE)}, {{"cell_type": "code", "source": "x", "outputs": [{{"v": [{", ".join(odd)}]}}]}}'
        found = read_notebook(f'{{"cells": [{cells}]}}'.encode(encoding))
        assert found.text == "Refunds take three days.\n\n```\nx\n```"


BAD = [
    *(b"", b"{", b"[]", b"{}", b"5", b'"cells"', b"\xff\xfe{", b'{"cells": 5}', b'{"cells": [5]}'),
    *(b'{"cells": [{"source": 5}]}', b'{"cells": [{"source": [5]}]}', b'{"cells": [], "metadata": 5}'),
    *(b'{"cells": ' + b"[" * 100_000, b'{"cells": [], "x": ' + b'{"a":' * 100_000),
]


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_notebook_is_damaged(data: bytes) -> None:
    assert outcome(read_notebook, data) == "<corrupt_document>"
