"""Bytes become text in whatever encoding they are."""

import pytest

from tasks.ingestion.parsing.extracted import clean
from tasks.ingestion.parsing.text_encoding import decode

GERMAN = "Größere Äpfel müssen über die Straße rollen, fünf Stück für schöne Bäuche."
JAPANESE = "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n"


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


def test_a_codec_of_names_of_hosts_is_no_encoding() -> None:
    """It takes time by the square of what it is given: the suite's time limit would end this."""
    data = b"xn--" + b"z9a" * 2_000_000 + b".\xff"
    assert decode(data, "idna") == decode(data)
