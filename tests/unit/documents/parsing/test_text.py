"""Plain text and Markdown: encodings, blocks, and that nothing of a text gets lost."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.markdown import parse_markdown
from tasks.documents.parsing.parsed_document import MAX_BLOCKS, MAX_TEXT_CHARS, clean
from tasks.documents.parsing.plain_text import parse_text
from tasks.documents.parsing.text_encoding import decode
from tests.document_files import shown

GERMAN = "Größere Äpfel müssen über die Straße rollen, fünf Stück für schöne Bäuche."
JAPANESE = "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n"
MARKS = [
    "# a",
    "## b",
    "---",
    "===",
    "```",
    "~~~",
    "- x",
    "  - y",
    "1. z",
    "    code",
    "| a | b |",
    "|---|---|",
    "",
    " ",
    "t",
]


def test_pictures_within_markdown_are_left_out() -> None:
    picture = "data:image/png;charset=x;base64," + "iVBORw0KGgo/+" * 5000 + "=="
    parsed = parse_markdown(f"# Title\n\nbefore ![a picture]({picture}) behind, data:text/plain,short stays".encode())
    assert shown(parsed) == [
        ("heading1", "# Title"),
        ("paragraph", "before ![a picture](data:image/png) behind, data:text/plain,short stays"),
    ]


@pytest.mark.parametrize(
    "name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"]
)
def test_german_in_many_encodings(name: str) -> None:
    assert decode(GERMAN.encode(name)) == GERMAN


@pytest.mark.parametrize("name", ["shift_jis", "euc_jp", "utf-16"])
def test_japanese(name: str) -> None:
    assert decode((JAPANESE * 5).encode(name)) == JAPANESE * 5


ASIAN = {
    "shift_jis": "日本語の文章です。表示する能力を確認します。",
    "euc_jp": "日本語の文章です。表示する能力を確認します。",
    "gb18030": "这是一个中文句子,我们来检查编码。",
    "big5": "這是一個中文句子我們來檢查編碼",
    "cp949": "이것은 한국어 문장입니다. 인코딩을 확인합니다.",
}


@pytest.mark.parametrize("name", ASIAN)
@pytest.mark.parametrize("shift", range(4))
def test_a_long_text_is_recognised_wherever_the_sample_of_it_ends(name: str, shift: int) -> None:
    text = "x" * shift + "".join(f"{number} {ASIAN[name] * 3}\n" for number in range(1000))
    assert decode(text.encode(name)) == text


def test_a_mark_far_behind_much_english_is_seen() -> None:
    assert decode(b"plain words\n" * 20_000 + GERMAN.encode("cp1252")).endswith(GERMAN)


def test_a_broken_byte_spoils_nothing_around_it() -> None:
    assert decode((GERMAN * 3).encode() + b"\xff") == GERMAN * 3 + "\ufffd"


def test_a_declared_encoding_wins_over_a_guess_and_a_wrong_one_does_not() -> None:
    assert decode("ń".encode("iso8859-2"), "iso-8859-2") == "ń"
    assert decode(GERMAN.encode("cp1252"), "no such encoding") == GERMAN
    assert decode(GERMAN.encode(), "iso-8859-1") == GERMAN


def test_lines_end_in_one_way_and_control_characters_go() -> None:
    assert clean("a\r\nb\rc\x00\x07\ufeff\ud800\x0cd\u2028e") == "a\nb\nc\nd\ne"


@pytest.mark.parametrize("data", [b" ", b"\r\n\t\n", b"\xef\xbb\xbf", "\u2003\n".encode("utf-16")])
def test_nothing_but_white_space_is_empty(data: bytes) -> None:
    with pytest.raises(DocumentFailed) as failed:
        parse_text(data)
    assert failed.value.error.code == "empty_document"


def test_too_much_text_is_refused() -> None:
    assert len(parse_text(b"x" * MAX_TEXT_CHARS).text) == MAX_TEXT_CHARS
    for size in (MAX_TEXT_CHARS + 1, 4 * MAX_TEXT_CHARS + 1):
        with pytest.raises(DocumentFailed) as failed:
            parse_text(b"x" * size)
        assert failed.value.error.code == "document_too_large"


def test_paragraphs_are_divided_by_blank_lines() -> None:
    assert shown(parse_text(b"\n one\ntwo\n \n\nthree  \n")) == [("paragraph", " one\ntwo"), ("paragraph", "three  ")]


def test_blocks_beyond_all_measure_become_one() -> None:
    parsed = parse_text(b"a\n\n" * (MAX_BLOCKS + 2))
    assert len(parsed.blocks) == MAX_BLOCKS
    assert [text for _, text in shown(parsed)][-2:] == ["a", "a\n\na\n\na"]


def test_markdown_blocks() -> None:
    source = (
        "---\nkey: value\n---\n# Title #\ntext\nmore\n\nUnder\n-----\n```py\n# no heading\n\n```\n- a\n\n"
        "  b\n  ```\n  x\n\n  ```\n- c\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n    indented\n\n    code\n\nend\n#hashtag"
    )
    parsed = parse_markdown(source.encode())
    assert parsed.text == source
    assert parsed.title == "Title"
    assert shown(parsed) == [
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


def test_a_fence_that_never_closes_reaches_to_the_end() -> None:
    assert shown(parse_markdown(b"```\n# a\n\nb")) == [("code", "```\n# a\n\nb")]


@given(st.lists(st.sampled_from(MARKS), max_size=30).map("\n".join) | st.text(max_size=200))
@example("a" + " " * 5000 + "b")
def test_blocks_cover_every_text(text: str) -> None:
    data = text.encode(errors="replace")
    for parse in (parse_text, parse_markdown):
        try:
            parsed = parse(b"\xef\xbb\xbf" + data)
        except DocumentFailed:
            assert not clean(data.decode()).strip()
        else:
            shown(parsed)
            assert parsed.text == clean(data.decode())
