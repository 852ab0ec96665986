from hypothesis import given
from hypothesis import strategies as st

from stack.lines import LineSplitter


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))), cut=st.integers(1, 7)
)
def test_lines_come_back_however_they_are_cut(lines: list[str], cut: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    splitter = LineSplitter()

    seen = [line for start in range(0, len(data), cut) for line in splitter.feed(data[start : start + cut])]

    assert seen == lines
    assert splitter.rest() == []


def test_the_last_line_needs_no_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\ntw") == ["one"]
    assert splitter.rest() == ["tw"]
    assert splitter.rest() == []


def test_bytes_that_are_no_text_do_not_stop_the_log() -> None:
    assert LineSplitter().feed(b"\xff\xfe!\n") == ["\ufffd\ufffd!"]


def test_a_line_that_never_ends_is_cut() -> None:
    splitter = LineSplitter()
    lines = [line for _ in range(5) for line in splitter.feed(b"x" * 40_000)]
    assert [len(line) for line in lines] == [80_000, 80_000]
